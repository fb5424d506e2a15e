// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file bounded.h
/// Runs a function in a child process, with bounds on time and output. So a part of `usiw report` that hangs or crashes
/// costs one line of the report, and no more.
#ifndef USIW_TOOLS_BOUNDED_H
#define USIW_TOOLS_BOUNDED_H

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace usiw::tools {

/// Limit of the output, bytes. The rest is left out.
inline constexpr size_t kBoundedOutput = 256 << 10;

/// Runs @p body in a child process, whose exit status is what @p body returns. Returns the child's stdout and stderr,
/// followed by a line in parentheses if the child failed, printed nothing or too much, or did not end within @p limit.
/// In that case the child and its process group are killed.
std::string bounded(const std::function<int()>& body, std::chrono::milliseconds limit);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_BOUNDED_H
