// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_queue.h
/// The shared receive queue of a host. The QPs of all its connections take buffers from one queue, in an unpredictable
/// order. The rules:
/// - Each posted receive completes exactly once or is in the queue at the end, even if its QP was destroyed.
/// - The event of the limit comes when the limit is reached, and once for each arming.
/// - QPs that wait for a receive get one in the order in which they began to wait.
#ifndef USIW_TESTS_SIM_SHARED_QUEUE_H
#define USIW_TESTS_SIM_SHARED_QUEUE_H

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "scenario.h"
#include "world.h"

namespace usiw::sim {

class SharedQueue : Reporter {
 public:
  /// The wr_id of each receive of an SRQ has this bit.
  static constexpr uint64_t kWrId = uint64_t{1} << 63;

  struct Buffer {
    std::vector<Piece> at;
    uint32_t times = 0;  ///< how often it was posted
    bool posted = false;
    bool returned = false;  ///< a QP that was destroyed may have written to it
  };

  /// @p life: the life of the process. @p stag: for the memory of the buffers.
  SharedQueue(World& world, Engine& engine, int side, const SrqPlan& plan, uint32_t stag, LifeOf life);

  Srq* srq() const { return srq_; }
  const Block& block() const { return block_; }

  /// Returns the buffer of a polled completion, which belongs to the program until reuse(). Returns nullptr if the
  /// completion has no buffer.
  Buffer* completed(const Cqe& c);
  void reuse(Buffer& b);
  /// Notes that a QP was destroyed before its end: the receives that it had taken are in the queue again.
  void given_back();
  void on_limit();
  /// Checks the rules after each run of the engine. @p lives: returns whether a QP exists and receives.
  void check(const std::function<bool(const Qp*)>& lives);
  /// Checks, when no QP is left, that each receive has completed or is in the queue. Destroys the SRQ.
  void check_end();
  /// Does damage: a receive vanishes.
  void lose_one();
  /// Does damage: the QP that has waited longest for a receive becomes the last to get one.
  void jump_queue();

 private:
  /// A QP that waits for a receive, and the time since when it waits.
  struct Waiting {
    const Qp* qp;
    uint64_t since;
    bool operator==(const Waiting&) const = default;
  };
  /// Returns the buffer of a posted receive, which then counts as not posted. Returns nullptr if no posted receive has
  /// this @p id.
  Buffer* take(uint64_t id);
  void refill();
  void arm();
  void check_turns(const std::function<bool(const Qp*)>& lives);
  void refill_soon();
  uint64_t wr_id(size_t i) const { return kWrId | uint64_t{buffers_[i].times} << 16 | i; }

  Engine& engine_;
  const SrqPlan& plan_;
  const LifeOf life_;
  Block block_;
  Srq* srq_;
  std::vector<Buffer> buffers_;
  size_t posted_ = 0;   ///< posted receives whose completion was not polled yet
  uint32_t limit_ = 0;  ///< the limit with which it is armed; 0: not armed
  bool refilling_ = false;
  std::vector<Waiting> waiting_;  ///< after the last run, in the order in which they get receives
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_SHARED_QUEUE_H
