/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What differs between the kernels that usiw builds against (6.1 and 6.12).
 */
#ifndef USIW_COMPAT_H
#define USIW_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/version.h>

/* create_cq got the whole attribute bundle in 6.11, in place of the driver's part of it. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#include <rdma/uverbs_ioctl.h>
#define usiw_create_cq_arg uverbs_attr_bundle

static inline struct ib_udata *usiw_create_cq_udata(struct usiw_create_cq_arg *arg)
{
	return arg ? &arg->driver_udata : NULL;
}
#else
#define usiw_create_cq_arg ib_udata

static inline struct ib_udata *usiw_create_cq_udata(struct usiw_create_cq_arg *arg)
{
	return arg;
}
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

/* The inodes behind anon_inode_getfile() look like regular files of 0 bytes since 6.16. */
#ifdef IS_ANON_FILE
#define usiw_anon_inode(inode)	IS_ANON_FILE(inode)
#else
#define usiw_anon_inode(inode)	false
#endif

/* encap_err_rcv of a UDP tunnel got all that UDP knows in 6.3. */
#define USIW_ENCAP_ERR_KNOWS_ALL	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0))

/* rdma_cm finds an iWARP device by its netdev since 6.4, by the netdev's MAC before. */
#define USIW_RDMA_CM_NEEDS_MAC	(LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0))

#endif /* USIW_COMPAT_H */
