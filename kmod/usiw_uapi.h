/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The objects and methods that the module adds to uverbs.
 */
#ifndef USIW_UAPI_H
#define USIW_UAPI_H

#include <rdma/uverbs_ioctl.h>

extern const struct uapi_definition usiw_uapi_defs[];

#endif /* USIW_UAPI_H */
