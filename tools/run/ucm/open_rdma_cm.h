// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file open_rdma_cm.h
/// This header is apart, because the interposed functions need no types of rdma_cm.
#ifndef USIW_RUN_OPEN_RDMA_CM_H
#define USIW_RUN_OPEN_RDMA_CM_H

namespace usiw::run {

/// Opens /dev/infiniband/rdma_cm. Returns a descriptor or -errno.
int open_rdma_cm();

}  // namespace usiw::run

#endif  // USIW_RUN_OPEN_RDMA_CM_H
