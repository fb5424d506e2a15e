/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Hides the differences between the kernels from 6.1 to 7.2, against which usiw builds.
 *
 * Where C can test for a declaration, such a test is better than one of LINUX_VERSION_CODE. Stable
 * series and distributions may have a change earlier than the version that introduced it.
 */
#ifndef USIW_COMPAT_H
#define USIW_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/version.h>
#include <net/flow.h>
#include <net/inet_ecn.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_verbs.h>

/* Since 6.11 create_cq gets the whole attribute bundle. Before, it got only the driver's data. */
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

/* Since 7.1 resize_cq is named resize_user_cq, and its number of entries is unsigned. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define usiw_op_resize_cq	resize_user_cq
typedef unsigned int usiw_resize_cqe;
#else
#define usiw_op_resize_cq	resize_cq
typedef int usiw_resize_cqe;
#endif

/*
 * Since 6.17 reg_user_mr has a parameter for a DMA handle. usiw makes no such objects, so it is
 * always NULL.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define USIW_DMAH_ARG		struct ib_dmah *dmah,
#else
#define USIW_DMAH_ARG
#endif

/* Sets flags of a mapping. Since 6.3 the kernel has a function for that. */
static inline void usiw_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

/*
 * True if @inode belongs to a file that anon_inode_getfile() made, and looks like that of a regular
 * file of 0 bytes, as such inodes do since 6.16.
 */
#ifdef IS_ANON_FILE
#define usiw_anon_inode(inode)	IS_ANON_FILE(inode)
#else
#define usiw_anon_inode(inode)	false
#endif

/*
 * Since 6.2 encap_err_rcv of a UDP tunnel gets the error, the port, the info and the payload of an
 * ICMP error. Before, it got only the offset of the UDP header.
 */
#define USIW_ENCAP_ERR_KNOWS_ALL	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0))

/* 1 if the kernel calls a UDP socket's own setsockopt for SOL_SOCKET, too, as it does since 6.8. */
#ifdef SOCK_CUSTOM_SOCKOPT
#define USIW_SOL_SOCKET_IS_ASKED	1
#else
#define USIW_SOL_SOCKET_IS_ASKED	0
#endif

/* Makes the kernel call the setsockopt of @sock for SOL_SOCKET, too, if it can. */
static inline void usiw_ask_sol_socket(struct socket *sock)
{
#ifdef SOCK_CUSTOM_SOCKOPT
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
#else
	(void)sock;
#endif
}

/*
 * Removes from @ops the operations that only some kernels have. Without them the kernel calls
 * sendmsg in place of sendpage, and ioctl in place of compat_ioctl.
 */
static inline void usiw_ops_clear(struct proto_ops *ops)
{
	(void)ops;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
	ops->sendpage = NULL;
#endif
#ifdef CONFIG_COMPAT
	ops->compat_ioctl = NULL;
#endif
}

/*
 * True if rdma_cm finds an iWARP device by the MAC of its netdev. Since 6.4 it uses the netdev
 * itself.
 */
#define USIW_RDMA_CM_NEEDS_MAC	(LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0))

/* Sets the TOS of @fl4. In 6.18 flowi4_dscp, with all six bits of a DSCP, replaced flowi4_tos. */
static inline void usiw_flowi4_set_tos(struct flowi4 *fl4, u8 tos)
{
#ifdef flowi4_dscp
	fl4->flowi4_dscp = inet_dsfield_to_dscp(tos);
#else
	fl4->flowi4_tos = tos & IPTOS_TOS_MASK & ~INET_ECN_MASK;
#endif
}

/*
 * Calls setup_udp_tunnel_sock(). It takes a struct sock since 7.1.5, and took a struct socket
 * before.
 */
#define usiw_setup_udp_tunnel_sock(_net, _sock, _cfg)						\
	setup_udp_tunnel_sock(_net,								\
			      _Generic(&setup_udp_tunnel_sock,					\
				       void (*)(struct net *, struct sock *,			\
						struct udp_tunnel_sock_cfg *) : (_sock)->sk,	\
				       void (*)(struct net *, struct socket *,			\
						struct udp_tunnel_sock_cfg *) : (_sock)),	\
			      _cfg)

#endif /* USIW_COMPAT_H */
