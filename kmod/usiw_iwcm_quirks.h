/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Work-arounds for faults and gaps of iw_cm and rdma_cm; usiw_iwcm_quirks.c lists them. */
#ifndef USIW_IWCM_QUIRKS_H
#define USIW_IWCM_QUIRKS_H

#include <linux/cred.h>
#include <linux/types.h>
#include <rdma/iw_cm.h>

#include "../cm/object/usiw_limits.h"
#include "usiw_route.h"

struct usiw_conn;
struct usiw_qp_proxy;

/* Returns the sender attributes for a connect or listen on @cm_id by the current process. */
static inline struct usiw_sender usiw_iw_sender(const struct iw_cm_id *cm_id)
{
	return (struct usiw_sender){
		.uid = current_fsuid(),
		.tos = (u8)(cm_id->tos_set ? usiw_traffic_class(cm_id->tos) : 0),
	};
}

bool usiw_iw_is_of_tcp(const struct iw_cm_id *cm_id);
bool usiw_iw_in_netns(const struct iw_cm_id *cm_id);
void usiw_iw_set_local_port(struct iw_cm_id *cm_id, __be16 port);
void *usiw_iw_request_data(const struct usiw_conn *conn);
struct usiw_conn *usiw_iw_request_conn(const struct iw_cm_id *cm_id);
void usiw_iw_set_accepted(struct iw_cm_id *cm_id, struct usiw_qp_proxy *proxy);
bool usiw_iw_is_accepted(const struct iw_cm_id *cm_id);
struct usiw_conn *usiw_iw_accepted_conn(struct iw_cm_id *cm_id);
void usiw_iw_change_qp(struct iw_cm_id *cm_id, u32 qpn);

#endif /* USIW_IWCM_QUIRKS_H */
