// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file pcapng.h
/// Writes a trace as a capture file. A trace has the first bytes of each datagram, without the headers of the network.
/// So the Ethernet, IP and UDP headers of the connection are built anew, and the datagrams end where the trace has cut
/// them. Other events become comments (Wireshark: pkt_comment) of the datagram before them, or of the first one.
#ifndef USIW_TOOLS_PCAPNG_H
#define USIW_TOOLS_PCAPNG_H

#include <cstddef>
#include <vector>

#include "tools/trace_reader.h"

namespace usiw::tools {

/// Returns one section of a pcapng file. UDP checksums are 0, because there are not enough bytes to sum up.
std::vector<std::byte> to_pcapng(const Trace& trace);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_PCAPNG_H
