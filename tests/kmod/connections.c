// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Connections: how they begin, are refused and end, and calls in any order. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

/*
 * A request of @qa, accepted with @qb. Returns the id of this end and stores the other's in
 * @request.
 */
static uint32_t connect_and_accept(const struct qp *qa, const struct qp *qb,
				   struct cm_event *request)
{
	uint32_t id = resolve_to(&a, b_ip, PORT);

	CHECK_EQ(cm_connect(&a.cm, id, qa->qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, request, 3000));
	CHECK_EQ(cm_accept(&b.cm, request->id, qb->qpn, 1, 1, NULL, 0), 0);
	return id;
}

/* One end disconnects, and both are notified. */
static void hang_up(struct end *by, const struct pair *pair)
{
	CHECK_EQ(cm_disconnect(&by->cm, by == &a ? pair->ida : pair->idb), 0);
	CHECK(expect(by, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(by == &a ? &b : &a, EV_DISCONNECTED, NULL, 3000));
}

void test_connect(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	const struct usiw_conn_info *ia, *ib;
	uint8_t ird, ord;
	struct pair p;

	establish(&a, &b, listen_id, b_ip, PORT, &p);
	ia = &a.last[USIW_EVENT_CONNECT].conn;
	ib = &b.last[USIW_EVENT_CONNECT].conn;
	CHECK_EQ(ia->snd_psn, ib->rcv_psn);
	CHECK_EQ(ia->rcv_psn, ib->snd_psn);
	CHECK_EQ(ia->local_port, ib->remote_port);
	CHECK_EQ(ntohs(ib->local_port), PORT);
	CHECK(!memcmp(ia->local_addr, ib->remote_addr, 16));
	CHECK(!memcmp(ia->remote_mac, ib->local_mac, 6));
	CHECK(!memcmp(ib->remote_mac, ia->local_mac, 6));
	CHECK_EQ(ia->flags & ~WAY_FLAGS, USIW_CONN_F_INITIATOR);
	CHECK_EQ(ib->flags & ~WAY_FLAGS, 0);
	CHECK(ia->ord == 8 && ib->ird >= 8 && ia->ird >= 4 && ib->ord == 4);
	CHECK(ia->mtu == ib->mtu && ia->mtu >= 576 && ia->hop_limit > 1 && ia->snd_window > 0);
	CHECK_EQ(qp_state(&p.qa, &ird, &ord), QPS_RTS);
	CHECK_EQ(ord, 8);
	CHECK_EQ(qp_state(&p.qb, NULL, NULL), QPS_RTS);

	hang_up(&a, &p);
	CHECK_EQ(qp_state(&p.qa, NULL, NULL), QPS_ERR);
	CHECK_EQ(qp_state(&p.qb, NULL, NULL), QPS_ERR);
	finish(&a, &b, &p);

	/* The other end disconnects, then both at the same time. */
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	hang_up(&b, &p);
	finish(&a, &b, &p);
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	CHECK_EQ(cm_disconnect(&b.cm, p.idb), 0);
	hang_up(&a, &p);
	finish(&a, &b, &p);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

void test_reject(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8), id;
	struct cm_event ev;
	struct qp qp;
	double t;

	end_qp(&a, &qp);
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_reject(&b.cm, ev.id, "sorry", 5), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK(expect(&a, EV_REJECTED, &ev, 3000));
	CHECK_EQ(ev.conn.private_data_len, 5);
	CHECK(!memcmp(ev.conn.private_data, "sorry", 5));
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);

	/* Destroying the id of a request rejects it; the QP can be used again. */
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK(expect(&a, EV_REJECTED, &ev, 3000));
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);

	/*
	 * Without a listener the initiator is notified soon, but the module waits for one that is
	 * just starting.
	 */
	id = resolve_to(&a, b_ip, PORT + 1);
	t = now_s();
	CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&a, EV_REJECTED, &ev, 3000));
	CHECK(now_s() - t < 2.5 * patience());
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	CHECK_EQ(destroy_qp(&qp), 0);
	a.nr_qps--;
}

/* Returns an id that is resolved, with a port of its own. */
static uint32_t resolve_from(struct end *end, uint16_t port_space, int from, const char *ip, int to)
{
	struct sockaddr_storage dst, src;
	uint32_t id;

	addr_set(&src, end->ip, from);
	addr_set(&dst, ip, to);
	enter(end);
	CHECK_EQ(cm_create_id_in(&end->cm, &id, port_space), 0);
	CHECK_EQ(cm_resolve_addr(&end->cm, id, &src, &dst), 0);
	CHECK(expect(end, EV_ADDR_RESOLVED, NULL, 3000));
	CHECK_EQ(cm_resolve_route(&end->cm, id), 0);
	CHECK(expect(end, EV_ROUTE_RESOLVED, NULL, 3000));
	return id;
}

/* rdma_cm has a table of ports for each port space. A listener has its port in all of them. */
void test_port_spaces(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8), id;
	struct sockaddr_storage addr;
	struct qp qp;

	end_qp(&b, &qp);
	id = resolve_from(&b, RDMA_PS_IB, PORT, a_ip, PORT + 1);
	CHECK_EQ(cm_connect(&b.cm, id, qp.qpn, 1, 1, NULL, 0), -EPROTONOSUPPORT);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);
	addr_set(&addr, b_ip, PORT);
	enter(&b);
	CHECK_EQ(cm_create_id_in(&b.cm, &id, RDMA_PS_IB), 0);
	CHECK_EQ(cm_bind(&b.cm, id, &addr), 0);
	CHECK_EQ(cm_listen(&b.cm, id, 8), -EPROTONOSUPPORT);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);
	CHECK_EQ(destroy_qp(&qp), 0);
	b.nr_qps--;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/*
 * Both ends connect to each other between the same ports without a listener. Both are refused, and
 * none times out.
 */
void test_crossing(void)
{
	uint32_t ida = resolve_from(&a, RDMA_PS_TCP, PORT + 1, b_ip, PORT + 2);
	uint32_t idb = resolve_from(&b, RDMA_PS_TCP, PORT + 2, a_ip, PORT + 1);
	struct qp qa, qb;

	end_qp(&a, &qa);
	end_qp(&b, &qb);
	CHECK_EQ(cm_connect(&a.cm, ida, qa.qpn, 1, 1, NULL, 0), 0);
	CHECK_EQ(cm_connect(&b.cm, idb, qb.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&a, EV_REJECTED, NULL, 10000));
	CHECK(expect(&b, EV_REJECTED, NULL, 10000));
	CHECK_EQ(cm_destroy_id(&a.cm, ida), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, idb), 0);
	CHECK_EQ(destroy_qp(&qa), 0);
	CHECK_EQ(destroy_qp(&qb), 0);
	a.nr_qps--;
	b.nr_qps--;
}

/* A UDP socket of another program swallows the REQs. */
void test_silence(void)
{
	struct sockaddr_storage addr;
	struct cm_event ev;
	struct qp qp;
	uint32_t id;
	double t;
	int fd;

	addr_set(&addr, b_ip, PORT + 2);
	enter(&b);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&addr, sizeof(struct sockaddr_in)), 0);
	CHECK_EQ(cm_create_id(&b.cm, &id), 0);
	CHECK_EQ(cm_bind(&b.cm, id, &addr), 0);
	CHECK_EQ(cm_listen(&b.cm, id, 8), -EADDRINUSE);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);

	end_qp(&a, &qp);
	id = resolve_to(&a, b_ip, PORT + 2);
	t = now_s();
	CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&a, EV_UNREACHABLE, &ev, 10000));
	t = now_s() - t;
	CHECK(t > 5 && t < 8 * patience());
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	CHECK_EQ(destroy_qp(&qp), 0);
	a.nr_qps--;
	close(fd);
}

void test_refused_by_engine(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8), id;
	struct cm_event ev;
	struct qp qa, qb;

	a.refuse = -ENOMEM;
	end_qp(&a, &qa);
	end_qp(&b, &qb);
	id = connect_and_accept(&qa, &qb, &ev);
	CHECK(expect(&a, EV_CONNECT_ERROR, NULL, 3000));
	/* iw_cm may be notified of ESTABLISHED and at once of DISCONNECT after accept. */
	CHECK(expect(&b, EV_ESTABLISHED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	a.refuse = 0;

	CHECK_EQ(modify_qp(&qa, QPS_RESET), 0);
	CHECK_EQ(modify_qp(&qb, QPS_RESET), 0);
	b.refuse = -ENOMEM;
	id = connect_and_accept(&qa, &qb, &ev);
	CHECK(expect(&b, EV_ESTABLISHED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK(expect(&a, EV_REJECTED, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	b.refuse = 0;
	CHECK_EQ(destroy_qp(&qa), 0);
	CHECK_EQ(destroy_qp(&qb), 0);
	a.nr_qps--;
	b.nr_qps--;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/* The QP is destroyed first, in every state of its connection. Nothing may wait. */
void test_destroy_qp_first(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8), id;
	struct cm_event ev;
	struct qp qa, qb;
	struct pair p;
	double t = now_s();

	/* REQ sent. */
	end_qp(&a, &qa);
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0), 0);
	CHECK_EQ(destroy_qp(&qa), 0);
	CHECK(expect(&a, EV_CONNECT_ERROR, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	a.nr_qps--;
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);

	/* Accepted, not installed. */
	end_qp(&a, &qa);
	end_qp(&b, &qb);
	b.mute = true;
	id = connect_and_accept(&qa, &qb, &ev);
	CHECK_EQ(destroy_qp(&qb), 0);
	CHECK(expect(&b, EV_ESTABLISHED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&a, EV_REJECTED, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	CHECK_EQ(destroy_qp(&qa), 0);
	b.mute = false;
	a.nr_qps--;
	b.nr_qps--;

	/* Established. */
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	a.seen[USIW_EVENT_ABORT] = b.seen[USIW_EVENT_ABORT] = 0;
	CHECK_EQ(destroy_qp(&p.qa), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect_record(&b, USIW_EVENT_ABORT, 1, 1000));
	CHECK_EQ(b.last[USIW_EVENT_ABORT].conn.reason, USIW_ABORT_PEER_RESET);
	CHECK_EQ(a.seen[USIW_EVENT_ABORT], 0);
	CHECK_EQ(cm_destroy_id(&a.cm, p.ida), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, p.idb), 0);
	CHECK_EQ(destroy_qp(&p.qb), 0);
	a.nr_qps--;
	b.nr_qps--;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	CHECK(now_s() - t < 10 * patience());
}

/* modify_qp to ERR ends the connection at once. FAILED reports an error in the engine. */
void test_abrupt(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	struct pollfd pfd = { .events = POLLIN };
	struct pair p;

	establish(&a, &b, listen_id, b_ip, PORT, &p);
	a.seen[USIW_EVENT_ABORT] = 0;
	CHECK_EQ(modify_qp(&p.qa, QPS_ERR), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect_record(&a, USIW_EVENT_ABORT, 1, 1000));
	finish(&a, &b, &p);

	establish(&a, &b, listen_id, b_ip, PORT, &p);
	pfd.fd = a.dev.async_fd;
	CHECK_EQ(qp_report(&p.qa, USIW_REPORT_FAILED, a.last[USIW_EVENT_CONNECT].conn_id, -ETIMEDOUT, 1),
		 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK_EQ(read(a.dev.async_fd, (uint8_t[16]){ 0 }, 16), 16);
	finish(&a, &b, &p);

	/* A record that was not read before the end is never read. */
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	CHECK_EQ(cm_destroy_id(&a.cm, p.ida), 0);
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, p.idb), 0);
	CHECK_EQ(destroy_qp(&p.qa), 0);
	CHECK_EQ(destroy_qp(&p.qb), 0);
	a.nr_qps--;
	b.nr_qps--;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/* Calls of users that iw_cm does not guard against. */
void test_hostile_order(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8), id;
	struct qp qa, qb, qc;
	struct cm_event ev;
	pid_t pid;
	int status;

	/* Accept twice, on the same and on another QP. */
	for (int other = 0; other < 2; other++) {
		end_qp(&a, &qa);
		end_qp(&b, &qb);
		end_qp(&b, &qc);
		b.mute = true;
		id = connect_and_accept(&qa, &qb, &ev);
		status = cm_accept(&b.cm, ev.id, other ? qc.qpn : qb.qpn, 1, 1, NULL, 0);
		CHECK_EQ(status, other ? 0 : -EINVAL);
		engines(&b, 50);
		CHECK_EQ(destroy_qp(&qc), 0);
		CHECK_EQ(destroy_qp(&qb), 0);
		CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
		CHECK(expect(&a, EV_REJECTED, NULL, 3000));
		CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
		CHECK_EQ(destroy_qp(&qa), 0);
		a.nr_qps--;
		b.nr_qps -= 2;
	}

	/* Accept, then reject; the QP must still go, before the id. */
	end_qp(&a, &qa);
	end_qp(&b, &qb);
	id = connect_and_accept(&qa, &qb, &ev);
	CHECK_EQ(cm_reject(&b.cm, ev.id, NULL, 0), 0);
	CHECK(expect(&a, EV_REJECTED, NULL, 3000));
	CHECK_EQ(destroy_qp(&qb), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	b.mute = false;

	/* The QP of another process. */
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, 0xabcdef, 1, 1, NULL, 0), -EINVAL);
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	pid = fork();
	if (!pid) {
		CHECK_EQ(cm_open(&a.cm), 0);
		a.peer = NULL;
		id = resolve_to(&a, b_ip, PORT);
		_exit(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0) == -EINVAL ? 0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(destroy_qp(&qa), 0);
	a.nr_qps--;
	b.nr_qps--;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

void test_wildcard(void)
{
	struct sockaddr_storage any4, any6, mine;
	uint32_t id, id2;
	struct pair p;

	addr_set(&any4, "0.0.0.0", PORT);
	addr_set(&any6, "::", PORT);
	addr_set(&mine, b_ip, PORT);

	id = listen_on(&b, "0.0.0.0", PORT, 8);
	establish(&a, &b, id, b_ip, PORT, &p);
	/* The connection keeps the port when the listener has gone, and a new listener gets it. */
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);
	id = listen_on(&b, "0.0.0.0", PORT, 8);
	hang_up(&a, &p);
	finish(&a, &b, &p);
	enter(&b);
	CHECK_EQ(cm_create_id(&b.cm, &id2), 0);
	CHECK(cm_bind(&b.cm, id2, &mine) < 0);
	CHECK_EQ(cm_destroy_id(&b.cm, id2), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);

	/* A listener on :: receives IPv4 and IPv6. */
	id = listen_on(&b, "::", PORT, 8);
	establish(&a, &b, id, b_ip, PORT, &p);
	finish(&a, &b, &p);
	engines(&a, 50);
	while (expect(&a, EV_DISCONNECTED, NULL, 20) || expect(&b, EV_DISCONNECTED, NULL, 20))
		;
	establish(&a, &b, id, b_ip6, PORT, &p);
	CHECK_EQ(a.last[USIW_EVENT_CONNECT].conn.flags & ~WAY_FLAGS, USIW_CONN_F_INITIATOR | USIW_CONN_F_IPV6);
	hang_up(&b, &p);
	finish(&a, &b, &p);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);
}

/*
 * The application of a listener is slow. The backlog bounds the requests that wait, and none is
 * lost.
 */
void test_many(void)
{
	enum { MAX = 100 };
	static struct qp qa[MAX], qb[MAX];
	uint32_t ids[MAX], idb[MAX], listen_id = listen_on(&b, b_ip, PORT, 16);
	/*
	 * One thread runs all engines and both applications, and has to serve each within the
	 * module's time-outs.
	 */
	const int n = MAX / patience();
	int requests = 0, est_a = 0, est_b = 0, gone = 0;
	struct cm_event ev;
	double t = now_s();

	for (int i = 0; i < n; i++) {
		end_qp(&a, &qa[i]);
		end_qp(&b, &qb[i]);
		ids[i] = resolve_to(&a, b_ip, PORT);
	}
	for (int i = 0; i < n; i++) {
		uint8_t index = i;

		CHECK_EQ(cm_connect(&a.cm, ids[i], qa[i].qpn, 1, 1, &index, 1), 0);
	}
	while ((est_a < n || est_b < n) && now_s() - t < 60 * patience()) {
		engine(&a);
		engine(&b);
		CHECK_EQ(cm_next(&b.cm, &ev, 1), 0);
		if (ev.event == EV_CONNECT_REQUEST) {
			idb[ev.conn.private_data[0] % n] = ev.id;
			CHECK_EQ(cm_accept(&b.cm, ev.id, qb[requests].qpn, 1, 1, "y", 1), 0);
			requests++;
		} else if (ev.event == EV_ESTABLISHED) {
			est_b++;
		}
		CHECK_EQ(cm_next(&a.cm, &ev, 1), 0);
		if (ev.event == EV_ESTABLISHED)
			est_a++;
		else
			CHECK_EQ((int)ev.event, EV_NONE);
	}
	CHECK_EQ(est_a, n);
	CHECK_EQ(est_b, n);
	printf("  %d at once: %.1f s\n", n, now_s() - t);
	for (int i = 0; i < n; i++)
		CHECK_EQ(cm_disconnect(i % 2 ? &a.cm : &b.cm, i % 2 ? ids[i] : idb[i]), 0);
	t = now_s();
	while (gone < 2 * n && now_s() - t < 30 * patience()) {
		engine(&a);
		engine(&b);
		CHECK_EQ(cm_next(&a.cm, &ev, 1), 0);
		gone += ev.event == EV_DISCONNECTED;
		CHECK_EQ(cm_next(&b.cm, &ev, 1), 0);
		gone += ev.event == EV_DISCONNECTED;
	}
	for (int i = 0; gone != 2 * n && i < n; i++)
		printf("  %d: QP states %d and %d\n", i, qp_state(&qa[i], NULL, NULL),
		       qp_state(&qb[i], NULL, NULL));
	CHECK_EQ(gone, 2 * n);
	for (int i = 0; i < n; i++) {
		CHECK_EQ(cm_destroy_id(&a.cm, ids[i]), 0);
		CHECK_EQ(cm_destroy_id(&b.cm, idb[i]), 0);
		CHECK_EQ(destroy_qp(&qa[i]), 0);
		CHECK_EQ(destroy_qp(&qb[i]), 0);
	}
	a.nr_qps = b.nr_qps = 0;

	t = now_s();
	for (int i = 0; i < n; i++) {
		struct pair p;

		establish(&a, &b, listen_id, b_ip, PORT, &p);
		hang_up(&a, &p);
		finish(&a, &b, &p);
	}
	printf("  %d in a row: %.1f s\n", n, now_s() - t);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}
