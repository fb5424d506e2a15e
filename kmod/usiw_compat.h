/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The differences between the kernels that usiw builds against: 6.1, 6.12, and those up to 7.2.
 *
 * A test of a declaration is better than one of LINUX_VERSION_CODE where C has one, because a
 * change may reach stable series and distributions before the version that it was made for.
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

/* resize_cq became resize_user_cq in 7.1, and its number of entries became unsigned. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define usiw_op_resize_cq	resize_user_cq
typedef unsigned int usiw_resize_cqe;
#else
#define usiw_op_resize_cq	resize_cq
typedef int usiw_resize_cqe;
#endif

/* reg_user_mr may name a DMA handle since 6.17. usiw makes no such objects, so none comes. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define USIW_DMAH_ARG		struct ib_dmah *dmah,
#else
#define USIW_DMAH_ARG
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

/* Since 6.16 the inodes of anon_inode_getfile() look like regular files of 0 bytes. */
#ifdef IS_ANON_FILE
#define usiw_anon_inode(inode)	IS_ANON_FILE(inode)
#else
#define usiw_anon_inode(inode)	false
#endif

/* Since 6.3 encap_err_rcv of a UDP tunnel gets all parameters of an ICMP error. */
#define USIW_ENCAP_ERR_KNOWS_ALL	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0))

/* Since 6.8 the kernel also calls a UDP socket's own setsockopt for SOL_SOCKET. */
#ifdef SOCK_CUSTOM_SOCKOPT
#define USIW_SOL_SOCKET_IS_ASKED	1
#else
#define USIW_SOL_SOCKET_IS_ASKED	0
#endif

static inline void usiw_ask_sol_socket(struct socket *sock)
{
#ifdef SOCK_CUSTOM_SOCKOPT
	set_bit(SOCK_CUSTOM_SOCKOPT, &sock->flags);
#else
	(void)sock;
#endif
}

/*
 * Removes operations that some kernels lack. Programs reach the same functions by sendmsg and
 * ioctl.
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

/* rdma_cm finds an iWARP device by its netdev since 6.4, by the netdev's MAC before. */
#define USIW_RDMA_CM_NEEDS_MAC	(LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0))

/* flowi4_dscp, which holds all six bits of a DSCP, replaced flowi4_tos in 6.18. */
static inline void usiw_flowi4_set_tos(struct flowi4 *fl4, u8 tos)
{
#ifdef flowi4_dscp
	fl4->flowi4_dscp = inet_dsfield_to_dscp(tos);
#else
	fl4->flowi4_tos = tos & IPTOS_TOS_MASK & ~INET_ECN_MASK;
#endif
}

/* setup_udp_tunnel_sock() takes the struct sock since 7.1.5, took the struct socket before. */
#define usiw_setup_udp_tunnel_sock(_net, _sock, _cfg)						\
	setup_udp_tunnel_sock(_net,								\
			      _Generic(&setup_udp_tunnel_sock,					\
				       void (*)(struct net *, struct sock *,			\
						struct udp_tunnel_sock_cfg *) : (_sock)->sk,	\
				       void (*)(struct net *, struct socket *,			\
						struct udp_tunnel_sock_cfg *) : (_sock)),	\
			      _cfg)

#endif /* USIW_COMPAT_H */
