// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_text.h
/// Converts the events of a trace to text, one line for each event.
#ifndef USIW_TOOLS_TRACE_TEXT_H
#define USIW_TOOLS_TRACE_TEXT_H

#include <string>

#include "tools/trace_reader.h"

namespace usiw::tools {

bool is_packet(const TraceEvent& event);

/// Returns the event without time and QP: "RTO: psn=0x00001234 again, 1 in a row, next in 0.800 ms".
std::string describe(const TraceEvent& event);

/// Returns the addresses and ports of a connection: "10.0.0.1:7174 > 10.0.0.2:40000".
std::string describe(const TraceFlow& flow);

/// Returns the local time of day, the QP and the event.
std::string line_of(const Trace& trace, const TraceEvent& event);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_TRACE_TEXT_H
