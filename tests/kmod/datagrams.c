// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Datagrams that reach the kernel's sockets. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"

static void put32(uint8_t *p, uint32_t v)
{
	v = htonl(v);
	memcpy(p, &v, 4);
}

void test_datagrams(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	const int bad = 20000 / patience();
	struct sockaddr_storage from, to;
	uint8_t buf[600];
	struct cm_event ev;
	struct pollfd pfd;
	struct pair p;
	int fd, answers = 0;

	establish(&a, &b, listen_id, b_ip, PORT, &p);
	addr_set(&from, a_ip, 7999);
	addr_set(&to, b_ip, PORT);
	enter(&a);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&from, sizeof(struct sockaddr_in)), 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
	srand(7);
	for (int i = 0; i < bad; i++) {
		size_t len = rand() % sizeof(buf);

		for (size_t k = 0; k < len; k++)
			buf[k] = rand();
		if (len > 14 && (i & 1))
			buf[8] = (rand() % 8) << 4, buf[9] = 0;
		if (len > 15 && (i & 2))
			buf[14] = 1;
		send(fd, buf, len, MSG_DONTWAIT);
		if (!(i % 64))
			engines(&a, 1);
	}
	/*
	 * Real requests from many ports that never continue: only a limited number of them waits.
	 */
	for (int i = 0; i < bad / 10; i++) {
		int s = socket(AF_INET, SOCK_DGRAM, 0);

		memset(buf, 0, 30);
		put32(buf, rand());
		buf[8] = 1 << 4;
		buf[14] = 1;
		buf[22] = 0, buf[23] = 4, buf[24] = 0, buf[25] = 4;
		buf[26] = 1500 >> 8, buf[27] = 1500 & 255, buf[28] = 1;
		sendto(s, buf, 30, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(struct sockaddr_in));
		close(s);
	}
	engines(&a, 500);
	pfd = (struct pollfd){ .fd = fd, .events = POLLIN };
	while (poll(&pfd, 1, 100) > 0 && recv(fd, buf, sizeof(buf), MSG_DONTWAIT) >= 0)
		answers++;
	printf("  %d answers to %d bad datagrams\n", answers, bad);
	close(fd);

	/* The connection is not disturbed. */
	CHECK_EQ(qp_state(&p.qa, NULL, NULL), QPS_RTS);
	CHECK_EQ(qp_state(&p.qb, NULL, NULL), QPS_RTS);
	int requests = 0;

	while (!cm_next(&b.cm, &ev, 100) && ev.event != (uint32_t)EV_NONE) {
		CHECK_EQ(ev.event, EV_CONNECT_REQUEST);
		CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
		requests++;
	}
	printf("  %d requests reached the application\n", requests);
	CHECK_EQ(cm_disconnect(&a.cm, p.ida), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	finish(&a, &b, &p);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	while (!cm_next(&b.cm, &ev, 100) && ev.event != (uint32_t)EV_NONE)
		;
}
