// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.cc
/// Queue pairs: the control path.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "runtime/runtime.h"
#include "cm/object/usiw_limits.h"

using namespace usiw;

namespace {

/// Bytes of inline data that every QP takes: many programs ask for none and post a few bytes inline, because the
/// adapters that they were written on gave that much.
constexpr uint32_t kInlineAtLeast = 64;
static_assert(kInlineAtLeast <= USIW_MAX_INLINE);

bool is_roce(const Context& context) { return context.ibv->device->transport_type != IBV_TRANSPORT_IWARP; }

/// 0 or why a QP like this cannot be.
int check_init(const Context& context, const ibv_qp_init_attr& attr) {
  if (attr.qp_type != IBV_QPT_RC) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  const ibv_qp_cap& cap = attr.cap;
  if (attr.srq != nullptr) {
    if (from(attr.srq)->context != &context) return EINVAL;
    return -usiw_check_srq_qp_caps(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data);
  }
  return -usiw_check_qp_caps(cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data);
}

/// usiw_qp_stats.accepted in memory that the kernel does not see: it cannot say when the QP is accepted.
constexpr uint64_t kUnknown = 2;

/// The page that the QP counts into: the kernel's, or memory of our own if the kernel has none for it. nullptr when it
/// cannot be mapped.
usiw_qp_stats* map_stats(int cmd_fd, const usiw_create_qp_resp& resp) {
  const bool shown = resp.stats_size != 0;
  if (shown && resp.stats_size != USIW_COUNTERS_SIZE) return nullptr;
  const int flags = shown ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* page = mmap(nullptr, USIW_COUNTERS_SIZE, PROT_READ | PROT_WRITE, flags, shown ? cmd_fd : -1,
                    shown ? static_cast<off_t>(resp.stats_offset) : 0);
  if (page == MAP_FAILED) return nullptr;
  madvise(page, USIW_COUNTERS_SIZE, MADV_DONTFORK);
  auto* stats = static_cast<usiw_qp_stats*>(page);
  if (!shown) stats->accepted = kUnknown;
  return stats;
}

void unmap_stats(const VQp& qp) {
  if (qp.stats != nullptr) munmap(qp.stats, USIW_COUNTERS_SIZE);
}

/// Removes the completions of the QP @p qpn that have not been polled. Does nothing while a thread, which may be this
/// one, is between ibv_start_poll() and ibv_end_poll().
void forget_completions(VCq& cq, uint32_t qpn) {
  constexpr int kTries = 1000;
  for (int i = 0; !cq.turn.try_lock(); i++) {
    if (i == kTries) return;
    usleep(1);
  }
  if (!cq.shows) cq.runtime->hold()->cq_forget(cq.cq, qpn);
  cq.turn.unlock();
}

/// Where a parent domain wants the rings. 0 or ENOMEM.
int place_rings(VQp& qp, VPd* domain, QpAttr& attr) {
  const Engine::RingBytes bytes = Engine::ring_bytes(attr);
  int rc = qp.send_ring.allocate(domain, bytes.send, RingKind::kSend);
  if (rc == 0 && bytes.recv != 0) rc = qp.recv_ring.allocate(domain, bytes.recv, RingKind::kRecv);
  attr.send_ring = qp.send_ring.at();
  attr.recv_ring = qp.recv_ring.at();
  return rc;
}

void free_rings(VQp& qp) {
  qp.send_ring.free();
  qp.recv_ring.free();
}

}  // namespace

extern "C" ibv_qp* usiw_verb_create_qp(ibv_pd* ibpd, ibv_qp_init_attr* attr) {
  Context& context = Context::of(ibpd->context);
  Runtime& runtime = *context.runtime;
  int rc = runtime.dead() ? EINVAL : check_init(context, *attr);
  if (rc == 0) rc = runtime.bring_up();
  VQp* qp = rc == 0 ? new (std::nothrow) VQp{} : nullptr;
  if (qp == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  qp->context = &context;
  qp->runtime = &runtime;
  if (is_roce(context)) qp->refused = QpState::kRts;
  for (Pending* report :
       {&qp->connected, &qp->peer_closed, &qp->closed, &qp->failed, &qp->last_wqe, &qp->drained, &qp->sends_by})
    report->qp = qp;

  // Granted: what the rings will really hold (powers of two), at least one of each, so that
  // the engine's and the kernel's notions agree and ibv_query_qp() tells the truth.
  ibv_qp_init_attr granted = *attr;
  if (attr->srq != nullptr) granted.cap.max_recv_wr = 1;  // whatever it says
  granted.cap.max_send_wr = std::bit_ceil(std::max(1u, granted.cap.max_send_wr));
  granted.cap.max_recv_wr = std::bit_ceil(std::max(1u, granted.cap.max_recv_wr));
  granted.cap.max_send_sge = std::max(1u, granted.cap.max_send_sge);
  granted.cap.max_recv_sge = std::max(1u, granted.cap.max_recv_sge);
  granted.cap.max_inline_data = std::max(kInlineAtLeast, granted.cap.max_inline_data);
  if (attr->srq != nullptr) granted.cap.max_recv_wr = granted.cap.max_recv_sge = 0;  // there is no such queue
  const ibv_qp_cap cap = granted.cap;
  usiw_create_qp_resp resp{};
  rc = usiw_cmd_create_qp(ibpd, &qp->ibv, &granted, &resp);
  bool in_kernel = rc == 0;
  if (in_kernel) {
    qp->stats = map_stats(context.cmd_fd, resp);
    if (qp->stats == nullptr) rc = ENOMEM;
  }
  QpAttr of_engine{.qpn = qp->ibv.qp_num,
                   .pd = from(ibpd)->number,
                   .send_cq = from(attr->send_cq)->cq,
                   .recv_cq = from(attr->recv_cq)->cq,
                   .max_send_wr = cap.max_send_wr,
                   .max_recv_wr = cap.max_recv_wr,
                   .max_send_sge = cap.max_send_sge,
                   .max_recv_sge = cap.max_recv_sge,
                   .max_inline = cap.max_inline_data,
                   .sq_sig_all = attr->sq_sig_all != 0,
                   .owner = qp,
                   .stats = qp->stats,
                   .srq = attr->srq != nullptr ? from(attr->srq)->srq : nullptr};
  if (rc == 0) rc = place_rings(*qp, from(ibpd), of_engine);
  if (rc == 0) {
    qp->qp = runtime.hold()->qp_create(of_engine);
    if (qp->qp == nullptr) rc = ENOMEM;
  }
  if (rc != 0) {
    if (in_kernel) usiw_cmd_destroy_qp(&qp->ibv);
    unmap_stats(*qp);
    free_rings(*qp);
    delete qp;
    errno = rc;
    return nullptr;
  }
  qp->cap = cap;
  qp->sq_sig_all = attr->sq_sig_all != 0;
  attr->cap = cap;
  qp->domain = from(ibpd);
  ++qp->domain->users;
  if (qp->domain->one_thread()) {
    qp->send_turn.never_contended();
    qp->recv_turn.never_contended();
  }
  runtime.add_qp(*qp);
  return &qp->ibv;
}

extern "C" int usiw_verb_modify_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  VQp* qp = from(ibqp);
  Runtime& runtime = *qp->runtime;
  if (runtime.dead()) return EINVAL;
  const bool moves = (mask & IBV_QP_STATE) != 0, resets = moves && attr->qp_state == IBV_QPS_RESET;
  uint32_t conn_id = 0;
  if (resets || (moves && attr->qp_state == IBV_QPS_ERR)) {
    auto engine = runtime.hold();
    engine->qp_acknowledge(qp->qp);  // ahead of the kernel's RESET
    // The kernel ends the connection and says so, at which queues are flushed: RESET empties them without completions.
    if (resets) conn_id = std::exchange(qp->conn_id, 0);
  }
  if (int rc = usiw_cmd_modify_qp(ibqp, attr, mask); rc != 0) {
    if (resets) {
      auto engine = runtime.hold();
      qp->conn_id = conn_id;
    }
    return rc;
  }
  qp->timers.keep(*attr, mask);
  if (qp->timers.are_set() && (moves ? attr->qp_state == IBV_QPS_RTS : qp->timers.concern(mask)))
    runtime.hold()->qp_limit(qp->qp, qp->timers.limits());
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) runtime.hold()->qp_permit(qp->qp, attr->qp_access_flags);
  if (!moves) return 0;
  // The kernel has allowed it. ERR and RESET are complete when this returns.
  switch (attr->qp_state) {
    case IBV_QPS_ERR:
      runtime.hold()->qp_abort(qp->qp);
      break;
    case IBV_QPS_RESET:
      if (qp->stats->accepted != kUnknown) __atomic_store_n(&qp->stats->accepted, 0, __ATOMIC_RELAXED);
      // A CONNECT record that was read before the kernel's RESET may be about to come in.
      qp->context->settle_events();
      {
        auto engine = runtime.hold();
        // Or it has come in meanwhile. Without this, the ABORT record of that connection would end the next one.
        // At the end of this block all reports go to the kernel, which ignores them in RESET. After a move to RTS it
        // would take a failure of the QP for one of the new connection.
        qp->conn_id = 0;
        engine->qp_reset(qp->qp);
      }
      // On the RoCE face the QP begins anew, whatever state it was in. Completions that its program has not polled
      // would look like those of the work that it posts next. Adapters remove them.
      if (is_roce(*qp->context)) {
        qp->refused = QpState::kRts;
        for (ibv_cq* cq : {ibqp->send_cq, ibqp->recv_cq}) forget_completions(*from(cq), ibqp->qp_num);
      }
      qp->timers = {};
      runtime.ports().release(*qp);
      break;
    case IBV_QPS_SQD:
      runtime.hold()->qp_pause(qp->qp, (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr->en_sqd_async_notify != 0);
      break;
    case IBV_QPS_RTS:
      qp->refused = QpState::kIdle;
      runtime.hold()->qp_resume(qp->qp);
      runtime.progress().posted();
      break;
    default:
      break;
  }
  // A state that changes nothing: SQD behind the end of the connection, INIT and RTR where it was faster.
  if (qp->qp->state() == QpState::kError) ibqp->state = IBV_QPS_ERR;
  return 0;
}

extern "C" int usiw_verb_query_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  VQp* qp = from(ibqp);
  Runtime& runtime = *qp->runtime;
  if (runtime.dead()) return EINVAL;
  if (int rc = usiw_cmd_query_qp(ibqp, attr, mask, init); rc != 0) return rc;
  // The engine knows of a failure before the kernel has been told.
  if (qp->qp->state() == QpState::kError) {
    attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
    ibqp->state = IBV_QPS_ERR;
  }
  attr->qp_access_flags = static_cast<int>(runtime.hold()->qp_access(qp->qp));
  if (attr->qp_state == IBV_QPS_SQD) attr->sq_draining = runtime.hold()->qp_draining(qp->qp);
  attr->cap = init->cap = qp->cap;
  init->sq_sig_all = qp->sq_sig_all;
  init->srq = ibqp->srq;
  return 0;
}

extern "C" int usiw_verb_destroy_qp(ibv_qp* ibqp) {
  VQp* qp = from(ibqp);
  Runtime& runtime = *qp->runtime;
  if (runtime.dead()) return EINVAL;
  runtime.remove_qp(*qp);
  if (int rc = usiw_cmd_destroy_qp(ibqp); rc != 0) {
    runtime.add_qp(*qp);  // in RESET, and may be destroyed again
    return rc;
  }
  runtime.hold()->qp_destroy(qp->qp);
  unmap_stats(*qp);
  free_rings(*qp);
  --qp->domain->users;
  delete qp;
  return 0;
}
