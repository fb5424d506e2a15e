// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Measures the time that a datagram takes in the kernel when a port has many connections. For 1,
 * 1,000 and 4,000 connections to one listening port, the program draws a connection at random,
 * sends a datagram by the data socket of one end and receives it by that of the other. It prints
 * the median time from the call that sends to the return of the call that receives. It judges
 * nothing: tests/kuser asserts the number of look-ups.
 *
 *   scripts/vm run -- build/tests/kmod/one_port [CONNECTIONS ...]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"

enum { PORT = 7100, MOST = 8000, ROUNDS = 2001, LENGTH = 256 };

const char *a_dev, *b_dev, *a_ip, *b_ip, *a_ip6, *b_ip6;

static struct end a, b;
static struct qp qps_a[MOST], qps_b[MOST];
static int fds_a[MOST], fds_b[MOST];

/* The newest connection of the end is announced: keep its socket, answer. */
static bool take(struct end *end, struct qp *qp, int *fd)
{
	struct usiw_event ev;
	bool got = false;

	while (read(end->dev.event_fd, &ev, sizeof(ev)) == sizeof(ev)) {
		if (ev.type != USIW_EVENT_CONNECT)
			continue;
		CHECK_EQ(ev.qpn, qp->qpn);
		CHECK(ev.conn.data_fd >= 0);
		*fd = ev.conn.data_fd;
		CHECK_EQ(qp_report(qp, USIW_REPORT_READY, ev.conn_id, 0, 0), 0);
		got = true;
	}
	return got;
}

/* Waits for an event of rdma_cm while both ends answer for connection @n. */
static void await(struct end *end, uint32_t event, int n, struct cm_event *ev)
{
	double until = now_s() + 10 * patience();

	do {
		take(&a, &qps_a[n], &fds_a[n]);
		take(&b, &qps_b[n], &fds_b[n]);
		CHECK_EQ(cm_next(&end->cm, ev, 1), 0);
	} while (ev->event == (uint32_t)EV_NONE && now_s() < until);
	CHECK_EQ(ev->event, event);
}

static void connect_one(int n)
{
	struct sockaddr_storage src, dst;
	struct cm_event ev;
	uint32_t id;

	CHECK_EQ(create_qp(&a.dev, &qps_a[n]), 0);
	CHECK_EQ(create_qp(&b.dev, &qps_b[n]), 0);
	fds_a[n] = fds_b[n] = -1;
	addr_set(&src, a_ip, 0);
	addr_set(&dst, b_ip, PORT);
	enter(&a);
	CHECK_EQ(cm_create_id(&a.cm, &id), 0);
	CHECK_EQ(cm_resolve_addr(&a.cm, id, &src, &dst), 0);
	await(&a, EV_ADDR_RESOLVED, n, &ev);
	CHECK_EQ(cm_resolve_route(&a.cm, id), 0);
	await(&a, EV_ROUTE_RESOLVED, n, &ev);
	CHECK_EQ(cm_connect(&a.cm, id, qps_a[n].qpn, 1, 1, NULL, 0), 0);
	await(&b, EV_CONNECT_REQUEST, n, &ev);
	CHECK_EQ(cm_accept(&b.cm, ev.id, qps_b[n].qpn, 1, 1, NULL, 0), 0);
	await(&a, EV_ESTABLISHED, n, &ev);
	await(&b, EV_ESTABLISHED, n, &ev);
	CHECK(fds_a[n] >= 0 && fds_b[n] >= 0);
}

static int by_size(const void *one, const void *other)
{
	double x = *(const double *)one, y = *(const double *)other;

	return (x > y) - (x < y);
}

/* Returns the time from sendmsg to the end of recvmsg, us. */
static double median(int connections)
{
	static double took[ROUNDS];
	char data[LENGTH] = { 0 }, got[LENGTH];	/* 0: DATA */

	srand(connections);
	for (int i = 0; i < ROUNDS; i++) {
		int n = rand() % connections;
		ssize_t len;
		double t = now_s();

		CHECK_EQ(send(fds_a[n], data, sizeof(data), 0), LENGTH);
		do
			len = recv(fds_b[n], got, sizeof(got), MSG_DONTWAIT);
		while (len < 0 && errno == EAGAIN && now_s() - t < 5);
		CHECK_EQ(len, LENGTH);
		took[i] = (now_s() - t) * 1e6;
	}
	qsort(took, ROUNDS, sizeof(took[0]), by_size);
	return took[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	static const int usual[] = { 1, 1000, 4000 };
	int steps = argc > 1 ? argc - 1 : 3, made = 0;
	struct rlimit files = { 4 * MOST, 4 * MOST };

	a_dev = getenv("A_DEV");
	b_dev = getenv("B_DEV");
	a_ip = getenv("A_IP");
	b_ip = getenv("B_IP");
	if (!a_dev || !b_dev || !a_ip || !b_ip) {
		fprintf(stderr, "one_port: run it by scripts/vm, which sets A_DEV, A_IP ...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	end_open(&a, a_dev, a_ip);
	end_open(&b, b_dev, b_ip);
	listen_on(&b, b_ip, PORT, 64);
	for (int i = 0; i < steps; i++) {
		int wanted = argc > 1 ? atoi(argv[1 + i]) : usual[i];

		CHECK(wanted > 0 && wanted <= MOST);
		while (made < wanted)
			connect_one(made++);
		printf("connections %d: a datagram takes %.1f us (median of %d)\n", wanted, median(wanted), ROUNDS);
	}
	return 0;
}
