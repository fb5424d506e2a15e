/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A client with a port of its own choice, as a client behind a firewall has.
 *
 *   from_port FROM FROM_PORT TO TO_PORT    prints "connecting", connects, prints "connected" and sleeps
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "must.h"

static struct sockaddr_in endpoint(const char *address, const char *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
		exit(2);
	return at;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr attr = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct sockaddr_in from, to;
	struct rdma_cm_id *id;

	if (argc < 5)
		return 2;
	from = endpoint(argv[1], argv[2]);
	to = endpoint(argv[3], argv[4]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, 2000));
	MUST(rdma_resolve_route(id, 2000));
	MUST(rdma_create_qp(id, NULL, &attr));
	puts("connecting");
	MUST(rdma_connect(id, NULL));
	puts("connected");
	pause();
	return 1;
}
