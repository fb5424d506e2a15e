// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ack_queue.h
/// The QPs of an engine that owe an acknowledgement: at the end of this run, or at a time.
///
/// Nearly all of those with a time are settled by a DATA before it comes. So they are not kept in order; what is known
/// is a time before which none is due, and they are looked through when it has come.
#ifndef USIW_ENGINE_ACK_QUEUE_H
#define USIW_ENGINE_ACK_QUEUE_H

#include <algorithm>
#include <cstdint>

#include "engine/qp_context.h"
#include "engine/timers.h"

namespace usiw {

class AckQueue {
 public:
  static bool owes(const QpContext& qp) { return qp.ack_hook.linked(); }

  void at_once(QpContext& qp) {
    if (!qp.ack.is_at_once()) qp.ack_hook.unlink();
    qp.ack.at_once();
    now_.push_back(qp.ack_hook);
  }
  /// At @p at, unless it is due earlier.
  void by(QpContext& qp, uint64_t at) {
    qp.ack.by(at, owes(qp));
    if (qp.ack.is_at_once()) return now_.push_back(qp.ack_hook);
    later_.push_back(qp.ack_hook);
    earliest_ = std::min(earliest_, qp.ack.due_ns());
  }
  void settle(QpContext& qp) {
    if (!owes(qp)) return;
    qp.ack_hook.unlink();
    if (later_.empty()) earliest_ = kNever;
  }

  /// run() may have something to do.
  bool due(uint64_t now) const { return earliest_ <= now || !now_.empty(); }
  /// None is due before that, ns; 0: one is at once.
  uint64_t next() const { return !now_.empty() ? 0 : later_.empty() ? kNever : earliest_; }

  /// @p send(QpContext&) for each that is due; it settles it, or leaves it for the next run.
  template <typename Send>
  void run(uint64_t now, Send&& send) {
    each(now_, send);
    if (now < earliest_) return;
    earliest_ = kNever;
    each(later_, [&](QpContext& qp) {
      if (qp.ack.is_due(now)) send(qp);
      if (owes(qp)) earliest_ = std::min(earliest_, qp.ack.due_ns());
    });
  }

 private:
  template <typename Do>
  static void each(QpList& list, Do&& act) {
    const ListHook* next;
    for (const ListHook* h = list.begin(); h->owner != nullptr; h = next) {
      next = h->next;
      act(*h->owner);
    }
  }

  QpList now_;
  QpList later_;
  uint64_t earliest_ = kNever;
};

}  // namespace usiw

#endif  // USIW_ENGINE_ACK_QUEUE_H
