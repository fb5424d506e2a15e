// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq.h
/// Completion queue: a single-producer (the engine) ring of 64-byte slots with the
/// valid flag inside the slot. Consumers serialise among themselves (verbs/ does).
/// CONTRACT between engine and verbs: the names and signatures below.
#ifndef USIW_ENGINE_CQ_H
#define USIW_ENGINE_CQ_H

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/types.h"

namespace usiw {

class Cq {
 public:
  /// [any thread, one at a time] Takes up to out.size() completions; returns how many.
  size_t poll(std::span<Cqe> out);
  /// [any thread] Arms the CQ: the next completion (or, with @p solicited_only, the next
  /// solicited or failed one) calls EngineEvents::cq_ready once. Completions that came
  /// before arming do not count (verbs semantics: the caller polls again after arming).
  void arm(bool solicited_only);
  void* owner() const;
  uint32_t capacity() const;
  /// [any thread] true once the ring has overrun.
  bool dead() const;
};

}  // namespace usiw

#endif  // USIW_ENGINE_CQ_H
