// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file patience.h
/// How long a peer may say nothing before it counts as gone.
#ifndef USIW_RUNTIME_PATIENCE_H
#define USIW_RUNTIME_PATIENCE_H

#include <cstdint>
#include <string_view>

namespace usiw {

inline constexpr char kPatienceVariable[] = "USIW_PEER_TIMEOUT";  ///< seconds
inline constexpr unsigned kPatienceMin = 1, kPatienceMax = 3600;
/// A debugger, or a virtual machine that is moved, stops a process for half a minute now and then.
inline constexpr unsigned kPatienceDefault = 40;

/// Seconds from @p text; 0 if it is no whole number between the limits.
unsigned parse_patience(std::string_view text);

/// ns, from USIW_PEER_TIMEOUT; the default, and a line on stderr, if that is no such number.
uint64_t patience_ns();

}  // namespace usiw

#endif  // USIW_RUNTIME_PATIENCE_H
