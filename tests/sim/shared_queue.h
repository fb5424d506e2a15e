// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_queue.h
/// The shared receive queue of a host: buffers that the QPs of all its connections take from one queue, in no order
/// that anybody could foretell. The rules: each posted receive completes exactly once or is still in the queue at the
/// end, also those of QPs that die; the event of the limit comes when it must, and no more than once; QPs that wait for
/// a receive get one in the order in which they came.
#ifndef USIW_TESTS_SIM_SHARED_QUEUE_H
#define USIW_TESTS_SIM_SHARED_QUEUE_H

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "scenario.h"
#include "world.h"

namespace usiw::sim {

class SharedQueue {
 public:
  /// wr_ids with this bit are those of receives of an SRQ.
  static constexpr uint64_t kWrId = uint64_t{1} << 63;

  struct Buffer {
    std::vector<Piece> at;
    uint32_t times = 0;      ///< that it was posted
    bool posted = false;
    bool returned = false;   ///< a QP may have written to it before it gave it back
  };

  /// @p life: that of the process. @p stag: of its memory.
  SharedQueue(World& world, Engine& engine, int side, const SrqPlan& plan, uint32_t stag, LifeOf life);

  Srq* srq() const { return srq_; }
  const Block& block() const { return block_; }

  /// A completion was polled: its buffer, which is the program's until reuse(); nullptr: there is none.
  Buffer* completed(const Cqe& c);
  void reuse(Buffer& b);
  /// A QP has been destroyed without its end: what it had taken is in the queue again.
  void given_back();
  void on_limit();
  /// After each run of the engine. @p lives: whether this QP is there and receives.
  void check(const std::function<bool(const Qp*)>& lives);
  /// No QP is left: what has not completed is in the queue. Destroys it.
  void check_end();
  /// Damage: a receive vanishes.
  void lose_one();
  /// Damage: who has waited longest for a receive is the last to get one.
  void jump_queue();

 private:
  /// A QP that waits for a receive, since when.
  struct Waiting {
    const Qp* qp;
    uint64_t since;
    bool operator==(const Waiting&) const = default;
  };
  void refill();
  void arm();
  void check_turns(const std::function<bool(const Qp*)>& lives);
  void refill_soon();
  uint64_t wr_id(size_t i) const { return kWrId | uint64_t{buffers_[i].times} << 16 | i; }

  World& w_;
  Engine& engine_;
  const int side_;
  const SrqPlan& plan_;
  const LifeOf life_;
  Block block_;
  Srq* srq_;
  std::vector<Buffer> buffers_;
  size_t posted_ = 0;    ///< and no completion of them was polled
  uint32_t limit_ = 0;   ///< that it is armed with; 0: not
  bool refilling_ = false;
  std::vector<Waiting> waiting_;  ///< behind the run before, the next one first
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_SHARED_QUEUE_H
