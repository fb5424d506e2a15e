/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A small verbs program as people write it: a server and a client, each a thread of its own, connect over the address
 * that is the argument. The client sends COUNT messages, the server writes each back by RDMA WRITE and a SEND, and the
 * client compares. Synchronous rdma_cm ids; exit status 0 if every byte was right.
 *
 * With -DRACE both threads count messages without a lock. With -DOVERFLOW the client reads a byte behind its buffer.
 */
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 200, LENGTH = 4096 };

#define MUST(call)                                                  \
	do {                                                        \
		if ((call) < 0) {                                   \
			fprintf(stderr, "%s: %m\n", #call);         \
			exit(1);                                    \
		}                                                   \
	} while (0)

#ifdef RACE
#define COUNT_MESSAGE() (messages++)
#else
#define COUNT_MESSAGE() ((void)0)
#endif

int messages;
static const char *address;
static char port[8];

struct message {
	uint64_t to;
	uint32_t rkey, number;
	uint8_t bytes[LENGTH];
};

static struct ibv_qp_init_attr queues(void)
{
	struct ibv_qp_init_attr attr = {.cap = {8, 8, 1, 1, 0}, .sq_sig_all = 1, .qp_type = IBV_QPT_RC};

	return attr;
}

static struct rdma_addrinfo *resolve(int flags, const char *service)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *info = NULL;

	MUST(-!!rdma_getaddrinfo(address, service, &hints, &info));
	return info;
}

/* One completion, by polling. */
static void take(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", n < 0 ? "none" : ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void *serve(void *listener)
{
	struct rdma_cm_id *id;
	struct message *in = calloc(1, sizeof *in);
	struct ibv_mr *mr;

	MUST(rdma_get_request(listener, &id));
	mr = rdma_reg_msgs(id, in, sizeof *in);
	MUST(mr ? 0 : -1);
	MUST(rdma_post_recv(id, NULL, in, sizeof *in, mr));
	MUST(rdma_accept(id, NULL));
	for (uint32_t i = 0; i < COUNT; i++) {
		take(id->recv_cq);
		COUNT_MESSAGE();
		MUST(rdma_post_write(id, NULL, in->bytes, LENGTH, mr, 0, in->to, in->rkey));
		take(id->send_cq);
		if (i + 1 < COUNT)
			MUST(rdma_post_recv(id, NULL, in, sizeof *in, mr));
		MUST(rdma_post_send(id, NULL, NULL, 0, NULL, 0));
		take(id->send_cq);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	free(in);
	return NULL;
}

static void *ask(void *unused)
{
	struct rdma_addrinfo *info = resolve(0, port);
	struct ibv_qp_init_attr attr = queues();
	struct message *out = calloc(1, sizeof *out);
	uint8_t *back = calloc(1, LENGTH);
	struct ibv_mr *mr, *back_mr;
	struct rdma_cm_id *id;

	MUST(rdma_create_ep(&id, info, NULL, &attr));
	mr = rdma_reg_msgs(id, out, sizeof *out);
	back_mr = rdma_reg_write(id, back, LENGTH);
	MUST(mr && back_mr ? 0 : -1);
	MUST(rdma_connect(id, NULL));
	for (uint32_t i = 0; i < COUNT; i++) {
		out->to = (uintptr_t)back;
		out->rkey = back_mr->rkey;
		memset(out->bytes, (int)i + 1, LENGTH);
		MUST(rdma_post_recv(id, NULL, back, 0, back_mr));
		MUST(rdma_post_send(id, NULL, out, sizeof *out, mr, 0));
		take(id->send_cq);
		take(id->recv_cq);
		COUNT_MESSAGE();
#ifdef OVERFLOW
		if (back[LENGTH] != 0)
			puts("not 0");
#endif
		if (memcmp(back, out->bytes, LENGTH) != 0) {
			fprintf(stderr, "message %u: other bytes\n", i);
			exit(1);
		}
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_dereg_mr(back_mr);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(info);
	free(out);
	free(back);
	return unused;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attr = queues();
	struct rdma_addrinfo *info;
	struct rdma_cm_id *listener;
	pthread_t server, client;

	address = argc > 1 ? argv[1] : "127.0.0.1";
	info = resolve(RAI_PASSIVE, "0");
	MUST(rdma_create_ep(&listener, info, NULL, &attr));
	MUST(rdma_listen(listener, 1));
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listener)));
	MUST(-pthread_create(&server, NULL, serve, listener));
	MUST(-pthread_create(&client, NULL, ask, NULL));
	pthread_join(client, NULL);
	pthread_join(server, NULL);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(info);
	puts("done");
	return 0;
}
