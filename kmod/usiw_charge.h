/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory that is charged to another memory cgroup than that of the current process.
 */
#ifndef USIW_CHARGE_H
#define USIW_CHARGE_H

#include <linux/types.h>

struct mem_cgroup;

void *usiw_charge_kmalloc(struct mem_cgroup *memcg, size_t size, gfp_t flags);

#endif /* USIW_CHARGE_H */
