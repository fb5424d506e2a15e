/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connects and moves data by the calls of NCCL's net_ib. NCCL itself needs a GPU, so it cannot be
 * a test.
 *
 *   as_nccl PORT [ADDRESS]     the receiver, or with the receiver's address the sender
 *
 * It searches sysfs for the GID that has the type "RoCE v2" and an IPv4 address. For each message
 * the receiver writes the address of its buffer into a FIFO of the sender. The sender writes the
 * message, and then its size by a WRITE_WITH_IMM of no length. The receiver then flushes by a READ.
 */
#include "peers.h"

enum { ROUNDS = 20, LARGEST = 1 << 20, HOP_LIMIT = 255, PORT_NUM = 1 };

/* An entry of the sender's FIFO, which the receiver writes. */
struct slot {
	uint64_t addr;
	uint32_t rkey;
	uint32_t round;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_port_attr port;
	int gid_index;
	union ibv_gid gid;
};

/* Returns true if sysfs shows the type RoCE v2 for a GID. An empty entry has no type. */
static int is_roce_v2(const struct ibv_context *context, int index)
{
	char path[256], type[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gid_attrs/types/%d",
		 ibv_get_device_name(context->device), PORT_NUM, index);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (!fgets(type, sizeof(type), file))
		type[0] = 0;
	fclose(file);
	return strcmp(type, "RoCE v2\n") == 0;
}

static void find_gid(struct end *end)
{
	for (int i = 0; i < end->port.gid_tbl_len; i++) {
		MUST(-ibv_query_gid(end->context, PORT_NUM, i, &end->gid));
		if (IN6_IS_ADDR_V4MAPPED((struct in6_addr *)end->gid.raw) &&
		    is_roce_v2(end->context, i)) {
			end->gid_index = i;
			return;
		}
	}
	fputs("no GID of RoCE v2 and IPv4\n", stderr);
	exit(1);
}

static void open_device(struct end *end)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices && devices[0]);
	CHECK(end->context = ibv_open_device(devices[0]));
	MUST(-ibv_query_port(end->context, PORT_NUM, &end->port));
	CHECK(end->port.state == IBV_PORT_ACTIVE);
	CHECK(end->port.link_layer == IBV_LINK_LAYER_ETHERNET);
	find_gid(end);
	CHECK(end->pd = ibv_alloc_pd(end->context));
	CHECK(end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0));
}

static void create_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 32,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = sizeof(struct slot) },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = PORT_NUM,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	CHECK(end->qp = ibv_create_qp(end->pd, &init));
	MUST(-ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void to_rtr(struct end *end, const struct card *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = end->port.active_mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = 0,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = PORT_NUM,
			     .grh = { .dgid = peer->gid,
				      .sgid_index = end->gid_index,
				      .hop_limit = HOP_LIMIT,
				      .traffic_class = 0 } },
	};

	MUST(-ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
}

static void to_rts(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = 0,
		.max_rd_atomic = 1,
	};

	MUST(-ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_mr *registered(struct end *end, void *memory, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr_iova2(end->pd, memory, size, (uintptr_t)memory,
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						     IBV_ACCESS_REMOTE_READ |
						     IBV_ACCESS_RELAXED_ORDERING);

	CHECK(mr);
	return mr;
}

static size_t size_of(int round)
{
	return round % 4 == 0 ? LARGEST : (size_t)1 << round;
}

static void post(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	MUST(-ibv_post_send(end->qp, wr, &bad));
}

/* The buffer is cleared for each message, so a message that did not come shows. */
static void receive(struct end *end, const struct card *peer, unsigned char *buffer,
		    const struct ibv_mr *mr)
{
	uint64_t flushed = 0;
	struct ibv_mr *flush_mr = registered(end, &flushed, sizeof(flushed));

	for (int round = 0; round < ROUNDS; round++) {
		struct slot slot = { (uintptr_t)buffer, mr->rkey, round + 1 };
		struct ibv_sge slot_sge = { (uintptr_t)&slot, sizeof(slot), 0 };
		struct ibv_send_wr cts = { .opcode = IBV_WR_RDMA_WRITE,
					   .sg_list = &slot_sge,
					   .num_sge = 1,
					   .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
					   .wr.rdma = { peer->addr, peer->rkey } };
		struct ibv_sge flush_sge = { (uintptr_t)&flushed, sizeof(flushed), flush_mr->lkey };
		struct ibv_send_wr flush = { .opcode = IBV_WR_RDMA_READ,
					     .sg_list = &flush_sge,
					     .num_sge = 1,
					     .send_flags = IBV_SEND_SIGNALED,
					     .wr.rdma = { peer->addr, peer->rkey } };
		struct ibv_recv_wr recv = {}, *bad;
		int sent = 0, told = 0;

		memset(buffer, 0, LARGEST);
		flushed = 0;
		MUST(-ibv_post_recv(end->qp, &recv, &bad));
		post(end, &cts);
		while (!sent || !told) {
			struct ibv_wc wc = completion(end->cq);

			sent |= wc.opcode == IBV_WC_RDMA_WRITE;
			if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
				continue;
			CHECK((wc.wc_flags & IBV_WC_WITH_IMM) && wc.byte_len == 0);
			CHECK(ntohl(wc.imm_data) == size_of(round));
			told = 1;
		}
		check_filled(buffer, size_of(round), round);
		post(end, &flush);
		CHECK(completion(end->cq).opcode == IBV_WC_RDMA_READ);
		CHECK(flushed == (uintptr_t)buffer);
	}
}

static void send_all(struct end *end, const struct slot *fifo, unsigned char *buffer,
		     const struct ibv_mr *mr)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_sge sge = { (uintptr_t)buffer, size_of(round), mr->lkey };
		struct ibv_send_wr size = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					    .imm_data = htonl(size_of(round)),
					    .send_flags = IBV_SEND_SIGNALED };
		struct ibv_send_wr data = {
			.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .next = &size
		};

		/* By memory alone: the program calls no verb meanwhile. */
		for (int ms = 0; __atomic_load_n(&fifo->round, __ATOMIC_ACQUIRE) != round + 1u;
		     ms++) {
			CHECK(ms < COMPLETION_MS);
			poll(NULL, 0, 1);
		}
		data.wr.rdma.remote_addr = size.wr.rdma.remote_addr = fifo->addr;
		data.wr.rdma.rkey = size.wr.rdma.rkey = fifo->rkey;
		fill(buffer, size_of(round), round);
		post(end, &data);
		CHECK(completion(end->cq).opcode == IBV_WC_RDMA_WRITE);
	}
}

int main(int argc, char **argv)
{
	static unsigned char buffer[LARGEST];
	static struct slot fifo;
	int sender = argc > 2, fd = meet(sender ? argv[2] : NULL, atoi(argv[1]));
	struct end end = {};
	struct ibv_mr *mr, *fifo_mr;
	struct card mine, peer;

	open_device(&end);
	create_qp(&end);
	mr = registered(&end, buffer, sizeof(buffer));
	fifo_mr = registered(&end, &fifo, sizeof(fifo));
	mine = (struct card){ end.gid, end.qp->qp_num, fifo_mr->rkey, (uintptr_t)&fifo };
	exchange(fd, &mine, &peer, sizeof(mine));
	to_rtr(&end, &peer);
	to_rts(&end);
	if (sender)
		send_all(&end, &fifo, buffer, mr);
	else
		receive(&end, &peer, buffer, mr);
	both_here(fd);
	printf("%d messages\n", ROUNDS);
	return 0;
}
