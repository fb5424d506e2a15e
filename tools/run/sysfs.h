// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sysfs.h
/// Where programs look for RDMA devices: a small tree in a private directory plays
/// /sys/class/infiniband*, and /dev/infiniband/* are files of this library.
#ifndef USIW_RUN_SYSFS_H
#define USIW_RUN_SYSFS_H

#include <sys/types.h>

#include <string>

namespace usiw::run {

enum class Node { kOther, kUverbs, kRdmaCm, kAbsent };

/// Which device node of /dev/infiniband @p path names; kOther for a path elsewhere.
Node node_of(const char* path);
dev_t uverbs_device();
dev_t rdma_cm_device();
int open_uverbs();   ///< a descriptor or -errno
int open_rdma_cm();  ///< a descriptor or -errno

/// True if @p path is in the parts of /sys that this library plays.
bool is_played(const char* path);
/// The same place in the played tree, which is made at the first call.
std::string played(const char* path);

}  // namespace usiw::run

#endif  // USIW_RUN_SYSFS_H
