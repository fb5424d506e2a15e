/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connects and moves data by the calls of Mooncake's transfer engine.
 *
 *   as_mooncake PORT [ADDRESS]     the target, or with the target's address the initiator
 *
 * Before it opens a device it looks whether the program may read and write the character device
 * /dev/infiniband/uverbsN. It moves each QP to RESET before anything else, also a new one. The
 * initiator WRITEs into the memory of the target and READs it back, 16 at a time. Then both ends
 * reset their QPs, connect them again, and do the same once more.
 */
#include <sys/stat.h>

#include "peers.h"

enum {
	QPS = 2,
	AT_A_TIME = 16,
	SLICE = 65536,
	SIZE = AT_A_TIME * SLICE,
	CONNECTIONS = 3,
	PORT_NUM = 1
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp[QPS];
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
};

static void check_node(const struct ibv_device *device)
{
	char path[128];
	struct stat node;

	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	MUST(stat(path, &node));
	CHECK(S_ISCHR(node.st_mode));
	MUST(access(path, R_OK | W_OK));
}

static void open_device(struct end *end)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices && devices[0]);
	check_node(devices[0]);
	CHECK(end->context = ibv_open_device(devices[0]));
	MUST(-ibv_query_port(end->context, PORT_NUM, &end->port));
	CHECK(end->port.state == IBV_PORT_ACTIVE);
	for (int i = 0;; i++) {
		CHECK(i < end->port.gid_tbl_len);
		if (ibv_query_gid_ex(end->context, PORT_NUM, i, &end->gid, 0) == 0 &&
		    end->gid.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    IN6_IS_ADDR_V4MAPPED((struct in6_addr *)end->gid.gid.raw))
			break;
	}
	CHECK(end->pd = ibv_alloc_pd(end->context));
	CHECK(end->channel = ibv_create_comp_channel(end->context));
	CHECK(end->cq = ibv_create_cq(end->context, 4096, NULL, end->channel, 0));
}

static struct ibv_qp *create_qp(const struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 256,
			 .max_recv_wr = 256,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
	};

	return ibv_create_qp(end->pd, &init);
}

static void connect_qp(const struct end *end, struct ibv_qp *qp, const struct card *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	MUST(-ibv_modify_qp(qp, &attr, IBV_QP_STATE));

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT,
				     .port_num = PORT_NUM,
				     .qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
							IBV_ACCESS_REMOTE_READ |
							IBV_ACCESS_REMOTE_WRITE |
							IBV_ACCESS_REMOTE_ATOMIC };
	MUST(-ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = end->port.active_mtu,
				     .dest_qp_num = peer->qpn,
				     .rq_psn = 0,
				     .max_dest_rd_atomic = 16,
				     .min_rnr_timer = 12,
				     .ah_attr = { .is_global = 1,
						  .port_num = PORT_NUM,
						  .grh = { .dgid = peer->gid,
							   .sgid_index = end->gid.gid_index,
							   .hop_limit = 16 } } };
	MUST(-ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));

	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .sq_psn = 0,
				     .max_rd_atomic = 16 };
	MUST(-ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Posts a list of AT_A_TIME work requests, one for each slice of @buffer, and waits for them all. */
static void transfer(struct end *end, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
		     const unsigned char *buffer, const struct ibv_mr *mr, const struct card *peer)
{
	struct ibv_send_wr wr[AT_A_TIME], *bad;
	struct ibv_sge sge[AT_A_TIME];

	for (int i = 0; i < AT_A_TIME; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)buffer + i * SLICE, SLICE, mr->lkey };
		wr[i] = (struct ibv_send_wr){ .wr_id = i,
					      .opcode = opcode,
					      .sg_list = &sge[i],
					      .num_sge = 1,
					      .next = i + 1 < AT_A_TIME ? &wr[i + 1] : NULL,
					      .send_flags = IBV_SEND_SIGNALED,
					      .wr.rdma = { peer->addr + i * SLICE, peer->rkey } };
	}
	MUST(-ibv_post_send(qp, wr, &bad));
	for (uint64_t i = 0; i < AT_A_TIME; i++)
		CHECK(completion(end->cq).wr_id == i);
}

int main(int argc, char **argv)
{
	static unsigned char buffer[SIZE];
	int initiator = argc > 2, fd = meet(initiator ? argv[2] : NULL, atoi(argv[1]));
	struct card mine[QPS], peer[QPS];
	struct end end = {};
	struct ibv_mr *mr;

	open_device(&end);
	CHECK(mr = ibv_reg_mr(end.pd, buffer, SIZE,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ));
	for (int i = 0; i < QPS; i++) {
		CHECK(end.qp[i] = create_qp(&end));
		mine[i] = (struct card){ end.gid.gid, end.qp[i]->qp_num, mr->rkey,
					 (uintptr_t)buffer };
	}
	for (int round = 0; round < CONNECTIONS; round++) {
		/* In the next rounds the QPs of both ends are in RTS with the same peers as before. */
		exchange(fd, mine, peer, sizeof(mine));
		for (int i = 0; i < QPS; i++)
			connect_qp(&end, end.qp[i], &peer[i]);
		for (int i = 0; initiator && i < QPS; i++) {
			fill(buffer, SIZE, round + i);
			transfer(&end, end.qp[i], IBV_WR_RDMA_WRITE, buffer, mr, &peer[i]);
			memset(buffer, 0, SIZE);
			transfer(&end, end.qp[i], IBV_WR_RDMA_READ, buffer, mr, &peer[i]);
			check_filled(buffer, SIZE, round + i);
		}
		both_here(fd);
		check_filled(buffer, SIZE, round + QPS - 1);
	}
	printf("%d connections\n", CONNECTIONS);
	return 0;
}
