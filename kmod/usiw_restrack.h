/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * `rdma resource show qp`: the driver's attributes of a QP.
 */
#ifndef USIW_RESTRACK_H
#define USIW_RESTRACK_H

struct ib_qp;
struct sk_buff;

int usiw_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp);

#endif /* USIW_RESTRACK_H */
