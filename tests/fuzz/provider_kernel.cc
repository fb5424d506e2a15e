// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file provider_kernel.cc
/// What the provider takes from the kernel: the response of GET_CONTEXT, counters page and all,
/// event records in any order, of any type, for QPs that live, died or never were, cut at any byte;
/// numbers of new objects; commands that fail. Each CONNECT for a live QP is answered once, and
/// nothing that the provider holds is lost.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "input.h"
#include "provider_seams.h"
#include "uapi/usiw_wire.h"
#include "runtime/context.h"
#include "runtime/runtime.h"

namespace {

using namespace usiw;
using usiw::fuzz::Input;
using usiw::fuzz::kernel;

int counters_fd() {
  static const int fd = [] {
    const int made = memfd_create("counters", MFD_CLOEXEC);
    FUZZ_CHECK(made >= 0 && ftruncate(made, USIW_COUNTERS_SIZE) == 0, "memfd");
    return made;
  }();
  return fd;
}

class Program {
 public:
  explicit Program(Input& in) : in_(in) {
    kernel() = {};
    kernel().result = [this] { return failing() ? ENOMEM : 0; };
    kernel().number = [this] { return in_.flag() ? next_stag_++ << 8 | in_.get() : in_.get<uint32_t>(); };
    kernel().port_error = [this] { return failing() ? ENODEV : 0; };
    std::strcpy(device_.name, "usiw0");
  }

  void run() {
    if (!open()) return;
    while (!in_.done()) op();
    close_all();
  }

 private:
  bool failing() { return fail_next_ != 0 && --fail_next_ == 0; }

  usiw_link_info link() {
    usiw_link_info l{};
    l.ifindex = 1;
    l.mtu = in_.flag() ? 1500 : 576 + in_.get<uint16_t>() % (USIW_MAX_MTU - 575);
    l.lo_mtu = USIW_MAX_MTU;
    l.up = in_.get() & 1;
    l.is_loopback = in_.get() % 8 == 0;
    std::strcpy(l.ifname, "eth0");
    return l;
  }

  bool open() {
    int ends[2];
    FUZZ_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe");
    events_ = ends[1];
    usiw_alloc_ucontext_resp resp{};
    static constexpr uint64_t kOffsets[] = {0, 1, USIW_COUNTERS_SIZE - 1, UINT64_MAX};
    static constexpr uint32_t kSizes[] = {USIW_COUNTERS_SIZE, 0, 1, UINT32_MAX};
    resp.counters_offset = in_.pick(kOffsets);
    resp.counters_size = in_.pick(kSizes);
    kernel().event_fd = ends[0];
    resp.link = link();
    context_ = {};
    context_.ibv.device = &device_;
    const int rc = usiw_context_open(&context_, counters_fd(), &resp);
    if (rc != 0) close(events_);
    return rc == 0;
  }
  ibv_context* ibv() { return &context_.ibv; }

  void op() {
    const uint8_t what = in_.get();
    const bool extended = what >= 128;
    switch (what % 16) {
      case 0:
        if (extended && pd_ != nullptr)
          create_srq();
        else if (pd_ == nullptr)
          pd_ = usiw_verb_alloc_pd(ibv());
        break;
      case 1:
        if (cq_ != nullptr) break;
        if (extended)
          create_cq_ex();
        else
          cq_ = usiw_verb_create_cq(ibv(), in_.get<int16_t>(), nullptr, 0);
        break;
      case 2: create_qp(extended); break;
      case 3:
      case 4:
      case 5:
      case 6:
      case 7: event(); break;
      case 8: {  // a record cut short, or two in one
        const auto taken = in_.take(in_.get());
        std::vector<uint8_t> bytes(taken.begin(), taken.end());
        bring_no_descriptor(bytes);
        if (!bytes.empty()) feed(bytes.data(), bytes.size());
        break;
      }
      case 9:
        if (extended)
          change_memory();
        else
          reg_mr();
        break;
      case 10:
        if (extended && qps_.empty() && srq_ != nullptr) {
          FUZZ_CHECK(usiw_verb_destroy_srq(srq_) == 0, "destroy_srq");
          srq_ = nullptr;
        }
        if (qps_.empty()) break;
        usiw_verb_destroy_qp(qps_.back());
        qps_.pop_back();
        break;
      case 11:
        if (extended)
          post_batch();
        else
          post();
        break;
      case 12:
        if (extended) {
          poll_extended();
        } else if (cq_ != nullptr) {
          ibv_wc wc[4];
          usiw_verb_poll_cq(cq_, 4, wc);
          usiw_verb_req_notify_cq(cq_, in_.flag());
        }
        break;
      case 13: fail_next_ = in_.get() % 8; break;
      case 14:
        if (extended && srq_ != nullptr) {
          use_srq();
        } else if (!qps_.empty()) {
          ibv_qp_attr attr{};
          static constexpr ibv_qp_state kStates[] = {IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_RTS};
          attr.qp_state = in_.pick(kStates);
          usiw_verb_modify_qp(qps_[in_.get() % qps_.size()], &attr, IBV_QP_STATE);
        }
        break;
      case 15:
        if (!qps_.empty()) {
          ibv_qp_attr attr{};
          ibv_qp_init_attr init{};
          usiw_verb_query_qp(qps_[in_.get() % qps_.size()], &attr, IBV_QP_STATE, &init);
        }
        break;
    }
  }

  void create_cq_ex() {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = in_.get<uint16_t>();
    attr.wc_flags = in_.get<uint16_t>();
    attr.comp_mask = in_.get() & ~unsigned{IBV_CQ_INIT_ATTR_MASK_PD};
    attr.flags = in_.get();
    if (ibv_cq_ex* ex = usiw_verb_create_cq_ex(ibv(), &attr)) cq_ = ibv_cq_ex_to_cq(ex);
  }
  /// What the completions say is whatever the engine was led to; that each comes once is the rings' fuzzer's to see.
  void poll_extended() {
    if (cq_ == nullptr) return;
    if (in_.flag()) usiw_verb_resize_cq(cq_, in_.get<int16_t>());
    ibv_cq_ex& ex = from(cq_)->ex;
    ibv_poll_cq_attr none{};
    if (ex.start_poll == nullptr || ex.start_poll(&ex, &none) != 0) return;
    unsigned n = in_.get() % 8;
    do {
      FUZZ_CHECK(ex.read_opcode(&ex) <= IBV_WC_RECV_RDMA_WITH_IMM, "a completion of no operation");
      FUZZ_CHECK(ex.read_byte_len(&ex) <= USIW_MAX_MSG_SIZE, "more bytes than a message has");
      FUZZ_CHECK(ex.read_completion_ts(&ex) == 0 || ex.read_completion_wallclock_ns(&ex) != 0, "one time of two");
    } while (n-- != 0 && ex.next_poll(&ex) == 0);
    ex.end_poll(&ex);
  }

  void create_srq() {
    if (srq_ != nullptr) return;
    ibv_srq_init_attr basic{};
    basic.attr = {in_.get<uint16_t>() % 300u, in_.get() % 40u, 0};
    if (in_.flag()) {
      ibv_srq_init_attr_ex attr{};
      attr.attr = basic.attr;
      attr.comp_mask = in_.get();
      attr.srq_type = static_cast<ibv_srq_type>(in_.get() % 4);
      attr.pd = pd_;
      srq_ = usiw_verb_create_srq_ex(ibv(), &attr);
    } else {
      srq_ = usiw_verb_create_srq(pd_, &basic);
    }
  }
  void use_srq() {
    const uint8_t what = in_.get();
    ibv_srq_attr attr{in_.get(), in_.get(), in_.get<uint16_t>()};
    if (what % 4 == 0) usiw_verb_modify_srq(srq_, &attr, what / 4 % 4);
    if (what % 4 == 1) usiw_verb_query_srq(srq_, &attr);
    if (what % 4 < 2) return;
    ibv_sge sge{in_.get(), in_.get<uint32_t>(), in_.get<uint32_t>()};
    ibv_recv_wr recv{}, *bad = nullptr;
    recv.sg_list = &sge;
    recv.num_sge = what / 4 % 2;
    for (unsigned n = 1 + what / 8; n != 0; --n) usiw_verb_post_srq_recv(srq_, &recv, &bad);
  }
  /// Windows, and regions that are registered anew.
  void change_memory() {
    const uint8_t what = in_.get();
    if (pd_ == nullptr) return;
    ibv_mr* mr = mrs_.empty() ? nullptr : mrs_[in_.get() % mrs_.size()];
    switch (what % 4) {
      case 0:
        if (mr != nullptr)
          usiw_verb_rereg_mr(mr, what / 4 % 16, pd_, memory_.data() + in_.get(), in_.get() * 8u, in_.get());
        break;
      case 1:
        if (mws_.size() == 4) break;
        if (ibv_mw* mw = usiw_verb_alloc_mw(pd_, static_cast<ibv_mw_type>(what / 4 % 4))) mws_.push_back(mw);
        break;
      case 2:
        if (mws_.empty() || qps_.empty()) break;
        {
          ibv_mw_bind bind{};
          bind.send_flags = what / 4 % 32;
          bind.bind_info = bind_info(mr);
          usiw_verb_bind_mw(qps_[0], mws_[in_.get() % mws_.size()], &bind);
        }
        break;
      default:
        if (mws_.empty()) break;
        FUZZ_CHECK(usiw_verb_dealloc_mw(mws_.back()) == 0, "dealloc_mw");
        mws_.pop_back();
        break;
    }
  }
  ibv_mw_bind_info bind_info(ibv_mr* mr) {
    return {mr, reinterpret_cast<uint64_t>(memory_.data()) + in_.get(), in_.get() * 4u, in_.get()};
  }

  void create_qp(bool extended) {
    if (pd_ == nullptr || cq_ == nullptr || qps_.size() == 4) return;
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {in_.get() * 4u, in_.get() * 4u, in_.get() % 40u, in_.get() % 40u, in_.get() * 8u};
    if (srq_ != nullptr && in_.flag()) attr.srq = srq_;
    if (extended) {
      attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.pd = pd_;
      attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                            IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                            IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    ibv_qp* qp = extended ? usiw_verb_create_qp_ex(ibv(), &attr)
                          : usiw_verb_create_qp(pd_, reinterpret_cast<ibv_qp_init_attr*>(&attr));
    if (qp != nullptr) {
      qps_.push_back(qp);
      qpns_.push_back(qp->qp_num);
    }
  }
  void reg_mr() {
    if (pd_ == nullptr || mrs_.size() == 8) return;
    if (ibv_mr* mr = usiw_verb_reg_mr(pd_, memory_.data(), in_.get() * 8u, in_.get(), in_.get())) mrs_.push_back(mr);
  }
  void post() {
    if (qps_.empty()) return;
    ibv_sge sge{in_.get(), in_.get<uint32_t>(), in_.get<uint32_t>()};
    if (!mrs_.empty() && in_.flag()) sge.lkey = mrs_[0]->lkey;
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = in_.get() % 2;
    wr.opcode = static_cast<ibv_wr_opcode>(in_.get() % 16);
    wr.send_flags = in_.get() & ~unsigned{IBV_SEND_INLINE};
    if (wr.opcode == IBV_WR_BIND_MW && !mws_.empty()) {
      wr.num_sge = 0;
      wr.bind_mw.mw = mws_[0];
      wr.bind_mw.rkey = mws_[0]->rkey + in_.get();
      wr.bind_mw.bind_info = bind_info(mrs_.empty() ? nullptr : mrs_[0]);
    }
    if (wr.opcode == IBV_WR_LOCAL_INV && !mws_.empty()) wr.num_sge = 0, wr.invalidate_rkey = mws_[0]->rkey;
    ibv_qp* qp = qps_[in_.get() % qps_.size()];
    ibv_recv_wr recv{}, *bad_recv = nullptr;
    recv.sg_list = &sge;
    recv.num_sge = wr.num_sge;
    if (in_.flag())
      usiw_verb_post_recv(qp, &recv, &bad_recv);
    else
      usiw_verb_post_send(qp, &wr, &bad);
  }

  void begin_other(ibv_qp_ex& ex, unsigned kind) {
    const uint32_t rkey = mws_.empty() ? in_.get() : mws_[0]->rkey;
    switch (kind) {
      case 0: ex.wr_send_imm(&ex, rkey); break;
      case 1: ex.wr_rdma_write_imm(&ex, rkey, 0x123, 1); break;
      case 2: ex.wr_send_inv(&ex, rkey); break;
      case 3: ex.wr_local_inv(&ex, rkey); break;
      case 4: ex.wr_atomic_cmp_swp(&ex, rkey, 0x128, 1, 2); break;
      case 5: ex.wr_atomic_fetch_add(&ex, rkey, 0x128, 1); break;
      case 6:
        if (!mws_.empty()) {
          const ibv_mw_bind_info info = bind_info(mrs_.empty() ? nullptr : mrs_[0]);
          ex.wr_bind_mw(&ex, mws_[0], rkey + in_.get(), &info);
        }
        break;
      default: break;
    }
  }
  void post_batch() {
    if (qps_.empty()) return;
    ibv_qp_ex& ex = from(qps_[in_.get() % qps_.size()])->ex;
    if (ex.wr_start == nullptr) return;
    ibv_sge sges[2] = {{in_.get(), in_.get<uint32_t>(), in_.get<uint32_t>()}, {0, in_.get(), 0}};
    if (!mrs_.empty() && in_.flag()) sges[0].lkey = mrs_[0]->lkey;
    ex.wr_start(&ex);
    for (unsigned n = in_.get() % 20; n != 0; --n) {
      const uint8_t what = in_.get();
      ex.wr_flags = in_.get() % 32;
      if (what % 4 == 0) begin_other(ex, what / 32);
      if (what % 4 == 1) ex.wr_send(&ex);
      if (what % 4 == 2) ex.wr_rdma_write(&ex, 0x123, what);
      if (what % 4 == 3) ex.wr_rdma_read(&ex, 0x123, what);
      const ibv_data_buf bufs[] = {{memory_.data(), what * 6u}, {memory_.data(), what * 3u}};
      switch (what / 4 % 8) {
        case 0: ex.wr_set_sge(&ex, sges[0].lkey, sges[0].addr, sges[0].length); break;
        case 1: ex.wr_set_sge_list(&ex, 2, sges); break;
        case 2: ex.wr_set_inline_data(&ex, memory_.data(), what * 5u); break;
        case 3: ex.wr_set_inline_data_list(&ex, 2, bufs); break;
        default: break;
      }
    }
    if (in_.get() % 4 == 0)
      ex.wr_abort(&ex);
    else
      ex.wr_complete(&ex);
  }

  void event() {
    usiw_event e{};
    e.type = in_.get() % 16 == 0 ? in_.get<uint32_t>() : 1 + in_.get() % 7;
    if (e.type == USIW_EVENT_DEVICE_GONE && in_.get() % 8 != 0) e.type = USIW_EVENT_CONNECT;
    e.qpn = !qpns_.empty() && in_.get() % 8 != 0 ? qpns_[in_.get() % qpns_.size()] : in_.get<uint32_t>();
    e.conn_id = 1 + in_.get() % 4;
    if (e.type == USIW_EVENT_LINK) {
      e.link = link();
    } else {
      usiw_conn_info& c = e.conn;
      const uint8_t what = in_.get();
      if ((what & 1) == 0) c.local_addr[10] = c.local_addr[11] = c.remote_addr[10] = c.remote_addr[11] = 0xff;
      c.local_port = in_.get() % 4;
      c.remote_port = in_.get() % 4;
      c.flags = (what >> 4) & ~unsigned{USIW_CONN_F_SOCKET};
      c.snd_psn = in_.get<uint32_t>();
      c.rcv_psn = in_.get<uint32_t>();
      c.snd_window = (what & 2) != 0 ? in_.get<uint32_t>() : 64;
      c.ird = (what & 4) != 0 ? in_.get<uint16_t>() : 16;
      c.ord = (what & 4) != 0 ? in_.get<uint16_t>() : 16;
      c.mtu = (what & 8) != 0 ? in_.get<uint16_t>() : 1500;
      c.hop_limit = 64;
    }
    bool live = false;
    for (ibv_qp* qp : qps_) live |= qp->qp_num == e.qpn;
    kernel().reports.clear();
    feed(&e, sizeof e);
    unsigned answers = 0;
    for (const usiw_qp_report& r : kernel().reports) {
      FUZZ_CHECK(r.kind >= USIW_REPORT_READY && r.kind <= USIW_REPORT_ASYNC, "a report of no kind");
      FUZZ_CHECK(r.error <= 0 && r.error >= -4095, "a report with no error number");
      if (r.kind != USIW_REPORT_READY && r.kind != USIW_REPORT_REFUSED) continue;
      FUZZ_CHECK(r.conn_id == e.conn_id, "an answer about another connection");
      FUZZ_CHECK((r.kind == USIW_REPORT_READY) == (r.error == 0), "refused without a reason");
      ++answers;
    }
    FUZZ_CHECK(answers <= 1, "CONNECT is answered twice");
    const bool silent = (e.conn.flags & USIW_CONN_F_SILENT) != 0;  // then the QP may keep the connection that it has
    if (live && e.type == USIW_EVENT_CONNECT && whole_ && !silent) FUZZ_CHECK(answers == 1, "CONNECT is not answered");
  }

  /// The descriptor that a record brings is the provider's to close: it must not be one of the fuzzer's.
  static void bring_no_descriptor(std::vector<uint8_t>& records) {
    for (size_t at = 0; at + sizeof(usiw_event) <= records.size(); at += sizeof(usiw_event)) {
      usiw_event e;
      std::memcpy(&e, &records[at], sizeof e);
      if (e.type == USIW_EVENT_CONNECT) e.conn.flags &= ~unsigned{USIW_CONN_F_SOCKET};
      std::memcpy(&records[at], &e, sizeof e);
    }
  }

  /// A QP that the kernel does not destroy at once can still be used, though it is in RESET.
  static void destroy_refused_once(ibv_qp* qp) {
    kernel().destroy_qp = EBUSY;
    FUZZ_CHECK(usiw_verb_destroy_qp(qp) == EBUSY, "destroy_qp that the kernel refuses");
    kernel().destroy_qp = 0;
    ibv_send_wr wr{}, *bad;
    ibv_recv_wr receive{}, *bad_receive;
    (void)usiw_verb_post_send(qp, &wr, &bad);
    (void)usiw_verb_post_recv(qp, &receive, &bad_receive);
    FUZZ_CHECK(usiw_verb_destroy_qp(qp) == 0, "destroy_qp");
  }

  void feed(const void* bytes, size_t n) {
    if (write(events_, bytes, n) != static_cast<ssize_t>(n)) return;
    if (n % sizeof(usiw_event) != 0) whole_ = false;
    Context& context = *static_cast<Context*>(context_.state);
    context.ready(context.event_fd, 0);
  }

  void close_all() {
    fail_next_ = 0;
    for (ibv_qp* qp : qps_) destroy_refused_once(qp);
    if (srq_ != nullptr) FUZZ_CHECK(usiw_verb_destroy_srq(srq_) == 0, "destroy_srq");
    for (ibv_mw* mw : mws_) FUZZ_CHECK(usiw_verb_dealloc_mw(mw) == 0, "dealloc_mw");
    for (ibv_mr* mr : mrs_) FUZZ_CHECK(usiw_verb_dereg_mr(mr) == 0, "dereg_mr");
    if (cq_ != nullptr) FUZZ_CHECK(usiw_verb_destroy_cq(cq_) == 0, "destroy_cq");
    if (pd_ != nullptr) FUZZ_CHECK(usiw_verb_dealloc_pd(pd_) == 0, "dealloc_pd");
    close(events_);
    usiw_context_close(&context_);
  }

  Input& in_;
  ibv_device device_{};
  usiw_context context_{};
  int events_ = -1;
  bool whole_ = true;       ///< no record has been cut: the stream is in step
  unsigned fail_next_ = 0;  ///< the n-th command from here on fails
  uint32_t next_stag_ = 1;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<ibv_mw*> mws_;
  std::vector<ibv_qp*> qps_;
  std::vector<uint32_t> qpns_;  ///< also of QPs that are gone
  std::vector<ibv_mr*> mrs_;
  std::array<uint8_t, 4096> memory_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Program(in).run();
  return 0;
}
