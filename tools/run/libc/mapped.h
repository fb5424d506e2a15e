// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mapped.h
/// A check whether a range of this process's memory can be registered. The range must have no gap, and must have the
/// access rights that are asked for. No page may be past the end of a file, where an access by the engine would raise
/// SIGBUS. The module reads these facts in the kernel's tables (kmod/usiw_mr.c), but a process has to ask the kernel.
/// There are three ways. The cost of the first two depends on the range, not on the memory that the process has mapped:
///
/// - kQuery: PROCMAP_QUERY (Linux 6.11), one ioctl for each mapping of the range.
/// - kPopulate, on older kernels: madvise() populates a range of up to kPopulateBytes, and fails where an access would
///   fail. Longer ranges are not populated, because programs register memory that they have not used yet.
/// - kRead, if the others cannot decide: the text of /proc/thread-self/maps, which lists all mappings of the process.
///
/// Neither kQuery nor kRead shows where a file ends. So the last page of the range in each mapping of a file is
/// populated. If that page is in the file, the pages before it are, too.
#ifndef USIW_RUN_MAPPED_H
#define USIW_RUN_MAPPED_H

#include <cstdint>

namespace usiw::run {

/// The ways to check a range.
enum class MappedBy { kQuery, kPopulate, kRead };

/// The longest range that kPopulate populates, bytes.
inline constexpr uint64_t kPopulateBytes = 1 << 20;

/// The cost of a check.
struct MappedCost {
  uint64_t queries = 0;          ///< calls of PROCMAP_QUERY
  uint64_t bytes_populated = 0;  ///< bytes that madvise() was asked to populate
  uint64_t lines = 0;            ///< lines read of /proc/thread-self/maps
};

/// Returns 0 if [start, start + length) is mapped, readable and, with @p write, writable, and if none of its pages is
/// past the end of a file. Returns -EFAULT if not, or -ENOMEM if no memory is left for a page. @p from is the first way
/// to try. If that way cannot decide, the next one does. If no way can, because /proc is missing, the range counts as
/// mapped. The call may sleep until a page of a file has been read.
int check_mapped(uint64_t start, uint64_t length, bool write, MappedBy from = MappedBy::kQuery,
                 MappedCost* cost = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_MAPPED_H
