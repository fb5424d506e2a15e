// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file device_nodes.h
/// The two device nodes that usiw-run emulates: their numbers, and the functions in uverbs/ and ucm/ that open them.
/// This header has no types of verbs or rdma_cm, because the files of the interposed functions include it and need
/// libc's plain declarations. The kernel gives its first verbs device, uverbs0, the numbers that uverbs0 has here. The
/// minor number of rdma_cm is an example, because the kernel assigns it dynamically. Programs see the numbers in /sys,
/// and by stat(2) of a path or a descriptor.
#ifndef USIW_RUN_DEVICE_NODES_H
#define USIW_RUN_DEVICE_NODES_H

#include <sys/sysmacros.h>
#include <sys/types.h>

namespace usiw::run {

inline constexpr unsigned kUverbsMajor = 231, kUverbsMinor = 192, kRdmaCmMajor = 10, kRdmaCmMinor = 122;

inline dev_t uverbs_device() { return makedev(kUverbsMajor, kUverbsMinor); }
inline dev_t rdma_cm_device() { return makedev(kRdmaCmMajor, kRdmaCmMinor); }

/// Each function opens a node, and returns a descriptor or -errno.
int open_uverbs();
int open_rdma_cm();

}  // namespace usiw::run

#endif  // USIW_RUN_DEVICE_NODES_H
