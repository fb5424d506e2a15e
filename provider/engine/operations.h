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
  bool immediate = false;      ///< SendWqe::imm goes with it, in each header ...
  bool trailed = false;        ///< ... or in a message of its own behind the last segment
  bool invalidates = false;    ///< SendWqe::imm is the STag that its end invalidates at the peer
  bool local = false;          ///< of this end alone: it takes effect in its turn, and nothing is sent
  bool atomic = false;         ///< its WQE holds operands behind one SGE, into which kAtomicBytes are answered
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

/// A WRITE and an Immediate Data message, which is all that an empty one is.
inline constexpr Operation kWriteImm{.known = true,
                                     .completion = WcOpcode::kRdmaWrite,
                                     .rdmap = USIW_RDMAP_WRITE,
                                     .rdmap_solicited = USIW_RDMAP_WRITE,
                                     .tagged = true,
                                     .takes_receive = true,
                                     .immediate = true,
                                     .trailed = true};
/// A SEND whose header holds the immediate data where one with Invalidate has its STag.
inline constexpr Operation kSendImm{.known = true,
                                    .completion = WcOpcode::kSend,
                                    .rdmap = USIW_RDMAP_SEND_IMM,
                                    .rdmap_solicited = USIW_RDMAP_SEND_SE_IMM,
                                    .qn = USIW_DDP_QN_SEND,
                                    .takes_receive = true,
                                    .immediate = true};

inline constexpr Operation kFetchAdd{.known = true,
                                     .completion = WcOpcode::kFetchAdd,
                                     .rdmap = USIW_RDMAP_ATOMIC_REQ,
                                     .rdmap_solicited = USIW_RDMAP_ATOMIC_REQ,
                                     .qn = USIW_DDP_QN_READ_REQ,
                                     .answered = true,
                                     .atomic = true,
                                     .local_access = kAccessLocalWrite};
inline constexpr Operation kCompareSwap = [] {
  Operation op = kFetchAdd;
  op.completion = WcOpcode::kCompSwap;
  return op;
}();
inline constexpr Operation kSendInv{.known = true,
                                    .completion = WcOpcode::kSend,
                                    .rdmap = USIW_RDMAP_SEND_INV,
                                    .rdmap_solicited = USIW_RDMAP_SEND_SE_INV,
                                    .qn = USIW_DDP_QN_SEND,
                                    .takes_receive = true,
                                    .invalidates = true};
inline constexpr Operation kLocalInv{.known = true, .completion = WcOpcode::kLocalInv, .local = true};
inline constexpr Operation kBindMw{.known = true, .completion = WcOpcode::kBindMw, .local = true};

/// By WrOpcode.
inline constexpr std::array<Operation, 16> kTable = [] {
  std::array<Operation, 16> table{};
  table[static_cast<size_t>(WrOpcode::kRdmaWrite)] = kWrite;
  table[static_cast<size_t>(WrOpcode::kRdmaWriteImm)] = kWriteImm;
  table[static_cast<size_t>(WrOpcode::kSend)] = kSend;
  table[static_cast<size_t>(WrOpcode::kSendImm)] = kSendImm;
  table[static_cast<size_t>(WrOpcode::kRdmaRead)] = kRead;
  table[static_cast<size_t>(WrOpcode::kCompareSwap)] = kCompareSwap;
  table[static_cast<size_t>(WrOpcode::kFetchAdd)] = kFetchAdd;
  table[static_cast<size_t>(WrOpcode::kSendInv)] = kSendInv;
  table[static_cast<size_t>(WrOpcode::kLocalInv)] = kLocalInv;
  table[static_cast<size_t>(WrOpcode::kBindMw)] = kBindMw;
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
constexpr bool is_trailed(WrOpcode opcode) { return operations::is<&Operation::trailed>(opcode); }
constexpr bool is_local(WrOpcode opcode) { return operations::is<&Operation::local>(opcode); }
constexpr bool is_atomic(WrOpcode opcode) { return operations::is<&Operation::atomic>(opcode); }

/// The whole row.
constexpr const Operation& operation(WrOpcode opcode) { return operations::kTable[static_cast<size_t>(opcode)]; }

inline constexpr uint32_t kAtomicBytes = 8;

// ---- The messages of queue 0, by their RDMAP opcode ----

namespace messages {
constexpr uint32_t bit(unsigned rdmap) { return uint32_t{1} << rdmap; }
/// With bytes for a receive work request.
inline constexpr uint32_t kSends = bit(USIW_RDMAP_SEND) | bit(USIW_RDMAP_SEND_SE) | bit(USIW_RDMAP_SEND_IMM) |
                                   bit(USIW_RDMAP_SEND_SE_IMM) | bit(USIW_RDMAP_SEND_INV) |
                                   bit(USIW_RDMAP_SEND_SE_INV);
/// Without: they say that the WRITE before them is complete.
inline constexpr uint32_t kImmediates = bit(USIW_RDMAP_IMM) | bit(USIW_RDMAP_IMM_SE);
inline constexpr uint32_t kSolicited = bit(USIW_RDMAP_SEND_SE) | bit(USIW_RDMAP_SEND_SE_IMM) |
                                       bit(USIW_RDMAP_SEND_SE_INV) | bit(USIW_RDMAP_IMM_SE);
inline constexpr uint32_t kWithImm = bit(USIW_RDMAP_SEND_IMM) | bit(USIW_RDMAP_SEND_SE_IMM) | kImmediates;
inline constexpr uint32_t kWithInv = bit(USIW_RDMAP_SEND_INV) | bit(USIW_RDMAP_SEND_SE_INV);
}  // namespace messages

constexpr bool is_send(uint8_t rdmap) { return (messages::kSends >> rdmap & 1) != 0; }
constexpr bool is_immediate(uint8_t rdmap) { return (messages::kImmediates >> rdmap & 1) != 0; }
constexpr bool is_solicited(uint8_t rdmap) { return (messages::kSolicited >> rdmap & 1) != 0; }
constexpr bool invalidates(uint8_t rdmap) { return (messages::kWithInv >> rdmap & 1) != 0; }
/// WcFlags of the completion of the receive work request.
constexpr uint8_t wc_flags_of(uint8_t rdmap) {
  if (((messages::kWithImm | messages::kWithInv) >> rdmap & 1) == 0) return 0;
  return invalidates(rdmap) ? uint8_t{kWcWithInv} : uint8_t{kWcWithImm};
}

}  // namespace usiw

#endif  // USIW_ENGINE_OPERATIONS_H
