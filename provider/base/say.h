// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file say.h
/// Lines for people on stderr: what is missing and what to do.
#ifndef USIW_BASE_SAY_H
#define USIW_BASE_SAY_H

#include <string>

namespace usiw {

/// Writes "usiw: <line>" to stderr; the same line only once per process. [any thread]
void say_once(const std::string& line);

}  // namespace usiw

#endif  // USIW_BASE_SAY_H
