/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The verbs of queue pairs. */
#ifndef USIW_QP_H
#define USIW_QP_H

#include <rdma/ib_verbs.h>

struct usiw_qp;

int usiw_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int usiw_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int usiw_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init_attr);
int usiw_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int usiw_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr);
int usiw_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr);

#endif /* USIW_QP_H */
