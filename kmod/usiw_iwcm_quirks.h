/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What iw_cm does not say or do, and how the module gets by without it; see usiw_iwcm_quirks.c.
 */
#ifndef USIW_IWCM_QUIRKS_H
#define USIW_IWCM_QUIRKS_H

#include <linux/cred.h>
#include <linux/kref.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>

#include "../cm/usiw_limits.h"
#include "usiw_route.h"

struct usiw_conn;
struct usiw_device;
struct usiw_qp;

/**
 * struct usiw_qp_proxy - what iw_cm holds in place of a QP
 * @ibqp:	only .device and .real_qp are set. iw_cm gets it from iw_get_qp, counts
 *		references to it, and gives it to ib_modify_qp, which comes out in
 *		usiw_modify_qp without udata
 * @kref:	iw_cm's references, and one until a grace period after @qp has gone
 * @rcu:	ends that one
 * @lock:	guards @qp; taken with interrupts off, as iw_cm has them off
 * @qp:		NULL once the QP is being destroyed
 *
 * iw_cm keeps its reference for as long as users let it: one who accepts and rejects the
 * same connection makes it keep it until rdma_cm's file is closed, which in a dying
 * process happens after the QPs are destroyed. With the QP itself in iw_cm's hands that
 * process could not be killed; the proxy lets the QP go without asking iw_cm.
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

/* QPs */
int usiw_qp_proxy_alloc(struct usiw_qp *qp);
void usiw_qp_proxy_detach(struct usiw_qp_proxy *proxy);
struct usiw_qp_proxy *usiw_qp_proxy_by_qpn(struct usiw_device *dev, u32 qpn);
struct usiw_qp *usiw_qp_proxy_get_qp(struct usiw_qp_proxy *proxy);
struct ib_qp *usiw_iw_get_qp(struct ib_device *ibdev, int qpn);
void usiw_iw_add_ref(struct ib_qp *ibqp);
void usiw_iw_rem_ref(struct ib_qp *ibqp);

/* In the context of connect or listen. */
static inline struct usiw_sender usiw_iw_sender(const struct iw_cm_id *cm_id)
{
	return (struct usiw_sender) {
		.uid = current_fsuid(),
		.tos = (u8)(cm_id->tos_set ? usiw_traffic_class(cm_id->tos) : 0),
	};
}

/* cm_ids */
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
