// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file allowance.h
/// The number of work requests that the producer of a queue may post.
///
/// A work request that completes with a CQE counts against the depth of its queue until the program has polled the CQE.
/// If it counted only until its completion, a program that posts until ENOMEM and then polls would overrun its CQ. An
/// unsignalled work request that succeeds has no CQE and counts until its completion.
///
/// Three parties count, each in memory that it alone writes, so that none of them needs a lock or a locked operation:
///
///   producer   the work requests that it has posted
///   engine     those that have ended without a CQE (silent)
///   consumer   the CQEs of the queue that it has polled
///
/// posted - silent - polled work requests count against the depth. The producer computes this only when it has used up
/// what the last result allowed.
///
/// The slot of a CQE holds the address of its queue's counter. CQEs may stay in a CQ after their QP has been destroyed,
/// so the counter is not part of the QP: it is used again once all CQEs that name it have been polled, or their CQ has
/// been destroyed.
#ifndef USIW_ENGINE_ALLOWANCE_H
#define USIW_ENGINE_ALLOWANCE_H

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace usiw {

/// [consumer, one at a time per counter] One more CQE has been polled.
inline void count_polled(std::atomic<uint32_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

/// Counters of polled CQEs, by number. An address stays valid for the life of the table.
class PolledTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// The engine's counter of the CQEs that it has pushed for a queue, beside the consumer's of those that were polled.
  struct Pushed {
    uint32_t number = kNone;
    uint32_t count = 0;
  };
  /// Counters of one CQ that no queue uses. Those of a cache line belong to one CQ at first, so that the consumers of
  /// two CQs do not write to the same line.
  struct Unused {
    uint32_t free = kNone;
    uint32_t unpolled = kNone;  ///< some of their CQEs have not been polled; in the order of give_back()
    uint32_t last = kNone;      ///< of these
  };

  std::atomic<uint32_t>& at(uint32_t number) const { return chunks_[number / kChunk]->polled[number % kChunk]; }

  /// Gives a queue whose CQEs go to one CQ a counter. false: out of memory.
  bool take(Unused& of, Pushed& out) {
    // Two per call, and the oldest first, because a CQ is polled in order: the list is no longer than CQ and QPs allow.
    for (unsigned n = 0; n < 2 && of.unpolled != kNone && is_polled(of.unpolled); ++n) move(of.unpolled, of.free);
    if (of.free == kNone && free_ != kNone) move(free_, of.free);
    if (of.free == kNone && !add_line(of.free)) return false;
    out.number = of.free;
    out.count = at(of.free).load(std::memory_order_relaxed);
    of.free = record(of.free).next;
    return true;
  }
  /// The queue does not push any more.
  void give_back(Unused& to, Pushed& pushed) {
    if (pushed.number == kNone) return;
    const uint32_t number = pushed.number;
    record(number) = {.pushed = pushed.count, .next = kNone};
    pushed = {};
    if (is_polled(number)) {
      record(number).next = to.free;
      to.free = number;
    } else {
      (to.unpolled == kNone ? to.unpolled : record(to.last).next) = number;
      to.last = number;
    }
  }
  /// The same of one whose CQ is gone.
  void give_back(Pushed& pushed) {
    record(pushed.number).next = free_;
    free_ = pushed.number;
    pushed = {};
  }
  /// The CQ is being destroyed, and all its CQEs count as polled. The engine's own counts say how many
  /// there are. The ring does not, because the program can write to it.
  void give_back_all(Unused& of) {
    while (of.unpolled != kNone) {
      at(of.unpolled).store(record(of.unpolled).pushed, std::memory_order_relaxed);
      move(of.unpolled, free_);
    }
    while (of.free != kNone) move(of.free, free_);
  }

 private:
  static constexpr uint32_t kLine = 16, kChunk = 4096, kChunks = 512;
  struct Record {
    uint32_t pushed;  ///< of one that is not used: how many CQEs there were
    uint32_t next;    ///< in the list of those that are not used
  };
  struct Chunk {
    alignas(64) std::array<std::atomic<uint32_t>, kChunk> polled{};
    std::array<Record, kChunk> records;
  };

  Record& record(uint32_t number) const { return chunks_[number / kChunk]->records[number % kChunk]; }
  bool is_polled(uint32_t number) const {
    return at(number).load(std::memory_order_relaxed) == record(number).pushed;
  }
  void move(uint32_t& from, uint32_t& to) const {
    const uint32_t number = from;
    from = record(number).next;
    record(number).next = to;
    to = number;
  }
  bool add_line(uint32_t& list) {
    if (used_ / kChunk == kChunks) return false;
    auto& chunk = chunks_[used_ / kChunk];
    if (!chunk) chunk.reset(new (std::nothrow) Chunk);
    if (!chunk) return false;
    for (uint32_t n = kLine; n-- != 0;) {
      record(used_ + n).next = list;
      list = used_ + n;
    }
    used_ += kLine;
    return true;
  }

  std::array<std::unique_ptr<Chunk>, kChunks> chunks_;
  uint32_t used_ = 0;      ///< numbers below it have been given to a CQ
  uint32_t free_ = kNone;  ///< of CQs that are gone
};

/// The producer's side.
class Allowance {
 public:
  /// A counter of CQEs of the queue. A queue has one for each CQ to which its CQEs go.
  struct Source {
    const std::atomic<uint32_t>* polled = nullptr;
    uint32_t base = 0;  ///< CQEs that were pushed before the queue started
    std::atomic<const Source*> next{nullptr};
  };

  /// As many work requests as @p depth count at most; none has been posted. @p silent: the engine's counter.
  void start(uint32_t depth, const std::atomic<uint32_t>& silent, const Source& source) {
    first_.store(&source, std::memory_order_relaxed);
    start(depth, silent);
  }
  /// The same of a queue whose sources come later.
  void start(uint32_t depth, const std::atomic<uint32_t>& silent) {
    depth_ = depth;
    silent_ = &silent;
    limit_ = 0;
  }
  /// The queue, in which @p posted have been posted so far, has another depth.
  void resize(uint32_t depth, uint32_t posted) {
    depth_ = depth;
    limit_ = posted;
  }
  /// [engine] @p source lives as long as the queue.
  void add(Source& source) {
    source.next.store(first_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    first_.store(&source, std::memory_order_release);
  }

  /// [producer] True if one more work request may follow @p posted that were posted and @p prepared that were written
  /// only. Then its slot is free, too, since work requests end in the order of the ring.
  bool covers(uint32_t posted, uint32_t prepared = 0) {
    return limit_ - posted > prepared || renewed_covers(posted, prepared);
  }

 private:
  [[gnu::noinline]] bool renewed_covers(uint32_t posted, uint32_t prepared) {
    const uint32_t count = posted - ended();
    limit_ = posted + (count < depth_ ? depth_ - count : 0);
    return limit_ - posted > prepared;
  }
  /// Work requests that do not count any more.
  uint32_t ended() const {
    uint32_t n = silent_->load(std::memory_order_acquire);
    for (const Source* s = first_.load(std::memory_order_acquire); s != nullptr;
         s = s->next.load(std::memory_order_relaxed))
      n += s->polled->load(std::memory_order_acquire) - s->base;
    return n;
  }

  uint32_t limit_ = 0;  ///< may be posted in all, as of the last computation; never less than have been posted
  uint32_t depth_ = 0;
  const std::atomic<uint32_t>* silent_ = nullptr;
  std::atomic<const Source*> first_{nullptr};
};

/// The engine's side: work requests of a queue, or those of an SRQ, whose CQEs go to one CQ.
struct Completions {
  PolledTable::Pushed pushed;
  std::atomic<uint32_t>* polled = nullptr;
  Allowance::Source source;
  std::atomic<uint32_t>* silent = nullptr;  ///< the queue's counter

  /// false: out of memory.
  bool open(PolledTable& table, PolledTable::Unused& of, std::atomic<uint32_t>& silent_of_queue) {
    if (!table.take(of, pushed)) return false;
    source.polled = polled = &table.at(pushed.number);
    source.base = pushed.count;
    silent = &silent_of_queue;
    return true;
  }
  /// The queue is empty, and counts from here on.
  void start_anew() {
    source.base = pushed.count;
    silent->store(0, std::memory_order_relaxed);
  }
  /// Their CQ is being destroyed: all count as polled.
  void count_all_as_polled() { polled->store(pushed.count, std::memory_order_release); }
  /// A work request has ended, and no CQE tells of it.
  void end_silently() { silent->store(silent->load(std::memory_order_relaxed) + 1, std::memory_order_release); }
};

}  // namespace usiw

#endif  // USIW_ENGINE_ALLOWANCE_H
