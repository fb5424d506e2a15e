// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mapped.h
/// Whether a range of this process's memory can be registered. It may have no gap, it must have the rights that are
/// asked for, and no page may be past the end of a file, where an access by the engine would raise SIGBUS. The kernel
/// sees that in its own tables (kmod/usiw_mr.c), but a process has to ask. The cost of a check depends on the range,
/// not on the memory that the process has mapped:
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

enum class MappedBy { kQuery, kPopulate, kRead };

inline constexpr uint64_t kPopulateBytes = 1 << 20;

/// The cost of a check.
struct MappedCost {
  uint64_t queries = 0;          ///< mappings that were asked for one by one
  uint64_t bytes_populated = 0;  ///< most bytes that were touched
  uint64_t lines = 0;            ///< lines of the list of all mappings that were read
};

/// Returns 0 if [start, start + length) is mapped, readable and, with @p write, writable, and each of its pages has
/// memory. Returns -EFAULT if not, or -ENOMEM if no memory is left for a page. @p from is the first way to try. If this
/// kernel does not have that way, the next one decides. The call may sleep until a page of a file has been read.
int check_mapped(uint64_t start, uint64_t length, bool write, MappedBy from = MappedBy::kQuery,
                 MappedCost* cost = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_MAPPED_H
