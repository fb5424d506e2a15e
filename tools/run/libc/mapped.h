// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mapped.h
/// Whether a range of this process's memory can be registered: no gap, the rights that are asked for, and no page past
/// the end of a file, where an access by the engine would raise SIGBUS. The kernel sees that in its own tables
/// (kmod/usiw_mr.c); a process has to ask. A check costs what the range costs, not what the process has mapped:
///
/// - kQuery: PROCMAP_QUERY (Linux 6.11), one ioctl for each mapping of the range.
/// - kPopulate, on older kernels: madvise() populates a range of up to kPopulateBytes, and fails where an access would.
///   Longer ranges are not populated, because programs register memory that they have not used yet.
/// - kRead, for what is left: the text of /proc/thread-self/maps, which lists all mappings of the process.
///
/// Neither kQuery nor kRead shows where a file ends. So of each mapping of a file the last page in the range is
/// populated: if that page has a file behind it, those before it have one, too.
#ifndef USIW_RUN_MAPPED_H
#define USIW_RUN_MAPPED_H

#include <cstdint>

namespace usiw::run {

enum class MappedBy { kQuery, kPopulate, kRead };

inline constexpr uint64_t kPopulateBytes = 1 << 20;

/// The cost of a check.
struct MappedCost {
  uint64_t queries = 0;          ///< mappings asked for, one by one
  uint64_t bytes_populated = 0;  ///< touched, at most
  uint64_t lines = 0;            ///< read of the list of all mappings
};

/// 0 if [start, start + length) is mapped, readable and, with @p write, writable, and has memory behind each page;
/// else -EFAULT, or -ENOMEM if there was no memory for a page. @p from is the first way to try; a way that this kernel
/// does not have leaves the check to the next one. May sleep until a page of a file has been read.
int check_mapped(uint64_t start, uint64_t length, bool write, MappedBy from = MappedBy::kQuery,
                 MappedCost* cost = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_MAPPED_H
