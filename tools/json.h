// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file json.h
/// Strings that come from elsewhere (names of processes, devices), for JSON and for terminals.
#ifndef USIW_TOOLS_JSON_H
#define USIW_TOOLS_JSON_H

#include <string>
#include <string_view>

namespace usiw::tools {

/// With its quotation marks. Bytes that are not ASCII are taken for Latin-1: always valid JSON.
std::string json_string(std::string_view text);

/// What is not printable ASCII becomes '?'.
std::string printable(std::string_view text);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_JSON_H
