/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * usiw.ko: objects of the device and of its users. Connections are in usiw_conn.h.
 */
#ifndef USIW_H
#define USIW_H

#include <linux/idr.h>
#include <linux/if_ether.h>
#include <linux/kref.h>
#include <linux/netdevice.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "../cm/usiw_limits.h"
#include "../cm/usiw_qp_attrs.h"
#include "../uapi/usiw_abi.h"
#include "usiw_compat.h"
#include "usiw_device.h"
#include "usiw_event.h"
#include "usiw_follow.h"
#include "usiw_mr.h"
#include "usiw_process.h"
#include "usiw_qp_types.h"
#include "usiw_stats.h"
#include "usiw_unread.h"
#include "usiw_verbs.h"
#include "usiw_verbs_types.h"

struct usiw_conn;
struct usiw_process;
struct usiw_qp_proxy;

/* Port events wait this long, ms: see usiw_port_work(). */
#define USIW_PORT_DELAY_MS	50

/* Neighbour updates are gathered for this long, ms. */
#define USIW_NEIGH_DELAY_MS	10

/**
 * struct usiw_cq - completion queue
 * @ibcq:	the core's part of it
 * @cqn:	its number
 * @completions: events of completion that are unread
 * @async:	other events that are unread
 */
struct usiw_cq {
	struct ib_cq ibcq;
	u32 cqn;
	struct usiw_unread completions;
	struct usiw_unread async;
};

/**
 * struct usiw_srq - shared receive queue
 * @ibsrq:	the core's part of it
 * @max_wr:	as asked for
 * @max_sge:	likewise
 * @limit:	as modify_srq set it; 0: it has been reached, or nobody wants to hear of it
 * @async:	its events that are unread
 */
struct usiw_srq {
	struct ib_srq ibsrq;
	u32 max_wr;
	u32 max_sge;
	u32 limit;
	struct usiw_unread async;
};

static inline struct usiw_cq *to_usiw_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct usiw_cq, ibcq);
}

static inline struct usiw_srq *to_usiw_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct usiw_srq, ibsrq);
}

/* Work of the module that may sleep; unbound, so that devices do not wait for each other. */
extern struct workqueue_struct *usiw_wq;

/* usiw_link.c */
int usiw_link_init(void);
void usiw_link_exit(void);
int usiw_newlink(const char *ibdev_name, struct net_device *netdev);
int usiw_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
		      struct ib_udata *udata);
int usiw_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr);

/* usiw_netdev.c */
int usiw_netdev_init(void);
void usiw_netdev_exit(void);
void usiw_netdev_count(struct net_device *netdev, enum usiw_kcounter counter);
void usiw_neigh_work(struct work_struct *work);
void usiw_port_work(struct work_struct *work);

/* usiw_cq.c */
int usiw_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct usiw_create_cq_arg *arg);
int usiw_resize_cq(struct ib_cq *ibcq, usiw_resize_cqe cqe, struct ib_udata *udata);
int usiw_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int usiw_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc);
int usiw_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void usiw_cq_completion_event(struct usiw_cq *cq);
void usiw_cq_overrun(struct usiw_cq *cq);

/* usiw_srq.c */
int usiw_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata);
int usiw_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		    struct ib_udata *udata);
int usiw_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int usiw_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int usiw_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);
void usiw_srq_limit_reached(struct usiw_srq *srq);

/* usiw_qp.c */
int usiw_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int usiw_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata);
int usiw_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init_attr);
int usiw_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int usiw_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr);
int usiw_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr);
struct usiw_qp *usiw_qp_get_own(struct usiw_device *dev, u32 qpn);
void usiw_qp_put(struct usiw_qp *qp);
int usiw_qp_attach(struct usiw_qp *qp, struct usiw_conn *conn);
void usiw_qp_detach(struct usiw_qp *qp, struct usiw_conn *conn);
struct usiw_conn *usiw_qp_get_conn(struct usiw_qp *qp);
void usiw_qp_set_state(struct usiw_qp *qp, enum usiw_qp_state state);
void usiw_qp_accepted(struct usiw_qp *qp);
void usiw_qp_set_depths(struct usiw_qp *qp, u16 ird, u16 ord);
void usiw_qp_async_event(struct usiw_qp *qp, enum ib_event_type type);

/* usiw_restrack.c */
int usiw_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp);

/* usiw_uapi.c */
extern const struct uapi_definition usiw_uapi_defs[];

#endif /* USIW_H */
