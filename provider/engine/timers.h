// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file timers.h
/// Deadlines of QPs: a binary heap of nodes that know their place, preallocated, so
/// arming and disarming never allocate and the next deadline is exact.
#ifndef USIW_ENGINE_TIMERS_H
#define USIW_ENGINE_TIMERS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace usiw {

inline constexpr uint64_t kNever = UINT64_MAX;

struct TimerNode {
  uint64_t deadline = kNever;        ///< ns; changed by TimerHeap only
  size_t heap_index = SIZE_MAX;      ///< SIZE_MAX: not armed
};

class TimerHeap {
 public:
  /// Room for @p n nodes; may throw std::bad_alloc.
  void reserve(size_t n) { heap_.reserve(n); }

  void arm(TimerNode& node, uint64_t deadline) {
    if (deadline == kNever) return disarm(node);
    const uint64_t before = node.deadline;
    node.deadline = deadline;
    if (node.heap_index == SIZE_MAX) {
      node.heap_index = heap_.size();
      heap_.push_back(&node);
      up(node.heap_index);
    } else if (deadline < before) {
      up(node.heap_index);
    } else {
      down(node.heap_index);
    }
  }

  void disarm(TimerNode& node) {
    const size_t i = node.heap_index;
    if (i == SIZE_MAX) return;
    TimerNode* last = heap_.back();
    heap_.pop_back();
    node.heap_index = SIZE_MAX;
    node.deadline = kNever;
    if (last == &node) return;
    place(i, last);
    up(i);
    down(last->heap_index);
  }

  uint64_t next() const { return heap_.empty() ? kNever : heap_[0]->deadline; }

  /// Takes out a node whose deadline is not after @p now, or nullptr.
  TimerNode* pop(uint64_t now) {
    if (next() > now) return nullptr;
    TimerNode* node = heap_[0];
    disarm(*node);
    return node;
  }

 private:
  void place(size_t i, TimerNode* node) {
    heap_[i] = node;
    node->heap_index = i;
  }
  void up(size_t i) {
    TimerNode* node = heap_[i];
    for (; i > 0; i = (i - 1) / 2) {
      TimerNode* parent = heap_[(i - 1) / 2];
      if (parent->deadline <= node->deadline) break;
      place(i, parent);
    }
    place(i, node);
  }
  void down(size_t i) {
    TimerNode* node = heap_[i];
    while (true) {
      size_t child = 2 * i + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1]->deadline < heap_[child]->deadline) ++child;
      if (node->deadline <= heap_[child]->deadline) break;
      place(i, heap_[child]);
      i = child;
    }
    place(i, node);
  }

  std::vector<TimerNode*> heap_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_TIMERS_H
