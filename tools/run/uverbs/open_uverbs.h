// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file open_uverbs.h
/// This header is apart, because the interposed functions need no types of verbs.
#ifndef USIW_RUN_OPEN_UVERBS_H
#define USIW_RUN_OPEN_UVERBS_H

namespace usiw::run {

/// Opens /dev/infiniband/uverbs0. Returns a descriptor or -errno.
int open_uverbs();

}  // namespace usiw::run

#endif  // USIW_RUN_OPEN_UVERBS_H
