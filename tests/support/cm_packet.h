// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_packet.h
/// Makes datagrams of the handshake from their fields, for tests of cm/.
#ifndef USIW_TESTS_SUPPORT_CM_PACKET_H
#define USIW_TESTS_SUPPORT_CM_PACKET_H

#include <algorithm>
#include <cstring>

#include "cm/usiw_cm.h"

/// Returns a connection for which usiw_cm_build() builds a datagram with the fields of @p pkt. Private data that is too
/// long is cut.
inline usiw_cm_conn sender_of(const usiw_cm_packet& pkt) {
  usiw_cm_conn c{};
  c.local_isn = pkt.psn;
  c.peer_isn = pkt.ack_psn;
  c.peer_known = 1;
  c.tx_opcode = pkt.opcode;
  c.tx_flags = pkt.flags;
  c.reject_reason = pkt.reason;
  c.features = pkt.features;
  c.ird = pkt.ird;
  c.ord = pkt.ord;
  c.mtu = pkt.mtu;
  c.window = pkt.window;
  c.pd_len = std::min<uint16_t>(pkt.pd_len, USIW_MAX_PRIVATE_DATA);
  if (pkt.pd != nullptr) std::memcpy(c.pd, pkt.pd, c.pd_len);
  return c;
}

#endif  // USIW_TESTS_SUPPORT_CM_PACKET_H
