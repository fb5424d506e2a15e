// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file post.cc
/// Posting work requests: check, translate, write a ring slot.
#include <cerrno>
#include <cstddef>

#include "cm/object/usiw_limits.h"
#include "verbs/post.h"

using namespace usiw;

static_assert(static_cast<int>(WrOpcode::kRdmaWrite) == IBV_WR_RDMA_WRITE);
static_assert(static_cast<int>(WrOpcode::kRdmaWriteImm) == IBV_WR_RDMA_WRITE_WITH_IMM);
static_assert(static_cast<int>(WrOpcode::kSend) == IBV_WR_SEND);
static_assert(static_cast<int>(WrOpcode::kSendImm) == IBV_WR_SEND_WITH_IMM);
static_assert(static_cast<int>(WrOpcode::kRdmaRead) == IBV_WR_RDMA_READ);
static_assert(static_cast<int>(WrOpcode::kCompareSwap) == IBV_WR_ATOMIC_CMP_AND_SWP);
static_assert(static_cast<int>(WrOpcode::kFetchAdd) == IBV_WR_ATOMIC_FETCH_AND_ADD);
static_assert(static_cast<int>(WrOpcode::kLocalInv) == IBV_WR_LOCAL_INV);
static_assert(static_cast<int>(WrOpcode::kBindMw) == IBV_WR_BIND_MW);
static_assert(static_cast<int>(WrOpcode::kSendInv) == IBV_WR_SEND_WITH_INV);
static_assert(static_cast<int>(kWrFence) == IBV_SEND_FENCE);
static_assert(static_cast<int>(kWrSignaled) == IBV_SEND_SIGNALED);
static_assert(static_cast<int>(kWrSolicited) == IBV_SEND_SOLICITED);
static_assert(static_cast<int>(kWrInline) == IBV_SEND_INLINE);
static_assert(sizeof(Sge) == sizeof(ibv_sge) && offsetof(Sge, addr) == offsetof(ibv_sge, addr));
static_assert(offsetof(Sge, length) == offsetof(ibv_sge, length));
static_assert(offsetof(Sge, lkey) == offsetof(ibv_sge, lkey));

namespace {

bool is_small(const ibv_send_wr& wr) {
  if (is_local(static_cast<WrOpcode>(wr.opcode))) return true;
  uint64_t bytes = 0;
  for (int i = 0; i < wr.num_sge; i++) bytes += wr.sg_list[i].length;
  return is_answered(static_cast<WrOpcode>(wr.opcode)) || bytes <= kSmallBytes;
}

int post_one(VQp& qp, const ibv_send_wr& wr) {
  constexpr unsigned kFlags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
  const auto opcode = static_cast<WrOpcode>(wr.opcode);
  if (static_cast<unsigned>(wr.opcode) > UINT8_MAX || !is_known(opcode)) return EINVAL;
  if ((wr.send_flags & ~kFlags) != 0 || wr.num_sge < 0) return EINVAL;
  Qp::SendWr out{.wr_id = wr.wr_id,
                 .opcode = opcode,
                 .flags = static_cast<uint8_t>(wr.send_flags),
                 .remote_addr = wr.wr.rdma.remote_addr,
                 .rkey = wr.wr.rdma.rkey,
                 .imm = wr.imm_data};
  if (is_local(opcode)) [[unlikely]] {
    out.flags &= kWrFence | kWrSignaled;
    if (opcode == WrOpcode::kBindMw) {
      const ibv_mw* mw = wr.bind_mw.mw;
      if (mw == nullptr || mw->type != IBV_MW_TYPE_2 || mw->context != qp.ibv.context) return EINVAL;
      if (int rc = fill_bind(mw, wr.bind_mw.rkey, wr.bind_mw.bind_info, out); rc != 0) return rc;
    }
    return qp.qp->post_send(out, {});
  }
  if (is_atomic(opcode)) {
    out.rkey = wr.wr.atomic.rkey;
    out.operands = {wr.wr.atomic.compare_add, wr.wr.atomic.swap};
  }
  return qp.qp->post_send(out, sges_of(wr.sg_list, static_cast<size_t>(wr.num_sge)));
}

/// To @p queue, a Qp or an Srq, in turn.
template <typename Queue>
int post_receives(Runtime& runtime, Queue& queue, Turn& turn, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  int rc = 0;
  bool any = false;
  turn.lock();
  for (; wr != nullptr; wr = wr->next) {
    rc = wr->num_sge < 0 ? EINVAL : queue.post_recv(wr->wr_id, sges_of(wr->sg_list, static_cast<size_t>(wr->num_sge)));
    if (rc != 0) break;
    any = true;
  }
  // As a rule a receive waits for the peer and there is nothing to drive.
  const bool wanted = any && queue.ring_recv();
  turn.unlock();
  if (rc != 0) *bad = wr;
  if (wanted) runtime.progress().posted();
  return rc;
}

}  // namespace

int usiw::fill_bind(const ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& info, Qp::SendWr& out) {
  constexpr uint32_t kIndex = ~USIW_STAG_KEY_MASK;
  if ((rkey & kIndex) != (mw->rkey & kIndex) || (info.mw_access_flags & ~USIW_ACCESS_OF_WINDOWS) != 0) return EINVAL;
  const bool type2 = mw->type == IBV_MW_TYPE_2;
  if (info.length != 0 ? info.mr == nullptr : type2) return EINVAL;
  if (info.length != 0 && info.mr->context != mw->context) return EINVAL;
  out.remote_addr = info.addr;
  out.rkey = rkey;
  out.imm = type2 ? 1 : 0;
  out.bind = {.length = info.length,
              .access = info.mw_access_flags,
              .region = info.length != 0 ? info.mr->lkey : 0};
  return 0;
}

extern "C" int usiw_verb_post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad) {
  VQp& qp = *from(ibqp);
  int rc = 0;
  if (qp.runtime->dead() || !may_post(qp)) {
    *bad = wr;
    return EINVAL;
  }
  const ibv_send_wr* const first = wr;
  bool run = false;
  qp.send_turn.lock();
  for (; wr != nullptr; wr = wr->next) {
    rc = post_one(qp, *wr);
    if (rc != 0) break;
    run = true;
  }
  if (run) {
    run = ring(qp, [&] { return first->next == nullptr && is_small(*first); });
  }
  qp.send_turn.unlock();
  if (rc != 0) *bad = wr;
  if (run) qp.runtime->progress().posted();
  return rc;
}

/// Type 1: the verb posts the work request itself, and chooses the new name.
extern "C" int usiw_verb_bind_mw(ibv_qp* ibqp, ibv_mw* mw, ibv_mw_bind* bind) {
  VQp& qp = *from(ibqp);
  if (qp.runtime->dead() || !may_post(qp) || mw->context != ibqp->context) return EINVAL;
  if ((bind->send_flags & ~unsigned{IBV_SEND_FENCE | IBV_SEND_SIGNALED}) != 0) return EINVAL;
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  Qp::SendWr out{.wr_id = bind->wr_id,
                 .opcode = WrOpcode::kBindMw,
                 .flags = static_cast<uint8_t>(bind->send_flags),
                 .remote_addr = 0,
                 .rkey = 0};
  if (int rc = fill_bind(mw, rkey, bind->bind_info, out); rc != 0) return rc;
  qp.send_turn.lock();
  const int rc = qp.qp->post_send(out, {});
  if (rc == 0) {
    mw->rkey = rkey;
    qp.qp->ring_send();
    qp.behind = 0;
  }
  qp.send_turn.unlock();
  if (rc == 0) qp.runtime->progress().posted();
  return rc;
}

extern "C" int usiw_verb_post_recv(ibv_qp* ibqp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  VQp& qp = *from(ibqp);
  if (qp.runtime->dead() || ibqp->srq != nullptr) {
    *bad = wr;
    return EINVAL;
  }
  return post_receives(*qp.runtime, *qp.qp, qp.recv_turn, wr, bad);
}

extern "C" int usiw_verb_post_srq_recv(ibv_srq* ibsrq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  VSrq& srq = *from(ibsrq);
  if (srq.runtime->dead()) {
    *bad = wr;
    return EINVAL;
  }
  return post_receives(*srq.runtime, *srq.srq, srq.turn, wr, bad);
}
