// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A connection that may change its port, under the kernel's own routes, policies and sockets. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"

/* Returns the number of datagrams that the data sockets of end A's device left to the raw port. */
static long beside(void)
{
	char command[128], line[64] = "";
	FILE *out;

	snprintf(command, sizeof(command), "rdma statistic show link %s/1 | grep -o 'rx_beside [0-9]*'", a_dev);
	out = popen(command, "r");
	CHECK(out && fgets(line, sizeof(line), out));
	pclose(out);
	return atol(line + strlen("rx_beside "));
}

/*
 * Returns true if a datagram from the data socket of B arrives at that of A, and false if it is
 * left to the raw port.
 */
static bool given(size_t len)
{
	int to = b.last[USIW_EVENT_CONNECT].conn.data_fd, from = a.last[USIW_EVENT_CONNECT].conn.data_fd;
	double until = now_s() + 5 * patience();
	uint8_t data[4000] = { 0 };
	long before;
	ssize_t got;

	enter(&a);
	before = beside();
	CHECK_EQ(send(to, data, len, 0), (ssize_t)len);
	while (now_s() < until) {
		got = recv(from, data, sizeof(data), MSG_DONTWAIT);
		if (got >= 0) {
			CHECK_EQ(got, (ssize_t)len);
			CHECK_EQ(beside(), before);
			return true;
		}
		CHECK_EQ(errno, EAGAIN);
		if (beside() > before)
			return false;
		engines(&a, 20);
	}
	CHECK(!"it has come nowhere");
	return false;
}

static void tell(struct pair *p, enum usiw_port_kind port)
{
	CHECK_EQ(qp_report_port(&p->qa, a.last[USIW_EVENT_CONNECT].conn_id, port, USIW_PORT_WHY_WISH), 0);
}

/* Waits until the newest PATH reports this. */
static void expect_path(bool packet, enum usiw_not_packet why)
{
	double until = now_s() + 5 * patience();
	const struct usiw_conn_info *conn = &a.last[USIW_EVENT_PATH].conn;

	while (now_s() < until && (!a.seen[USIW_EVENT_PATH] || !(conn->flags & USIW_CONN_F_PACKET) == packet ||
				   conn->not_packet != why))
		engines(&a, 20);
	CHECK(a.seen[USIW_EVENT_PATH]);
	CHECK_EQ(!!(conn->flags & USIW_CONN_F_PACKET), packet);
	CHECK_EQ(conn->not_packet, why);
	CHECK(conn->flags & USIW_CONN_F_SOCKET);
}

/*
 * A policy requires ESP for the datagrams of A, and there is no security association: the kernel
 * sends nothing.
 */
static void ipsec(const char *what)
{
	const char *tmpl = strcmp(what, "add") ? "" : "tmpl proto esp mode transport";

	enter(&a);
	sh("ip xfrm policy %s src %s/32 dst %s/32 proto udp dir out %s", what, a_ip, b_ip, tmpl);
}

/* ESP for the direction from B to A, but not for the other one. */
static void esp_to_a(const struct end *end, const char *dir)
{
	const char *key = "0x1111111111111111111111111111111111111111";

	enter(end);
	if (end == &b || a.ns_fd >= 0)
		sh("ip xfrm state add src %s dst %s proto esp spi 0x200 mode transport aead 'rfc4106(gcm(aes))' %s 128",
		   b_ip, a_ip, key);
	sh("ip xfrm policy add src %s dst %s proto udp dir %s tmpl src %s dst %s proto esp mode transport", b_ip, a_ip,
	   dir, b_ip, a_ip);
}

static void no_esp(const struct end *end)
{
	enter(end);
	sh("ip xfrm policy flush && ip xfrm state flush");
}

static void test_receiving(struct pair *p)
{
	CHECK(!given(100));
	CHECK(given(3000));	/* in fragments */
	tell(p, USIW_PORT_SOCKET);
	CHECK(given(100));
	CHECK(given(3000));
	tell(p, USIW_PORT_PACKET);
	CHECK(!given(100));
	esp_to_a(&b, "out");
	esp_to_a(&a, "in");
	CHECK(given(100));
	no_esp(&b);
	no_esp(&a);
	CHECK(!given(100));
}

static void test_policy(struct pair *p)
{
	ipsec("add");
	expect_path(false, USIW_NOT_PACKET_IPSEC);
	tell(p, USIW_PORT_SOCKET);
	engines(&a, USIW_MOVE_MS + 500);
	CHECK_EQ(qp_state(&p->qa, NULL, NULL), QPS_RTS);
	ipsec("delete");
	expect_path(true, USIW_NOT_PACKET_NONE);
	tell(p, USIW_PORT_PACKET);

	/* A process on raw packets has to leave them, even if its data socket is open. */
	ipsec("add");
	expect_path(false, USIW_NOT_PACKET_IPSEC);
	CHECK_EQ(a.seen[USIW_EVENT_ABORT], 0);
	CHECK(expect_record(&a, USIW_EVENT_ABORT, 1, 2 * USIW_MOVE_MS));
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	ipsec("delete");
}

void test_moves(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	struct pair p;

	end_close(&a);
	end_open_with(&a, a_dev, a_ip,
		      USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE);
	CHECK_EQ(a.dev.info.caps, USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE);
	a.peer = &b;
	sh("modprobe -a xfrm_user esp4");
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	test_receiving(&p);
	test_policy(&p);

	close(a.last[USIW_EVENT_CONNECT].conn.data_fd);
	close(b.last[USIW_EVENT_CONNECT].conn.data_fd);
	finish(&a, &b, &p);
	while (expect(&b, EV_DISCONNECTED, NULL, 50))
		;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	end_close(&a);
	end_open(&a, a_dev, a_ip);
	a.peer = &b;
}
