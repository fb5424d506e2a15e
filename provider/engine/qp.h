// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.h
/// Queue pair as its users see it: the producer's side of the send and receive rings.
/// CONTRACT between engine and verbs: the names and signatures below.
#ifndef USIW_ENGINE_QP_H
#define USIW_ENGINE_QP_H

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/types.h"

namespace usiw {

class Qp {
 public:
  struct SendWr {
    uint64_t wr_id;
    WrOpcode opcode;
    uint8_t flags;         ///< WrFlags
    uint64_t remote_addr;  ///< WRITE, READ
    uint32_t rkey;
  };

  /// [any thread, one at a time per QP] Writes a send slot. With kWrInline the bytes that
  /// @p sges point to are copied now (lkeys ignored). 0; ENOMEM: queue full; EINVAL: too many
  /// SGEs, inline too long, sum of lengths over USIW_MAX_MSG_SIZE, unknown opcode, inline READ.
  /// The work is visible to the engine only after ring_send() (a burst needs one).
  int post_send(const SendWr& wr, std::span<const Sge> sges);
  void ring_send();  ///< [any thread]

  /// [any thread, one at a time per QP] ENOMEM: queue full; EINVAL: too many SGEs.
  int post_recv(uint64_t wr_id, std::span<const Sge> sges);
  void ring_recv();  ///< [any thread]

  /// [any thread] Work requests posted in kError are flushed by the engine; in kIdle
  /// post_recv is allowed and post_send is EINVAL at verbs level.
  QpState state() const;
  uint32_t qpn() const;
  void* owner() const;
};

}  // namespace usiw

#endif  // USIW_ENGINE_QP_H
