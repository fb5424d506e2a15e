/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Work-arounds for what iw_cm does not report or do; see usiw_iwcm_quirks.c.
 */
#ifndef USIW_IWCM_QUIRKS_H
#define USIW_IWCM_QUIRKS_H

#include <linux/cred.h>
#include <linux/kref.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>

#include "../cm/object/usiw_limits.h"
#include "usiw_route.h"

struct usiw_conn;
struct usiw_device;
struct usiw_qp;

/**
 * struct usiw_qp_proxy - object that iw_cm holds in place of a QP
 * @ibqp:	only .device, .real_qp and .qp_type are set. iw_cm gets it from iw_get_qp, counts
 *		references to it, and passes it to ib_modify_qp, which calls usiw_modify_qp()
 *		without udata
 * @kref:	references of iw_cm, and one that lasts until a grace period after @qp is gone
 * @rcu:	drops that reference
 * @lock:	guards @qp; taken with interrupts off, because iw_cm calls with interrupts off
 * @qp:		the QP; NULL once it is being destroyed
 *
 * iw_cm keeps its reference for as long as users let it. A user who accepts and rejects the same
 * connection makes iw_cm keep it until rdma_cm's file is closed. In a dying process that happens
 * after the QPs are destroyed. If iw_cm held the QP itself, that process could not be killed. The
 * proxy lets the QP go without asking iw_cm.
 */
struct usiw_qp_proxy {
	struct ib_qp ibqp;
	struct kref kref;
	struct rcu_head rcu;
	spinlock_t lock;
	struct usiw_qp *qp;
};

static inline struct usiw_qp_proxy *to_usiw_qp_proxy(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct usiw_qp_proxy, ibqp);
}

/* Proxies of QPs */
int usiw_qp_proxy_alloc(struct usiw_qp *qp);
void usiw_qp_proxy_detach(struct usiw_qp_proxy *proxy);
struct usiw_qp_proxy *usiw_qp_proxy_by_qpn(struct usiw_device *dev, u32 qpn);
struct usiw_qp *usiw_qp_proxy_get_qp(struct usiw_qp_proxy *proxy);
struct ib_qp *usiw_iw_get_qp(struct ib_device *ibdev, int qpn);
void usiw_iw_add_ref(struct ib_qp *ibqp);
void usiw_iw_rem_ref(struct ib_qp *ibqp);

/* Returns the current process as a sender. For connect and listen. */
static inline struct usiw_sender usiw_iw_sender(const struct iw_cm_id *cm_id)
{
	return (struct usiw_sender){
		.uid = current_fsuid(),
		.tos = (u8)(cm_id->tos_set ? usiw_traffic_class(cm_id->tos) : 0),
	};
}

/* State of cm_ids */
bool usiw_iw_is_of_tcp(const struct iw_cm_id *cm_id);
bool usiw_iw_in_netns(const struct iw_cm_id *cm_id);
void usiw_iw_set_local_port(struct iw_cm_id *cm_id, __be16 port);
void *usiw_iw_request_data(const struct usiw_conn *conn);
struct usiw_conn *usiw_iw_request_conn(const struct iw_cm_id *cm_id);
void usiw_iw_set_accepted(struct iw_cm_id *cm_id, const struct usiw_qp *qp);
bool usiw_iw_is_accepted(const struct iw_cm_id *cm_id);
struct usiw_conn *usiw_iw_accepted_conn(struct iw_cm_id *cm_id);
int usiw_iw_accept_again(struct iw_cm_id *cm_id, u32 qpn);

#endif /* USIW_IWCM_QUIRKS_H */
