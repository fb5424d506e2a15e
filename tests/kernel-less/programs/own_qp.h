/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Creates QPs that connect by verbs alone, and moves them to RTS. The device is the first one, and
 * the GID is the first one that has an IPv4 address. as_nccl.c and as_mooncake.c do not use this
 * header, because they have to call what those libraries call.
 */
#ifndef OWN_QP_H
#define OWN_QP_H

#include "peers.h"

enum { PORT_NUM = 1 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_gid_entry gid;
};

static inline void open_end(struct end *end, int cqes)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	const struct in6_addr *address = (struct in6_addr *)end->gid.gid.raw;

	CHECK(devices && devices[0]);
	CHECK(end->context = ibv_open_device(devices[0]));
	CHECK(end->pd = ibv_alloc_pd(end->context));
	CHECK(end->cq = ibv_create_cq(end->context, cqes, NULL, NULL, 0));
	for (int i = 0; i == 0 || !IN6_IS_ADDR_V4MAPPED(address); i++)
		MUST(-ibv_query_gid_ex(end->context, PORT_NUM, i, &end->gid, 0));
}

static inline struct ibv_qp *new_qp(const struct end *end, int depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth,
			 .max_recv_wr = depth,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	CHECK(qp);
	return qp;
}

/* To INIT, from where the QP may take receives. */
static inline void init_qp(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = PORT_NUM,
				    .qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
						       IBV_ACCESS_REMOTE_READ |
						       IBV_ACCESS_REMOTE_WRITE };

	MUST(-ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
}

/* To RTR and RTS. A @timeout of 0 means no limit. A receive that is missing is waited for without limit. */
static inline void connect_qp(const struct end *end, struct ibv_qp *qp, const struct card *peer,
			      int timeout)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_4096,
				    .dest_qp_num = peer->qpn,
				    .max_dest_rd_atomic = 4,
				    .min_rnr_timer = 12,
				    .ah_attr = { .is_global = 1,
						 .port_num = PORT_NUM,
						 .grh = { .dgid = peer->gid,
							  .sgid_index = end->gid.gid_index,
							  .hop_limit = 64 } } };

	MUST(-ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = timeout,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 4 };
	MUST(-ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void post_receive(struct ibv_qp *qp, uint64_t wr_id, const struct ibv_mr *mr,
				void *at, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)at, size, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(-ibv_post_recv(qp, &wr, &bad));
}

/* Posts a signaled work request. @remote: NULL for a SEND. */
static inline void post_send(struct ibv_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
			     const struct ibv_mr *mr, void *at, uint32_t size,
			     const struct card *remote)
{
	struct ibv_sge sge = { (uintptr_t)at, size, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = opcode,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	if (remote) {
		wr.wr.rdma.remote_addr = remote->addr;
		wr.wr.rdma.rkey = remote->rkey;
	}
	MUST(-ibv_post_send(qp, &wr, &bad));
}

#endif
