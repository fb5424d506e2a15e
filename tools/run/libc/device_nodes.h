// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file device_nodes.h
/// The two device nodes. uverbs/ and ucm/ open them, without types of verbs or rdma_cm in this header, because the
/// interposed functions need libc's plain declarations. The numbers are those of a host with the module, where uverbs0
/// is the first device. Programs see them in /sys, and by stat(2) of a path or a descriptor.
#ifndef USIW_RUN_DEVICE_NODES_H
#define USIW_RUN_DEVICE_NODES_H

#include <sys/sysmacros.h>
#include <sys/types.h>

namespace usiw::run {

inline constexpr unsigned kUverbsMajor = 231, kUverbsMinor = 192, kRdmaCmMajor = 10, kRdmaCmMinor = 122;

inline dev_t uverbs_device() { return makedev(kUverbsMajor, kUverbsMinor); }
inline dev_t rdma_cm_device() { return makedev(kRdmaCmMajor, kRdmaCmMinor); }

/// Each opens a node and returns a descriptor or -errno.
int open_uverbs();
int open_rdma_cm();

}  // namespace usiw::run

#endif  // USIW_RUN_DEVICE_NODES_H
