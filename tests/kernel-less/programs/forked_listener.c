/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A listener that forks while requests wait for it, and its clients.
 *
 *   forked_listener listen IP PORT idle|serve    backlog 1. Accepts nothing. On a line on stdin it forks and prints
 *                                                "forked". When it is gone, the child prints "orphan", and then it
 *                                                sleeps, or it executes `forked_listener serve`.
 *   forked_listener serve IP PORT                accepts connections until it is killed
 *   forked_listener connect IP PORT              prints "connecting", and then "connected" or the error
 */
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

static struct rdma_cm_id *endpoint(const char *address, const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP },
			     *info = NULL;
	struct ibv_qp_init_attr attr = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id = NULL;

	MUST(-!!rdma_getaddrinfo(address, port, &hints, &info));
	MUST(rdma_create_ep(&id, info, NULL, &attr));
	return id;
}

static void serve(const char *address, const char *port)
{
	struct rdma_cm_id *listener = endpoint(address, port, RAI_PASSIVE), *id;

	MUST(rdma_listen(listener, 8));
	for (;;) {
		MUST(rdma_get_request(listener, &id));
		MUST(rdma_accept(id, NULL));
	}
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id;
	pid_t parent = getpid();

	if (argc < 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(argv[1], "serve"))
		serve(argv[2], argv[3]);
	id = endpoint(argv[2], argv[3], strcmp(argv[1], "listen") ? 0 : RAI_PASSIVE);
	if (!strcmp(argv[1], "connect")) {
		puts("connecting");
		MUST(rdma_connect(id, NULL));
		puts("connected");
		return 0;
	}
	MUST(rdma_listen(id, 1));
	getchar();
	if (fork()) {
		puts("forked");
		pause();
	}
	while (getppid() == parent)
		usleep(1000);
	puts("orphan");
	if (argc > 4 && !strcmp(argv[4], "serve"))
		execl(argv[0], argv[0], "serve", argv[2], argv[3], NULL);
	pause();
	return 1;
}
