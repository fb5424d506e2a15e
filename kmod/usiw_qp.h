/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queue pairs: the verbs, and the link between a QP and its connection.
 */
#ifndef USIW_QP_H
#define USIW_QP_H

#include <rdma/ib_verbs.h>

#include "../cm/object/usiw_qp_states.h"
#include "usiw_qp_types.h"

struct usiw_conn;
struct usiw_device;

int usiw_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int usiw_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
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

#endif /* USIW_QP_H */
