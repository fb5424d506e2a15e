// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq.cc
/// Completion queues.
#include "verbs/cq.h"

#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "cm/object/usiw_limits.h"

using namespace usiw;

static_assert(static_cast<int>(WcStatus::kSuccess) == IBV_WC_SUCCESS);
static_assert(static_cast<int>(WcStatus::kLocLenErr) == IBV_WC_LOC_LEN_ERR);
static_assert(static_cast<int>(WcStatus::kLocQpOpErr) == IBV_WC_LOC_QP_OP_ERR);
static_assert(static_cast<int>(WcStatus::kLocProtErr) == IBV_WC_LOC_PROT_ERR);
static_assert(static_cast<int>(WcStatus::kWrFlushErr) == IBV_WC_WR_FLUSH_ERR);
static_assert(static_cast<int>(WcStatus::kBadRespErr) == IBV_WC_BAD_RESP_ERR);
static_assert(static_cast<int>(WcStatus::kLocAccessErr) == IBV_WC_LOC_ACCESS_ERR);
static_assert(static_cast<int>(WcStatus::kRemInvReqErr) == IBV_WC_REM_INV_REQ_ERR);
static_assert(static_cast<int>(WcStatus::kRemAccessErr) == IBV_WC_REM_ACCESS_ERR);
static_assert(static_cast<int>(WcStatus::kRemOpErr) == IBV_WC_REM_OP_ERR);
static_assert(static_cast<int>(WcStatus::kRetryExcErr) == IBV_WC_RETRY_EXC_ERR);
static_assert(static_cast<int>(WcStatus::kRnrRetryExcErr) == IBV_WC_RNR_RETRY_EXC_ERR);
static_assert(static_cast<int>(WcStatus::kRemAbortErr) == IBV_WC_REM_ABORT_ERR);
static_assert(static_cast<int>(WcStatus::kFatalErr) == IBV_WC_FATAL_ERR);
static_assert(static_cast<int>(WcStatus::kGeneralErr) == IBV_WC_GENERAL_ERR);
static_assert(static_cast<int>(WcOpcode::kSend) == IBV_WC_SEND);
static_assert(static_cast<int>(WcOpcode::kRdmaWrite) == IBV_WC_RDMA_WRITE);
static_assert(static_cast<int>(WcOpcode::kRdmaRead) == IBV_WC_RDMA_READ);
static_assert(static_cast<int>(WcOpcode::kCompSwap) == IBV_WC_COMP_SWAP);
static_assert(static_cast<int>(WcOpcode::kFetchAdd) == IBV_WC_FETCH_ADD);
static_assert(static_cast<int>(WcOpcode::kBindMw) == IBV_WC_BIND_MW);
static_assert(static_cast<int>(WcOpcode::kLocalInv) == IBV_WC_LOCAL_INV);
static_assert(static_cast<int>(WcOpcode::kRecv) == IBV_WC_RECV);
static_assert(static_cast<int>(WcOpcode::kRecvRdmaWithImm) == IBV_WC_RECV_RDMA_WITH_IMM);
static_assert(static_cast<int>(kWcWithImm) == IBV_WC_WITH_IMM && static_cast<int>(kWcWithInv) == IBV_WC_WITH_INV);
static_assert(offsetof(ibv_wc, imm_data) == offsetof(ibv_wc, invalidated_rkey));

namespace {

/// [cq.turn] Takes up to @p count completions.
int take(VCq& cq, int count, ibv_wc* wc) {
  for (int n = 0; n < count; ++n) {
    const Cq::Slot* slot = cq.cq->front();
    if (slot == nullptr) return n;
    const Cqe& c = slot->cqe;
    wc[n] = {.wr_id = c.wr_id,
             .status = static_cast<ibv_wc_status>(c.status),
             .opcode = static_cast<ibv_wc_opcode>(c.opcode),
             .vendor_err = c.vendor_err,
             .byte_len = c.byte_len,
             .imm_data = c.imm,  // or the STag that was invalidated, in the same place
             .qp_num = c.qpn,
             .src_qp = 0,
             .wc_flags = c.flags,
             .pkey_index = 0,
             .slid = 0,
             .sl = 0,
             .dlid_path_bits = 0};
    cq.cq->pop();
  }
  return count;
}

}  // namespace

VCq* usiw::create_cq(ibv_context* ctx, const CqWish& wish) {
  Context& context = Context::of(ctx);
  Runtime& runtime = *context.runtime;
  int rc = runtime.dead() ? EINVAL : -usiw_check_cqe(wish.cqe);
  VCq* cq = rc == 0 ? new (std::nothrow) VCq{} : nullptr;
  if (cq == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  cq->context = &context;
  cq->runtime = &runtime;
  cq->completion.cq = cq->overrun.cq = cq;
  cq->overrun.kind = USIW_CQ_OVERRUN;
  cq->domain = wish.domain;
  if (wish.one_thread || (cq->domain != nullptr && cq->domain->one_thread())) cq->turn.never_contended();
  CqOptions options = wish.options;
  rc = cq->ring.allocate(cq->domain, Cq::bytes(wish.cqe), RingKind::kCompletion);
  options.memory = cq->ring.at();
  if (rc == 0)
    rc = usiw_cmd_create_cq(ctx, static_cast<int>(wish.cqe), wish.channel, static_cast<int>(wish.comp_vector),
                            &cq->ibv);
  if (rc == 0) {
    cq->ibv.channel = wish.channel;  // the library sets it after us; events may come before
    cq->cq = runtime.hold()->cq_create(wish.cqe, cq, options);
    if (cq->cq == nullptr) {
      usiw_cmd_destroy_cq(&cq->ibv);
      rc = ENOMEM;
    }
  }
  if (rc != 0) {
    cq->ring.free();
    delete cq;
    errno = rc;
    return nullptr;
  }
  if (cq->domain != nullptr) ++cq->domain->users;
  return cq;
}

extern "C" ibv_cq* usiw_verb_create_cq(ibv_context* ctx, int cqe, ibv_comp_channel* channel, int comp_vector) {
  VCq* cq = create_cq(ctx, {.cqe = static_cast<uint32_t>(cqe),
                            .channel = channel,
                            .comp_vector = static_cast<uint32_t>(comp_vector)});
  return cq != nullptr ? &cq->ibv : nullptr;
}

extern "C" int usiw_verb_destroy_cq(ibv_cq* ibcq) {
  VCq* cq = from(ibcq);
  Runtime& runtime = *cq->runtime;
  if (runtime.dead()) return EINVAL;
  // An event that is still to be raised must not find the handle at another CQ. Of a CQ without QPs none follows.
  Reports::settle(*cq);
  if (int rc = usiw_cmd_destroy_cq(ibcq); rc != 0) return rc;  // EBUSY while a QP uses it
  runtime.hold()->cq_destroy(cq->cq);
  cq->ring.free();
  if (cq->domain != nullptr) --cq->domain->users;
  delete cq;
  return 0;
}

/// The kernel keeps the number for who asks it (rdma resource show cq); the ring is ours.
extern "C" int usiw_verb_resize_cq(ibv_cq* ibcq, int cqe) {
  VCq& cq = *from(ibcq);
  Runtime& runtime = *cq.runtime;
  if (runtime.dead()) return EINVAL;
  std::lock_guard in_turn(cq.turn);
  if (cq.shows) return EBUSY;  // of one thread, which is between start_poll and end_poll
  const int before = ibcq->cqe;
  if (int rc = usiw_cmd_resize_cq(ibcq, cqe); rc != 0) return rc;
  const auto capacity = static_cast<uint32_t>(cqe);
  const bool moves = round_up_pow2(capacity) != cq.cq->capacity();
  DomainMemory ring;
  int rc = moves ? ring.allocate(cq.domain, Cq::bytes(capacity), RingKind::kCompletion) : 0;
  if (rc == 0) rc = runtime.hold()->cq_resize(cq.cq, capacity, ring.at());
  if (rc != 0)
    usiw_cmd_resize_cq(ibcq, before);
  else if (moves)
    std::swap(ring, cq.ring);
  ring.free();  // the one that is not in use
  return rc;
}

extern "C" int usiw_verb_poll_cq(ibv_cq* ibcq, int count, ibv_wc* wc) {
  VCq& cq = *from(ibcq);
  if (cq.runtime->dead()) return -1;
  cq.turn.lock();
  int n = take(cq, count, wc);
  if (n > 0) {
    cq.empty_polls = 0;
  } else if (count <= 0) {
    n = 0;
  } else {
    const bool overrun = cq.cq->dead();
    if (!turn_of_news(cq)) return overrun ? -1 : 0;
    n = take(cq, count, wc);
  }
  cq.turn.unlock();
  return n;
}

extern "C" int usiw_verb_req_notify_cq(ibv_cq* ibcq, int solicited_only) {
  VCq& cq = *from(ibcq);
  if (cq.runtime->dead()) return EINVAL;
  cq.cq->arm(solicited_only != 0);
  cq.runtime->progress().arming();
  return 0;
}
