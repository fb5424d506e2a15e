// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file post.h
/// What ibv_post_send() and the ibv_wr_* calls have in common.
#ifndef USIW_VERBS_POST_H
#define USIW_VERBS_POST_H

#include <span>

#include "runtime/runtime.h"

namespace usiw {

/// The same bytes under the engine's name (users of this are built without strict aliasing).
inline std::span<const Sge> sges_of(const ibv_sge* list, size_t count) {
  return {reinterpret_cast<const Sge*>(list), count};
}

/// Sends may be posted. The accepting end may post from rdma_accept() on, though its connection is installed later: what
/// it posts is sent once it is, and is flushed if it never is. On the RoCE face a connection may exist in RTR, and
/// sends are refused until RTS.
inline bool may_post(const VQp& qp) {
  const QpState refused = qp.refused.load(std::memory_order_relaxed);
  if (qp.qp->state() > refused) [[likely]]
    return true;
  return refused == QpState::kIdle && __atomic_load_n(&qp.stats->accepted, __ATOMIC_ACQUIRE) != 0;
}

/// One run of the engine for each post is most of what a stream of small messages costs. So a small one behind
/// kUnderWay others waits for the next run, which sends it together with those that come meanwhile: the program's next
/// look at an empty completion queue, an acknowledgement, or the kMostBehind-th post. Not where somebody sleeps until a
/// completion comes: he will not look.
inline constexpr uint32_t kUnderWay = 8, kMostBehind = 16;
inline constexpr uint64_t kSmallBytes = 4096;

/// [send_turn] The last post, which has been rung, can wait. @p small() says whether it is one small work request.
template <typename Small>
bool waits(VQp& qp, Small small) {
  if (qp.behind >= kMostBehind || !qp.qp->under_way(kUnderWay) || !small() || from(qp.ibv.send_cq)->cq->armed() ||
      from(qp.ibv.recv_cq)->cq->armed())
    return false;
  qp.runtime->progress().posted_behind();
  return qp.qp->under_way(kUnderWay);
}

/// [send_turn] Rings for what has been posted. True: the engine must run.
template <typename Small>
bool ring(VQp& qp, Small small) {
  qp.qp->ring_send();
  const bool run = !waits(qp, small);
  qp.behind = run ? 0 : qp.behind + 1;
  return run;
}

/// Fills @p out with a bind of @p mw, which is to have the name @p rkey. An errno value where the arguments alone are
/// wrong; what does not fit what they name is a completion with IBV_WC_MW_BIND_ERR.
int fill_bind(const ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& info, Qp::SendWr& out);

/// The next send work request is the one that USIW_FAULTS wants to fail. Counts it.
bool post_fault_is_due();

/// An SGE that makes a work request fail which would have had @p sge: STag index 0 is never given out.
inline Sge faulty(const Sge& sge) { return {sge.addr, sge.length != 0 ? sge.length : 1, 0}; }

}  // namespace usiw

#endif  // USIW_VERBS_POST_H
