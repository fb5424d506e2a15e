// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file program_memory.h
/// Access to memory whose address came from the program. A wrong address gets -EFAULT, as from a kernel, and does not
/// crash the process.
#ifndef USIW_RUN_PROGRAM_MEMORY_H
#define USIW_RUN_PROGRAM_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace usiw::run {

/// Copies @p len bytes to or from the program's memory at @p at. Returns 0 or -EFAULT.
int copy_to_program(uint64_t at, const void* from, size_t len);
int copy_from_program(void* to, uint64_t at, size_t len);

}  // namespace usiw::run

#endif  // USIW_RUN_PROGRAM_MEMORY_H
