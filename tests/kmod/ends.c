// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

double patience(void)
{
	const char *text = getenv("VM_PATIENCE");
	double factor = text ? atof(text) : 1;

	return factor > 1 ? factor : 1;
}

void enter(const struct end *end)
{
	if (end->ns_fd >= 0)
		CHECK_EQ(setns(end->ns_fd, CLONE_NEWNET), 0);
}

static int open_ns(const char *name)
{
	char path[128];
	int fd;

	if (!name || !*name)
		return -1;
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

void end_open(struct end *end, const char *ibdev, const char *ip)
{
	end_open_with(end, ibdev, ip, USIW_CAP_DATA_SOCKET);
}

void end_open_with(struct end *end, const char *ibdev, const char *ip, uint64_t caps)
{
	memset(end, 0, sizeof(*end));
	end->ns_fd = open_ns(getenv(ip == a_ip ? "A_NS" : "B_NS"));
	enter(end);
	CHECK_EQ(dev_open_with(&end->dev, ibdev, caps), 0);
	CHECK_EQ(cm_open(&end->cm), 0);
	CHECK_EQ(fcntl(end->dev.event_fd, F_SETFL, O_NONBLOCK), 0);
	end->ip = ip;
}

void end_close(struct end *end)
{
	cm_close(&end->cm);
	dev_close(&end->dev);
	if (end->ns_fd >= 0)
		close(end->ns_fd);
}

void ends_open(struct end *a, struct end *b)
{
	end_open(a, a_dev, a_ip);
	end_open(b, b_dev, b_ip);
	a->peer = b;
	b->peer = a;
}

void ends_close(struct end *a, struct end *b)
{
	end_close(a);
	end_close(b);
}

struct qp *end_qp(struct end *end, struct qp *qp)
{
	CHECK_EQ(create_qp(&end->dev, qp), 0);
	CHECK(end->nr_qps < MAX_LINKS);
	end->qps[end->nr_qps++] = qp;
	return qp;
}

static struct qp *find_qp(struct end *end, uint32_t qpn)
{
	for (int i = end->nr_qps - 1; i >= 0; i--)
		if (end->qps[i]->qpn == qpn)
			return end->qps[i];
	return NULL;
}

static struct link *find_link(struct end *end, uint16_t local, uint16_t remote)
{
	for (int i = 0; i < end->nr_links; i++)
		if (end->links[i].open && end->links[i].local_port == local &&
		    end->links[i].remote_port == remote)
			return &end->links[i];
	return NULL;
}

static void on_connect(struct end *end, const struct usiw_event *ev)
{
	struct link link = { ev->conn_id, ev->qpn, ev->conn.local_port, ev->conn.remote_port, true };
	struct qp *qp = find_qp(end, ev->qpn);

	end->links[end->nr_links++ % MAX_LINKS] = link;
	if (end->nr_links == MAX_LINKS)
		end->nr_links = 0;
	if (end->mute || !qp)
		return;
	if (end->dev.info.caps & USIW_CAP_PORT_REPORT)
		CHECK_EQ(qp_report_port(qp, ev->conn_id, ev->conn.flags & USIW_CONN_F_PACKET ?
					USIW_PORT_PACKET : USIW_PORT_SOCKET, USIW_PORT_WHY_FASTEST), 0);
	CHECK_EQ(qp_report(qp, end->refuse ? USIW_REPORT_REFUSED : USIW_REPORT_READY, ev->conn_id,
			   end->refuse, 0), 0);
}

/* The work of the data path: the peer gets SHUTDOWN, and this end the acknowledgement. */
static void on_disconnect(struct end *end, const struct usiw_event *ev)
{
	struct link *mine = find_link(end, ev->conn.local_port, ev->conn.remote_port);
	struct link *peers = end->peer ? find_link(end->peer, ev->conn.remote_port,
						   ev->conn.local_port) : NULL;
	struct qp *qp;

	if (peers && (qp = find_qp(end->peer, peers->qpn))) {
		qp_report(qp, USIW_REPORT_PEER_CLOSED, peers->conn_id, 0, 0);
		peers->open = false;
	}
	qp = find_qp(end, ev->qpn);
	if (qp)
		qp_report(qp, USIW_REPORT_CLOSED, ev->conn_id, 0, 0);
	if (mine)
		mine->open = false;
}

void engine(struct end *end)
{
	struct usiw_event ev[4];
	ssize_t len;

	while ((len = read(end->dev.event_fd, ev, sizeof(ev))) > 0) {
		CHECK_EQ(len % sizeof(ev[0]), 0);
		for (size_t i = 0; i < len / sizeof(ev[0]); i++) {
			CHECK(ev[i].type < 8);
			end->seen[ev[i].type]++;
			end->last[ev[i].type] = ev[i];
			if (ev[i].type == USIW_EVENT_CONNECT)
				on_connect(end, &ev[i]);
			else if (ev[i].type == USIW_EVENT_DISCONNECT)
				on_disconnect(end, &ev[i]);
			else if (ev[i].type == USIW_EVENT_ABORT) {
				struct link *l = find_link(end, ev[i].conn.local_port,
							   ev[i].conn.remote_port);
				if (l)
					l->open = false;
			}
		}
	}
}

void engines(struct end *end, int ms)
{
	double until = now_s() + ms * 1e-3;

	do {
		engine(end);
		if (end->peer)
			engine(end->peer);
		usleep(2000);
	} while (now_s() < until);
}

bool expect(struct end *end, uint32_t event, struct cm_event *ev, int ms)
{
	double until = now_s() + ms * 1e-3 * patience();
	struct cm_event local;

	if (!ev)
		ev = &local;
	do {
		engine(end);
		if (end->peer)
			engine(end->peer);
		CHECK_EQ(cm_next(&end->cm, ev, 2), 0);
		if (ev->event != (uint32_t)EV_NONE && ev->event != event)
			printf("  (event %u, status %d, while waiting for %u)\n", ev->event, ev->status,
			       event);
	} while (ev->event == (uint32_t)EV_NONE && now_s() < until);
	return ev->event == event;
}

bool expect_record(struct end *end, uint32_t type, int count, int ms)
{
	double until = now_s() + ms * 1e-3 * patience();

	while (end->seen[type] < count && now_s() < until)
		engines(end, 2);
	return end->seen[type] >= count;
}

uint32_t listen_on(struct end *end, const char *ip, int port, int backlog)
{
	struct sockaddr_storage addr;
	uint32_t id;

	addr_set(&addr, ip, port);
	enter(end);
	CHECK_EQ(cm_create_id(&end->cm, &id), 0);
	CHECK_EQ(cm_bind(&end->cm, id, &addr), 0);
	CHECK_EQ(cm_listen(&end->cm, id, backlog), 0);
	return id;
}

uint32_t resolve_to(struct end *end, const char *ip, int port)
{
	struct sockaddr_storage dst, src;
	uint32_t id;

	addr_set(&dst, ip, port);
	addr_set(&src, strchr(ip, ':') ? a_ip6 : end->ip, 0);
	enter(end);
	CHECK_EQ(cm_create_id(&end->cm, &id), 0);
	CHECK_EQ(cm_resolve_addr(&end->cm, id, &src, &dst), 0);
	CHECK(expect(end, EV_ADDR_RESOLVED, NULL, 3000));
	CHECK_EQ(cm_resolve_route(&end->cm, id), 0);
	CHECK(expect(end, EV_ROUTE_RESOLVED, NULL, 3000));
	return id;
}

void establish(struct end *a, struct end *b, uint32_t listen_id, const char *ip, int port,
	       struct pair *pair)
{
	struct cm_event ev;

	(void)listen_id;
	end_qp(a, &pair->qa);
	end_qp(b, &pair->qb);
	pair->ida = resolve_to(a, ip, port);
	CHECK_EQ(cm_connect(&a->cm, pair->ida, pair->qa.qpn, 4, 8, "hello", 5), 0);
	CHECK(expect(b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(ev.conn.private_data_len, 5);
	CHECK(!memcmp(ev.conn.private_data, "hello", 5));
	CHECK_EQ(ev.conn.initiator_depth, 4);
	CHECK_EQ(ev.conn.responder_resources, 8);
	pair->idb = ev.id;
	CHECK_EQ(cm_accept(&b->cm, pair->idb, pair->qb.qpn, 8, 4, "welcome", 7), 0);
	CHECK(expect(a, EV_ESTABLISHED, &ev, 3000));
	CHECK_EQ(ev.status, 0);
	CHECK_EQ(ev.conn.private_data_len, 7);
	CHECK(!memcmp(ev.conn.private_data, "welcome", 7));
	CHECK_EQ(ev.conn.initiator_depth, 8);
	CHECK_EQ(ev.conn.responder_resources, 4);
	CHECK(expect(b, EV_ESTABLISHED, &ev, 3000));
	CHECK_EQ(ev.status, 0);
}

void finish(struct end *a, struct end *b, struct pair *pair)
{
	CHECK_EQ(cm_destroy_id(&a->cm, pair->ida), 0);
	CHECK_EQ(cm_destroy_id(&b->cm, pair->idb), 0);
	CHECK_EQ(destroy_qp(&pair->qa), 0);
	CHECK_EQ(destroy_qp(&pair->qb), 0);
	a->nr_qps--;
	b->nr_qps--;
}
