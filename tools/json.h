// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file json.h
/// Makes strings that other programs chose, such as names of processes and devices, safe for JSON and for terminals.
#ifndef USIW_TOOLS_JSON_H
#define USIW_TOOLS_JSON_H

#include <string>
#include <string_view>

namespace usiw::tools {

/// Returns the string as JSON, with quotation marks around it. Bytes that are not ASCII count as Latin-1, so the result
/// is always valid.
std::string json_string(std::string_view text);

/// Returns the string with '?' for each byte that is not printable ASCII.
std::string printable(std::string_view text);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_JSON_H
