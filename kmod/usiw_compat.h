/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What differs between the kernels that usiw builds against (6.1 and 6.12).
 */
#ifndef USIW_COMPAT_H
#define USIW_COMPAT_H

#include <linux/mm.h>
#include <linux/version.h>

/*
 * create_cq got the whole attribute bundle in 6.11. USIW_CREATE_CQ_ARG declares
 * the argument, USIW_CREATE_CQ_UDATA takes the driver data out of it.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#include <rdma/uverbs_ioctl.h>
#define USIW_CREATE_CQ_ARG	struct uverbs_attr_bundle *attrs
#define USIW_CREATE_CQ_UDATA	(attrs ? &attrs->driver_udata : NULL)
#else
#define USIW_CREATE_CQ_ARG	struct ib_udata *driver_udata
#define USIW_CREATE_CQ_UDATA	driver_udata
#endif

/* The flags of a mapping are set by a function since 6.3. */
static inline void usiw_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

/* The ICMP error callback of a UDP tunnel got more arguments in 6.3; usiw needs two. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#define USIW_ENCAP_ERR_ARGS	struct sock *sk, struct sk_buff *skb, int err, __be16 port, \
				u32 info, u8 *payload
#else
#define USIW_ENCAP_ERR_ARGS	struct sock *sk, struct sk_buff *skb, unsigned int udp_offset
#endif

/* rdma_cm finds an iWARP device by its netdev since 6.4, by the netdev's MAC before. */
#define USIW_RDMA_CM_NEEDS_MAC	(LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0))

#endif /* USIW_COMPAT_H */
