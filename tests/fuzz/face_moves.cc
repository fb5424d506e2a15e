// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_moves.cc
/// modify_qp and query_qp of a QP of the RoCE face, with any attributes and in any order: the checks and the memory of
/// cm/object/ as usiw-run calls them. A call that is refused changes nothing, no value beyond its limit is kept, and
/// query_qp reports what was set.
#include <rdma/ib_user_verbs.h>

#include <cerrno>

#include "cm/object/usiw_face_states.h"
#include "cm/usiw_face.h"
#include "input.h"

namespace {

using usiw::fuzz::Input;

class Fuzz {
 public:
  explicit Fuzz(Input& in) : in_(in) {}

  void run() {
    while (!in_.done()) modify();
  }

 private:
  /// The attributes that a move needs, so that moves succeed; then some bits are changed.
  uint32_t make_mask(uint32_t to) {
    uint32_t mask = USIW_QP_STATE;
    if (state_ == USIW_QPS_RESET && to == USIW_QPS_INIT)
      mask |= USIW_QP_PKEY_INDEX | USIW_QP_PORT | USIW_QP_ACCESS_FLAGS;
    if (state_ == USIW_QPS_INIT && to == USIW_QPS_RTR)
      mask |= USIW_QP_AV | USIW_QP_PATH_MTU | USIW_QP_DEST_QPN | USIW_QP_RQ_PSN | USIW_QP_MAX_DEST_RD_ATOMIC |
              USIW_QP_MIN_RNR_TIMER;
    if (state_ == USIW_QPS_RTR && to == USIW_QPS_RTS)
      mask |= USIW_QP_TIMEOUT | USIW_QP_RETRY_CNT | USIW_QP_RNR_RETRY | USIW_QP_SQ_PSN | USIW_QP_MAX_QP_RD_ATOMIC;
    if (in_.get() % 4 == 0) mask ^= 1u << in_.get() % 32;
    if (in_.get() % 8 == 0) mask ^= in_.get<uint32_t>();
    return mask;
  }

  void modify() {
    ib_uverbs_modify_qp cmd{};
    uint32_t to = in_.get() % 8;
    const uint8_t shape = in_.get();
    if ((shape & 0x80) != 0) to = in_.get<uint32_t>();
    cmd.attr_mask = make_mask(to);
    cmd.qp_state = static_cast<uint8_t>(to);
    const auto value = [&](uint32_t most) {
      return static_cast<uint8_t>(shape % 4 == 0 ? in_.get() : in_.get() % (most + 1));
    };
    cmd.path_mtu = static_cast<uint8_t>(1 + value(4));
    cmd.timeout = value(31);
    cmd.retry_cnt = value(7);
    cmd.rnr_retry = value(7);
    cmd.min_rnr_timer = value(31);
    cmd.max_rd_atomic = value(USIW_MAX_ORD);
    cmd.max_dest_rd_atomic = value(USIW_MAX_IRD);
    cmd.port_num = static_cast<uint8_t>(shape % 8 == 0 ? in_.get() : 1);
    cmd.qp_access_flags = shape % 8 == 0 ? in_.get<uint32_t>() : in_.get() & 15;
    cmd.dest_qp_num = in_.get<uint32_t>();
    cmd.rq_psn = in_.get<uint32_t>();
    cmd.sq_psn = in_.get<uint32_t>();
    modify(cmd);
  }

  void modify(const ib_uverbs_modify_qp& cmd) {
    const uint32_t mask = cmd.attr_mask;
    const uint32_t to = (mask & USIW_QP_STATE) != 0 ? cmd.qp_state : uint32_t{state_};
    int ret;
    usiw_check_qp_attrs(ret, &cmd, mask);
    if (ret == 0) ret = usiw_face_check_move(state_, to, mask);
    FUZZ_CHECK(ret == 0 || ret == -EINVAL || ret == -EOPNOTSUPP, "an error of another kind");
    if (ret != 0) return;
    FUZZ_CHECK((mask & (USIW_QP_REFUSED | ~USIW_QP_KNOWN)) == 0, "an attribute that the device does not have");
    FUZZ_CHECK(to <= USIW_QPS_ERR && to != USIW_QPS_SQE, "a state that an RC QP does not have");
    FUZZ_CHECK(to != USIW_QPS_RTS || state_ == USIW_QPS_RTR || state_ == USIW_QPS_RTS || state_ == USIW_QPS_SQD,
               "RTS without RTR");
    FUZZ_CHECK(state_ != USIW_QPS_ERR || to == USIW_QPS_ERR || to == USIW_QPS_RESET, "out of ERR without RESET");
    FUZZ_CHECK(to != USIW_QPS_RTR || (mask & USIW_QP_DEST_QPN) != 0, "RTR without a peer");
    const bool connected = usiw_qp_is_connected(state_) != 0;
    usiw_keep_qp_attrs(&attrs_, &cmd, mask, state_);
    if ((mask & USIW_QP_STATE) != 0) state_ = static_cast<usiw_qp_state>(usiw_qp_state_after(state_, to));
    check(cmd, connected);
  }

  void check(const ib_uverbs_modify_qp& cmd, bool connected) {
    FUZZ_CHECK(attrs_.timeout <= 31 && attrs_.retry_cnt <= 7 && attrs_.rnr_retry <= 7 && attrs_.min_rnr_timer <= 31,
               "a timer beyond its limit");
    FUZZ_CHECK(attrs_.ird <= USIW_MAX_IRD && attrs_.ord <= USIW_MAX_ORD, "a READ depth beyond its limit");
    ib_uverbs_query_qp_resp r{};
    usiw_fill_qp_attrs(&r, &attrs_, state_);
    FUZZ_CHECK(r.qp_state == usiw_qp_state_shown(state_) && r.cur_qp_state == r.qp_state, "another state is reported");
    const uint32_t mask = cmd.attr_mask;
    FUZZ_CHECK((mask & USIW_QP_DEST_QPN) == 0 || r.dest_qp_num == cmd.dest_qp_num, "dest_qp_num");
    FUZZ_CHECK((mask & USIW_QP_RQ_PSN) == 0 || r.rq_psn == cmd.rq_psn, "rq_psn");
    FUZZ_CHECK((mask & USIW_QP_SQ_PSN) == 0 || r.sq_psn == cmd.sq_psn, "sq_psn");
    FUZZ_CHECK((mask & USIW_QP_TIMEOUT) == 0 || r.timeout == cmd.timeout, "timeout");
    FUZZ_CHECK((mask & USIW_QP_RETRY_CNT) == 0 || r.retry_cnt == cmd.retry_cnt, "retry_cnt");
    FUZZ_CHECK((mask & USIW_QP_RNR_RETRY) == 0 || r.rnr_retry == cmd.rnr_retry, "rnr_retry");
    FUZZ_CHECK((mask & USIW_QP_MIN_RNR_TIMER) == 0 || r.min_rnr_timer == cmd.min_rnr_timer, "min_rnr_timer");
    FUZZ_CHECK((mask & USIW_QP_ACCESS_FLAGS) == 0 || r.qp_access_flags == cmd.qp_access_flags, "qp_access_flags");
    // A connected QP keeps its READ depths.
    if (connected) return check_mtu(cmd);
    FUZZ_CHECK((mask & USIW_QP_MAX_DEST_RD_ATOMIC) == 0 || r.max_dest_rd_atomic == cmd.max_dest_rd_atomic,
               "max_dest_rd_atomic");
    FUZZ_CHECK((mask & USIW_QP_MAX_QP_RD_ATOMIC) == 0 || r.max_rd_atomic == cmd.max_rd_atomic, "max_rd_atomic");
    check_mtu(cmd);
  }

  void check_mtu(const ib_uverbs_modify_qp& cmd) {
    if ((cmd.attr_mask & USIW_QP_PATH_MTU) == 0) return;
    const uint32_t route = USIW_MIN_MTU + in_.get<uint16_t>() % (USIW_MAX_MTU - USIW_MIN_MTU + 1);
    const uint16_t mtu = usiw_face_mtu(cmd.path_mtu, static_cast<uint8_t>(1 + in_.get() % 5), route, in_.flag());
    FUZZ_CHECK(mtu >= USIW_MIN_MTU && mtu <= route, "an MTU that the route does not permit");
  }

  Input& in_;
  usiw_qp_state state_ = USIW_QPS_RESET;
  usiw_qp_attrs attrs_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Fuzz(in).run();
  return 0;
}
