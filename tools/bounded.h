// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file bounded.h
/// Runs a function in a child process, with bounds on time and output. So if a part of `usiw report` hangs or crashes,
/// the report has a line about that, and continues with the next part.
#ifndef USIW_TOOLS_BOUNDED_H
#define USIW_TOOLS_BOUNDED_H

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace usiw::tools {

/// Limit of the child's output, bytes. Further output is discarded.
inline constexpr size_t kBoundedOutput = 256 << 10;

/// Runs @p body in a child process, whose exit status is the result of @p body. Returns the child's stdout and stderr.
/// A line in parentheses follows if the child could not be started, failed, printed nothing or too much, or did not
/// end within @p limit. A child that does not end, or prints too much, is killed with its process group.
std::string bounded(const std::function<int()>& body, std::chrono::milliseconds limit);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_BOUNDED_H
