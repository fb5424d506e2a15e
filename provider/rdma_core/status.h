/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef USIW_RDMA_CORE_STATUS_H
#define USIW_RDMA_CORE_STATUS_H

#include <errno.h>

/* The ibv_cmd_ functions answer an errno value, some old paths -1 with errno set. */
static inline int usiw_status(int ret)
{
	return ret < 0 ? errno : ret;
}

#endif /* USIW_RDMA_CORE_STATUS_H */
