// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file pcapng.h
/// A trace as a capture file: datagrams with the Ethernet, IP and UDP headers of their connection
/// built anew, cut off where the trace has cut them. What happened besides stands as comments
/// at the datagram before it (Wireshark: pkt_comment), or at the first one.
#ifndef USIW_TOOLS_PCAPNG_H
#define USIW_TOOLS_PCAPNG_H

#include <cstddef>
#include <vector>

#include "tools/trace_reader.h"

namespace usiw::tools {

/// One section of a pcapng file. UDP checksums are 0: there are not enough bytes to sum up.
std::vector<std::byte> to_pcapng(const Trace& trace);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_PCAPNG_H
