// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file pcapng.h
/// Converts a trace to a capture file. A trace has the first bytes of each datagram and no headers of the network. So
/// the Ethernet, IP and UDP headers are made from the addresses of the connection, and each datagram ends where the
/// trace has cut it. Other events become comments (Wireshark: frame.comment) of the latest datagram of the same QP.
/// Events before the QP's first datagram become comments of that datagram. Events of a QP without a datagram are left
/// out, and so are comments that exceed the limit of a packet.
#ifndef USIW_TOOLS_PCAPNG_H
#define USIW_TOOLS_PCAPNG_H

#include <cstddef>
#include <vector>

#include "tools/trace_reader.h"

namespace usiw::tools {

/// Returns one section of a pcapng file. UDP checksums are 0, because the trace does not have all bytes of a datagram.
std::vector<std::byte> to_pcapng(const Trace& trace);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_PCAPNG_H
