// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file operations.h
/// The operations of send work requests: a row for each says all that depends on the opcode.
#ifndef USIW_ENGINE_OPERATIONS_H
#define USIW_ENGINE_OPERATIONS_H

#include <array>
#include <cstdint>

#include "engine/types.h"
#include "uapi/usiw_wire.h"

namespace usiw {

struct Operation {
  bool known = false;
  WcOpcode completion = WcOpcode::kSend;
  uint8_t rdmap = 0;            ///< opcode of its segments (RFC 5040, 4.3) ...
  uint8_t rdmap_solicited = 0;  ///< ... with kWrSolicited
  bool tagged = false;          ///< its segments name memory of the peer; else they go to a queue
  uint8_t qn = 0;               ///< untagged: which one
  /// Its one segment is a request, without payload. The data comes as the answer, with which it completes; at most
  /// ORD are outstanding, and a fence waits for them.
  bool answered = false;
  bool takes_receive = false;  ///< it completes a receive work request of the peer
  uint32_t local_access = 0;   ///< rights that it needs on the memory of its SGEs
};

namespace operations {

inline constexpr Operation kWrite{.known = true,
                                  .completion = WcOpcode::kRdmaWrite,
                                  .rdmap = USIW_RDMAP_WRITE,
                                  .rdmap_solicited = USIW_RDMAP_WRITE,
                                  .tagged = true};
inline constexpr Operation kSend{.known = true,
                                 .completion = WcOpcode::kSend,
                                 .rdmap = USIW_RDMAP_SEND,
                                 .rdmap_solicited = USIW_RDMAP_SEND_SE,
                                 .qn = USIW_DDP_QN_SEND,
                                 .takes_receive = true};
inline constexpr Operation kRead{.known = true,
                                 .completion = WcOpcode::kRdmaRead,
                                 .rdmap = USIW_RDMAP_READ_REQ,
                                 .rdmap_solicited = USIW_RDMAP_READ_REQ,
                                 .qn = USIW_DDP_QN_READ_REQ,
                                 .answered = true,
                                 .local_access = kAccessLocalWrite};

/// By WrOpcode.
inline constexpr std::array<Operation, 5> kTable = [] {
  std::array<Operation, 5> table{};
  table[static_cast<size_t>(WrOpcode::kRdmaWrite)] = kWrite;
  table[static_cast<size_t>(WrOpcode::kSend)] = kSend;
  table[static_cast<size_t>(WrOpcode::kRdmaRead)] = kRead;
  return table;
}();

/// One bit for each opcode with that property: what the data path asks of each datagram.
constexpr uint32_t those(bool Operation::*property) {
  uint32_t bits = 0;
  for (size_t i = 0; i < kTable.size(); ++i) bits |= uint32_t{kTable[i].*property} << i;
  return bits;
}
template <bool Operation::*kProperty>
constexpr bool is(WrOpcode opcode) {
  return (those(kProperty) >> static_cast<unsigned>(opcode) & 1) != 0;
}

}  // namespace operations

/// @p opcode may be any number. Of the rest it is known.
constexpr bool is_known(WrOpcode opcode) {
  return static_cast<size_t>(opcode) < operations::kTable.size() && operations::is<&Operation::known>(opcode);
}
constexpr bool is_tagged(WrOpcode opcode) { return operations::is<&Operation::tagged>(opcode); }
constexpr bool is_answered(WrOpcode opcode) { return operations::is<&Operation::answered>(opcode); }
constexpr bool takes_receive(WrOpcode opcode) { return operations::is<&Operation::takes_receive>(opcode); }

/// The whole row.
constexpr const Operation& operation(WrOpcode opcode) { return operations::kTable[static_cast<size_t>(opcode)]; }

}  // namespace usiw

#endif  // USIW_ENGINE_OPERATIONS_H
