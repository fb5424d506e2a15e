// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file opcode_filter.h
/// A BPF filter that separates data from handshakes by the classes of usiw_cm_look(). UdpSocket uses the filter to
/// select which of its two sockets gets a datagram, or to drop data.
#ifndef USIW_RUN_OPCODE_FILTER_H
#define USIW_RUN_OPCODE_FILTER_H

#include <linux/filter.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "uapi/usiw_wire.h"

namespace usiw::run {

/// Returns a BPF program for packets whose UDP payload begins at byte @p at. The program returns @p data for datagrams
/// that usiw_cm_look() classifies as DATA or ENGINE, and @p handshake for all others. So @p handshake also covers the
/// datagrams that usiw_cm_look() drops.
constexpr std::array<sock_filter, 13> opcode_filter(uint32_t at, uint32_t data, uint32_t handshake) {
  return {{
      BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, at + static_cast<uint32_t>(sizeof(usiw_trp_hdr)), 0, 9),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, at + static_cast<uint32_t>(offsetof(usiw_trp_hdr, opflags))),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, USIW_TRP_OPCODE_SHIFT),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USIW_TRP_DATA, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USIW_TRP_SACK, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USIW_TRP_SHUTDOWN, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USIW_TRP_RESET, 0, 2),
      BPF_STMT(BPF_MISC | BPF_TXA, 0),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, USIW_TRP_F_STRAY, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, handshake),
      BPF_STMT(BPF_RET | BPF_K, data),
  }};
}

}  // namespace usiw::run

#endif  // USIW_RUN_OPCODE_FILTER_H
