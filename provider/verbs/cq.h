// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq.h
/// What ordinary and extended completion queues have in common.
#ifndef USIW_VERBS_CQ_H
#define USIW_VERBS_CQ_H

#include "runtime/runtime.h"

namespace usiw {

/// A CQ as the program wants it.
struct CqWish {
  uint32_t cqe;
  ibv_comp_channel* channel;
  uint32_t comp_vector;
  CqOptions options = {};
  bool one_thread = false;  ///< only one thread will ever poll it
  VPd* domain = nullptr;    ///< a parent domain, or nullptr
};

/// nullptr, with errno set, when there is none.
VCq* create_cq(ibv_context* ctx, const CqWish& wish);

/// [cq.turn] Nothing was there: gives the turn up, and lets the engine run. True: something has come, and it is this
/// thread's turn again.
inline bool turn_of_news(VCq& cq) {
  const unsigned empty = cq.empty_polls++;
  cq.turn.unlock();
  cq.runtime->progress().polled_empty(empty);
  if (cq.cq->empty()) return false;
  cq.turn.lock();
  cq.empty_polls = 0;
  return true;
}

}  // namespace usiw

#endif  // USIW_VERBS_CQ_H
