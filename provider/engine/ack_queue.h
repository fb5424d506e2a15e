// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ack_queue.h
/// The QPs of an engine that owe an acknowledgement: at the end of this run, or at a time.
///
/// Nearly all of those with a time are settled by a DATA before it comes, so that to enter and to leave has to cost
/// next to nothing. Each is in the list of its time, in ticks and modulo kSlots, where they have no order. What is known
/// is a time before which none is due; when it has come, the lists from there to now are looked through.
#ifndef USIW_ENGINE_ACK_QUEUE_H
#define USIW_ENGINE_ACK_QUEUE_H

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "engine/qp_context.h"
#include "engine/timers.h"

namespace usiw {

class AckQueue {
 public:
  static bool owes(const QpContext& qp) { return qp.ack_hook.linked(); }

  void at_once(QpContext& qp) {
    if (!owes(qp))
      ++size_;
    else if (!qp.ack.is_at_once())
      qp.ack_hook.unlink();
    qp.ack.at_once();
    now_.push_back(qp.ack_hook);
  }
  /// At @p at, unless it is due earlier.
  void by(QpContext& qp, uint64_t at) {
    if (!owes(qp))
      ++size_;
    else if (qp.ack.is_at_once() || at >= qp.ack.due_ns())
      return;
    else
      qp.ack_hook.unlink();
    qp.ack.by(at);
    if (qp.ack.is_at_once()) return now_.push_back(qp.ack_hook);
    enlist(qp);
    earliest_ = std::min(earliest_, at);
  }
  /// Not before @p at. It is owed.
  void put_off(QpContext& qp, uint64_t at) {
    qp.ack.put_off(at);
    if (qp.ack.is_at_once()) return;
    qp.ack_hook.unlink();
    enlist(qp);
  }
  void settle(QpContext& qp) {
    if (!owes(qp)) return;
    qp.ack_hook.unlink();
    if (--size_ == 0) earliest_ = kNever;
  }

  /// run() may have something to do.
  bool due(uint64_t now) const { return earliest_ <= now || !now_.empty(); }
  /// None is due before that, ns; 0: one is at once.
  uint64_t next() const { return now_.empty() ? earliest_ : 0; }

  /// @p send(QpContext&) for each that is due; it settles it, or leaves it for the next run.
  template <typename Send>
  void run(uint64_t now, Send&& send) {
    each(now_, send);
    if (now < earliest_) return;
    const uint64_t last = tick(now);
    uint64_t t = std::max(tick(earliest_), last - std::min(last, kSlots - 1));
    uint64_t earliest = kNever;
    for (; t <= last; ++t) {
      if ((used_ & bit(t)) == 0) continue;
      used_ &= ~bit(t);
      QpList had;
      had.take(slots_[t % kSlots]);
      while (QpContext* qp = had.front()) {
        qp->ack_hook.unlink();
        enlist(*qp);  // there it stays if the port has no room
        if (qp->ack.is_due(now)) send(*qp);
        if (owes(*qp) && !qp->ack.is_at_once()) earliest = std::min(earliest, qp->ack.due_ns());
      }
    }
    // Of all others none is due before its slot begins.
    for (uint64_t end = t + kSlots; used_ != 0 && tick(earliest) >= t; ++t) {
      t += static_cast<uint64_t>(std::countr_zero(std::rotr(used_, static_cast<int>(t % kSlots))));
      if (t >= end) break;
      each(slots_[t % kSlots], [&](const QpContext& qp) { earliest = std::min(earliest, qp.ack.due_ns()); });
      if (slots_[t % kSlots].empty()) used_ &= ~bit(t);
    }
    earliest_ = earliest;
  }

 private:
  static constexpr unsigned kTickShift = 13;  ///< 8 us: of 1,000 QPs some 15 are in one slot
  static constexpr uint64_t kSlots = 64;      ///< 0.5 ms: longer than most delays
  static uint64_t tick(uint64_t ns) { return ns >> kTickShift; }

  static uint64_t bit(uint64_t tick) { return uint64_t{1} << (tick % kSlots); }

  /// In the list of its time.
  void enlist(QpContext& qp) {
    const uint64_t at = tick(qp.ack.due_ns());
    used_ |= bit(at);
    slots_[at % kSlots].push_back(qp.ack_hook);
  }
  template <typename Do>
  static void each(QpList& list, Do&& act) {
    const ListHook* next;
    for (const ListHook* h = list.begin(); h->owner != nullptr; h = next) {
      next = h->next;
      act(*h->owner);
    }
  }

  QpList now_;
  uint64_t earliest_ = kNever;
  uint64_t used_ = 0;  ///< slots that may not be empty
  uint32_t size_ = 0;  ///< QPs, at once or later
  std::array<QpList, kSlots> slots_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_ACK_QUEUE_H
