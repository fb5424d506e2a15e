// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file nodes.h
/// The device nodes by which a program gets into this library.
#ifndef USIW_RUN_NODES_H
#define USIW_RUN_NODES_H

#include "sysfs.h"

namespace usiw::run {

int open_uverbs();   ///< a descriptor or -errno
int open_rdma_cm();  ///< a descriptor or -errno

inline int open_node(Node node) { return node == Node::kUverbs ? open_uverbs() : open_rdma_cm(); }

}  // namespace usiw::run

#endif  // USIW_RUN_NODES_H
