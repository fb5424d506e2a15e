// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory that is charged to another memory cgroup than that of the context that allocates it.
 *
 * The kernel charges memory to the memory cgroup of the current process. REQs of peers arrive in
 * softirq and become connections in a worker. Neither belongs to a process, so the kernel would
 * charge nobody. Therefore a listener and a port remember the cgroup of the process that made them,
 * and pay for the memory that peers occupy. The port pays for datagrams that wait for its worker.
 * The listener pays for REQs that wait for it, and for connections that are not accepted yet.
 *
 * A cgroup to which the module has a reference may be removed. The kernel then charges its parent.
 */
#include <linux/memcontrol.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "usiw_charge.h"

/*
 * Allocates like kmalloc(), and charges @memcg; NULL: nobody. The kernel does not refuse an atomic
 * allocation because of the cgroup's limit.
 */
void *usiw_charge_kmalloc(struct mem_cgroup *memcg, size_t size, gfp_t flags)
{
	struct mem_cgroup *before;
	void *p;

	if (!memcg)
		return kmalloc(size, flags);
	before = set_active_memcg(memcg);
	p = kmalloc(size, flags | __GFP_ACCOUNT);
	set_active_memcg(before);
	return p;
}
