// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The module by its raw ABIs: objects, hostile arguments, connections and how they end.
 * Needs the two-ended topology of scripts/vm (A_DEV, A_IP, A_IP6, B_...). Runs all cases, or
 * those named; prints one line for each; exit status 0 if all hold.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ends.h"

const char *a_dev, *b_dev, *a_ip, *b_ip, *a_ip6, *b_ip6;

enum { QPS_RESET, QPS_INIT, QPS_RTR, QPS_RTS, QPS_SQD, QPS_SQE, QPS_ERR };
enum { PORT = 7100 };

static struct end a, b;

/* A command, in the network namespace that was entered last. */
static void sh(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	CHECK_EQ(system(command), 0);
}

/* ---- Objects ----------------------------------------------------------- */

static void test_context(void)
{
	struct usiw_alloc_ucontext_req req = { .abi_version = USIW_ABI_VERSION + 1 };
	struct usiw_alloc_ucontext_resp resp;
	struct usiw_event ev;
	struct pollfd pfd;
	struct dev dev;
	int fd, async_fd;

	fd = dev_fd(a_dev);
	CHECK(fd >= 0);
	CHECK_EQ(dev_get_context(fd, NULL, 0, &resp, &async_fd), -EINVAL);
	CHECK_EQ(dev_get_context(fd, &req, 4, &resp, &async_fd), -EINVAL);
	CHECK_EQ(dev_get_context(fd, &req, sizeof(req), &resp, &async_fd), -EPROTONOSUPPORT);
	req.abi_version = USIW_ABI_VERSION;
	req.reserved = 1;
	CHECK_EQ(dev_get_context(fd, &req, sizeof(req), &resp, &async_fd), -EINVAL);
	close(fd);

	CHECK_EQ(dev_open(&dev, a_dev), 0);
	CHECK_EQ(dev.info.link.up, 1);
	enter(&a);
	CHECK_EQ(dev.info.link.ifindex, if_nametoindex(dev.info.link.ifname));
	CHECK(dev.info.link.mtu >= 576 && dev.info.link.lo_mtu == 9216);
	dev.counters[USIW_CNT_TX_PKTS] = 7;
	CHECK(mmap(NULL, 8192, PROT_READ, MAP_SHARED, dev.fd, dev.info.counters_offset) == MAP_FAILED);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, dev.fd, 4096 * 77) == MAP_FAILED);
	CHECK_EQ(fcntl(dev.event_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	CHECK_EQ(fcntl(dev.event_fd, F_SETFL, O_NONBLOCK), 0);
	CHECK(read(dev.event_fd, &ev, sizeof(ev) - 1) < 0 && errno == EINVAL);
	CHECK(read(dev.event_fd, &ev, sizeof(ev)) < 0 && errno == EAGAIN);
	pfd = (struct pollfd){ .fd = dev.event_fd, .events = POLLIN };
	CHECK_EQ(poll(&pfd, 1, 0), 0);

	/* The event file outlives the context and says so. */
	fd = dup(dev.event_fd);
	dev_close(&dev);
	pfd.fd = fd;
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK(pfd.revents & POLLHUP);
	CHECK_EQ(read(fd, &ev, sizeof(ev)), sizeof(ev));
	CHECK_EQ(ev.type, USIW_EVENT_DEVICE_GONE);
	CHECK_EQ(read(fd, &ev, sizeof(ev)), 0);
	close(fd);
}

static void test_queues(void)
{
	static const struct {
		uint32_t caps[5];
		uint8_t type;
		int ret;
	} cases[] = {
		{ { 16, 16, 1, 1, 0 }, 2, 0 },
		{ { USIW_MAX_QP_WR, USIW_MAX_QP_WR, USIW_MAX_SGE, USIW_MAX_SGE, USIW_MAX_INLINE }, 2, 0 },
		{ { USIW_MAX_QP_WR + 1, 1, 1, 1, 0 }, 2, -EINVAL },
		{ { 1, USIW_MAX_QP_WR + 1, 1, 1, 0 }, 2, -EINVAL },
		{ { 1, 1, USIW_MAX_SGE + 1, 1, 0 }, 2, -EINVAL },
		{ { 1, 1, 1, USIW_MAX_SGE + 1, 0 }, 2, -EINVAL },
		{ { 1, 1, 1, 1, USIW_MAX_INLINE + 1 }, 2, -EINVAL },
		{ { UINT32_MAX, UINT32_MAX, 1, 1, 0 }, 2, -EINVAL },
		{ { 1, 1, 1, 1, 0 }, 3, -EOPNOTSUPP },		/* UC */
		{ { 1, 1, 1, 1, 0 }, 4, -EOPNOTSUPP },		/* UD */
	};
	uint32_t cq;
	struct qp qp;

	CHECK_EQ(create_cq(&a.dev, 0, &cq), -EINVAL);
	CHECK_EQ(create_cq(&a.dev, USIW_MAX_CQE + 1, &cq), -EINVAL);
	CHECK_EQ(create_cq(&a.dev, USIW_MAX_CQE, &cq), 0);
	CHECK_EQ(destroy_cq(&a.dev, cq), 0);
	CHECK_EQ(destroy_cq(&a.dev, a.dev.cq + 77), -ENOENT);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int ret = create_qp_caps(&a.dev, &qp, cases[i].caps, cases[i].type);

		if (ret != cases[i].ret)
			printf("  case %zu\n", i);
		CHECK_EQ(ret, cases[i].ret);
		if (!ret)
			CHECK_EQ(destroy_qp(&qp), 0);
	}
}

static void test_qp_states(void)
{
	struct qp qp;

	end_qp(&a, &qp);
	CHECK_EQ(qp_state(&qp, NULL, NULL), QPS_RESET);
	CHECK_EQ(modify_qp(&qp, QPS_RTR), -EINVAL);
	CHECK_EQ(modify_qp(&qp, QPS_INIT), 0);
	CHECK_EQ(modify_qp(&qp, QPS_RTS), -EINVAL);
	CHECK_EQ(modify_qp(&qp, QPS_RTR), 0);
	CHECK_EQ(modify_qp(&qp, QPS_RTS), -EINVAL);
	CHECK_EQ(modify_qp(&qp, QPS_SQD), -EINVAL);
	CHECK_EQ(modify_qp(&qp, 7), -EINVAL);
	CHECK_EQ(modify_qp(&qp, QPS_ERR), 0);
	CHECK_EQ(qp_state(&qp, NULL, NULL), QPS_ERR);
	CHECK_EQ(modify_qp(&qp, QPS_INIT), -EINVAL);
	CHECK_EQ(modify_qp(&qp, QPS_SQD), 0);
	CHECK_EQ(qp_state(&qp, NULL, NULL), QPS_ERR);
	CHECK_EQ(modify_qp(&qp, QPS_RESET), 0);
	CHECK_EQ(raw_post_send(&qp), -EOPNOTSUPP);
	CHECK_EQ(destroy_qp(&qp), 0);
	CHECK_EQ(modify_qp(&qp, QPS_INIT), -ENOENT);
	a.nr_qps--;
}

static void test_mr(void)
{
	enum { LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, ATOMIC = 8, MW_BIND = 16,
	       RELAXED = 1 << 20 };
	uint32_t handle, lkey, lkey2;
	char *mem, *ro;

	mem = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ro = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(reg_mr(&a.dev, mem, 4 * 4096, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ, &handle, &lkey), 0);
	CHECK(lkey >> 8 > 0 && lkey >> 8 < USIW_MAX_MR);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), -ENOENT);
	CHECK_EQ(reg_mr(&a.dev, mem, 100, LOCAL_WRITE | RELAXED, &handle, &lkey2), 0);
	CHECK(lkey2 >> 8 != lkey >> 8);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, mem, 0, LOCAL_WRITE, &handle, &lkey), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, ro, 4096, REMOTE_READ, &handle, &lkey), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, ro, 4096, LOCAL_WRITE, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, 10, REMOTE_WRITE, NULL, NULL), -EINVAL);
	CHECK_EQ(reg_mr(&a.dev, mem, 10, LOCAL_WRITE | ATOMIC, NULL, NULL), -EOPNOTSUPP);
	CHECK_EQ(reg_mr(&a.dev, mem, 10, LOCAL_WRITE | MW_BIND, NULL, NULL), -EOPNOTSUPP);
	munmap(mem + 2 * 4096, 4096);
	CHECK_EQ(reg_mr(&a.dev, mem, 4 * 4096, LOCAL_WRITE, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, 2 * 4096, LOCAL_WRITE, &handle, NULL), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, (void *)4096, 4096, 0, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, 1ull << 63, LOCAL_WRITE, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, UINT64_MAX, LOCAL_WRITE, NULL, NULL), -EFAULT);
	munmap(mem, 4 * 4096);
	munmap(ro, 4096);
}

static void test_methods(void)
{
	struct pollfd pfd = { .fd = a.dev.comp_fd, .events = POLLIN };
	uint64_t desc;
	struct qp qp;

	end_qp(&a, &qp);
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	CHECK_EQ(cq_event(&a.dev, a.dev.cq, USIW_CQ_COMPLETION), 0);
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK_EQ(read(a.dev.comp_fd, &desc, sizeof(desc)), sizeof(desc));
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	CHECK_EQ(cq_event(&a.dev, a.dev.cq, 2), -EINVAL);
	CHECK_EQ(cq_event(&a.dev, a.dev.cq + 77, 0), -ENOENT);
	CHECK_EQ(cq_event(&a.dev, qp.handle, 0), -EINVAL);
	pfd.fd = a.dev.async_fd;
	CHECK_EQ(cq_event(&a.dev, a.dev.cq, USIW_CQ_OVERRUN), 0);
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK_EQ(read(a.dev.async_fd, (uint8_t[16]){ 0 }, 16), 16);

	CHECK_EQ(qp_report(&qp, USIW_REPORT_ASYNC, 0, 0, 3), 0);
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK_EQ(read(a.dev.async_fd, (uint8_t[16]){ 0 }, 16), 16);
	CHECK_EQ(qp_report(&qp, USIW_REPORT_READY, 12345, 0, 0), 0);	/* stale: ignored */
	CHECK_EQ(qp_report(&qp, 0, 1, 0, 0), -EINVAL);
	CHECK_EQ(qp_report(&qp, 7, 1, 0, 0), -EINVAL);
	CHECK_EQ(qp_report(&qp, USIW_REPORT_FAILED, 1, 5, 0), -EINVAL);
	CHECK_EQ(qp_report(&qp, USIW_REPORT_FAILED, 1, -99999, 0), -EINVAL);
	CHECK_EQ(qp_report(&qp, USIW_REPORT_ASYNC, 1, 0, 1000), -EINVAL);
	CHECK_EQ(destroy_qp(&qp), 0);
	a.nr_qps--;
}

/* ---- Connections ------------------------------------------------------- */

static void test_connect(void)
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
	CHECK_EQ(ia->flags, USIW_CONN_F_INITIATOR);
	CHECK_EQ(ib->flags, 0);
	CHECK(ia->ord == 8 && ib->ird >= 8 && ia->ird >= 4 && ib->ord == 4);
	CHECK(ia->mtu == ib->mtu && ia->mtu >= 576 && ia->hop_limit > 1 && ia->snd_window > 0);
	CHECK_EQ(qp_state(&p.qa, &ird, &ord), QPS_RTS);
	CHECK_EQ(ord, 8);
	CHECK_EQ(qp_state(&p.qb, NULL, NULL), QPS_RTS);

	CHECK_EQ(cm_disconnect(&a.cm, p.ida), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK_EQ(qp_state(&p.qa, NULL, NULL), QPS_ERR);
	CHECK_EQ(qp_state(&p.qb, NULL, NULL), QPS_ERR);
	finish(&a, &b, &p);

	/* The other way round, and both at once. */
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	CHECK_EQ(cm_disconnect(&b.cm, p.idb), 0);
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	finish(&a, &b, &p);
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	CHECK_EQ(cm_disconnect(&b.cm, p.idb), 0);
	CHECK_EQ(cm_disconnect(&a.cm, p.ida), 0);
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	finish(&a, &b, &p);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

static void test_reject(void)
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

	/* Nobody listens: told soon; one who is just starting is waited for. */
	id = resolve_to(&a, b_ip, PORT + 1);
	t = now_s();
	CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&a, EV_REJECTED, &ev, 3000));
	CHECK(now_s() - t < 2.5 * patience());
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	CHECK_EQ(destroy_qp(&qp), 0);
	a.nr_qps--;
}

/* A UDP socket of somebody else's swallows the REQs. */
static void test_silence(void)
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

static void test_refused_by_engine(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8), id;
	struct cm_event ev;
	struct qp qa, qb;

	a.refuse = -ENOMEM;
	end_qp(&a, &qa);
	end_qp(&b, &qb);
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_accept(&b.cm, ev.id, qb.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&a, EV_CONNECT_ERROR, NULL, 3000));
	/* What iw_cm can be told after accept: established, and at once disconnected. */
	CHECK(expect(&b, EV_ESTABLISHED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	a.refuse = 0;

	CHECK_EQ(modify_qp(&qa, QPS_RESET), 0);
	CHECK_EQ(modify_qp(&qb, QPS_RESET), 0);
	b.refuse = -ENOMEM;
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_accept(&b.cm, ev.id, qb.qpn, 1, 1, NULL, 0), 0);
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

/* The QP goes first, in every state of its connection; nothing may wait for anything. */
static void test_destroy_qp_first(void)
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
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_accept(&b.cm, ev.id, qb.qpn, 1, 1, NULL, 0), 0);
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
	a.seen[USIW_EVENT_KILL] = b.seen[USIW_EVENT_KILL] = 0;
	CHECK_EQ(destroy_qp(&p.qa), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect_record(&b, USIW_EVENT_KILL, 1, 1000));
	CHECK_EQ(b.last[USIW_EVENT_KILL].conn.reason, USIW_KILL_PEER_RESET);
	CHECK_EQ(a.seen[USIW_EVENT_KILL], 0);
	CHECK_EQ(cm_destroy_id(&a.cm, p.ida), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, p.idb), 0);
	CHECK_EQ(destroy_qp(&p.qb), 0);
	a.nr_qps--;
	b.nr_qps--;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	CHECK(now_s() - t < 10 * patience());
}

/* Modify to ERROR is an abrupt end; FAILED reports one that the engine met. */
static void test_abrupt(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	struct pollfd pfd = { .events = POLLIN };
	struct pair p;

	establish(&a, &b, listen_id, b_ip, PORT, &p);
	a.seen[USIW_EVENT_KILL] = 0;
	CHECK_EQ(modify_qp(&p.qa, QPS_ERR), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect_record(&a, USIW_EVENT_KILL, 1, 1000));
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

	/* A record that was not read before the end is not read after it. */
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

/* Users that iw_cm does not protect itself from. */
static void test_hostile_order(void)
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
		id = resolve_to(&a, b_ip, PORT);
		CHECK_EQ(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0), 0);
		CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
		CHECK_EQ(cm_accept(&b.cm, ev.id, qb.qpn, 1, 1, NULL, 0), 0);
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
	id = resolve_to(&a, b_ip, PORT);
	CHECK_EQ(cm_connect(&a.cm, id, qa.qpn, 1, 1, NULL, 0), 0);
	CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 3000));
	CHECK_EQ(cm_accept(&b.cm, ev.id, qb.qpn, 1, 1, NULL, 0), 0);
	CHECK_EQ(cm_reject(&b.cm, ev.id, NULL, 0), 0);
	CHECK(expect(&a, EV_REJECTED, NULL, 3000));
	CHECK_EQ(destroy_qp(&qb), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
	CHECK_EQ(cm_destroy_id(&a.cm, id), 0);
	b.mute = false;

	/* Somebody else's QP. */
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

static void test_wildcard(void)
{
	struct sockaddr_storage any4, any6, mine;
	uint32_t id, id2;
	struct pair p;

	addr_set(&any4, "0.0.0.0", PORT);
	addr_set(&any6, "::", PORT);
	addr_set(&mine, b_ip, PORT);

	id = listen_on(&b, "0.0.0.0", PORT, 8);
	establish(&a, &b, id, b_ip, PORT, &p);
	/* The connection keeps the port when the listener goes, and a new one finds it. */
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);
	id = listen_on(&b, "0.0.0.0", PORT, 8);
	CHECK_EQ(cm_disconnect(&a.cm, p.ida), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	finish(&a, &b, &p);
	enter(&b);
	CHECK_EQ(cm_create_id(&b.cm, &id2), 0);
	CHECK(cm_bind(&b.cm, id2, &mine) < 0);
	CHECK_EQ(cm_destroy_id(&b.cm, id2), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);

	/* :: takes IPv4 and IPv6. */
	id = listen_on(&b, "::", PORT, 8);
	establish(&a, &b, id, b_ip, PORT, &p);
	finish(&a, &b, &p);
	engines(&a, 50);
	while (expect(&a, EV_DISCONNECTED, NULL, 20) || expect(&b, EV_DISCONNECTED, NULL, 20))
		;
	establish(&a, &b, id, b_ip6, PORT, &p);
	CHECK_EQ(a.last[USIW_EVENT_CONNECT].conn.flags, USIW_CONN_F_INITIATOR | USIW_CONN_F_IPV6);
	CHECK_EQ(cm_disconnect(&b.cm, p.idb), 0);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	finish(&a, &b, &p);
	CHECK_EQ(cm_destroy_id(&b.cm, id), 0);
}

/* A listener whose application is slow: the backlog bounds what waits, nobody is lost. */
static void test_many(void)
{
	enum { MAX = 100 };
	static struct qp qa[MAX], qb[MAX];
	uint32_t ids[MAX], idb[MAX], listen_id = listen_on(&b, b_ip, PORT, 16);
	/* One thread is all the engines and both applications: it has to come round within the module's own time-outs. */
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
		CHECK_EQ(cm_disconnect(&a.cm, p.ida), 0);
		CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
		CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
		finish(&a, &b, &p);
	}
	printf("  %d in a row: %.1f s\n", n, now_s() - t);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/* ---- Death ------------------------------------------------------------- */

/* A child that goes as far as @stage, then waits to be killed. */
static pid_t child(int stage, int port)
{
	pid_t pid = fork();
	uint32_t id;
	struct qp qp;

	if (pid)
		return pid;
	end_open(&a, a_dev, a_ip);
	end_qp(&a, &qp);
	if (stage >= 1)
		id = resolve_to(&a, b_ip, port);
	a.mute = stage < 3;
	if (stage >= 2)
		CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, "k", 1), 0);
	for (;;)
		engines(&a, 1000);
}

static void kill_and_reap(pid_t pid, int stage)
{
	double t = now_s();
	int status;

	kill(pid, SIGKILL);
	while (waitpid(pid, &status, WNOHANG) == 0 && now_s() - t < 5 * patience())
		engines(&b, 10);
	if (now_s() - t >= 5 * patience()) {
		char command[64];

		printf("  stage %d: cannot be killed:\n", stage);
		snprintf(command, sizeof(command), "cat /proc/%d/stack", pid);
		CHECK_EQ(system(command), 0);
	}
	CHECK(now_s() - t < 5 * patience());
	CHECK(WIFSIGNALED(status));
}

static void test_kill(void)
{
	uint32_t listen_id;
	struct cm_event ev;
	struct qp qp;
	pid_t pid;

	ends_close(&a, &b);
	end_open(&b, b_dev, b_ip);
	listen_id = listen_on(&b, b_ip, PORT, 8);
	for (int stage = 0; stage < 6; stage++) {
		pid = child(stage, PORT);
		end_qp(&b, &qp);
		if (stage < 2)
			engines(&b, 300);
		else
			CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 5000));
		if (stage >= 3)
			CHECK_EQ(cm_accept(&b.cm, ev.id, qp.qpn, 1, 1, NULL, 0), 0);
		if (stage >= 4)
			CHECK(expect(&b, EV_ESTABLISHED, NULL, 5000));
		b.seen[USIW_EVENT_KILL] = 0;
		kill_and_reap(pid, stage);
		if (stage == 3)
			CHECK(expect(&b, EV_ESTABLISHED, NULL, 5000));
		if (stage >= 3)
			CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
		if (stage >= 2)
			CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
		CHECK_EQ(destroy_qp(&qp), 0);
		b.nr_qps--;
	}
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	end_close(&b);
	ends_open(&a, &b);
}

/* ---- The netdev -------------------------------------------------------- */

/* The MAC of a netdev of this network namespace, as text. */
static void mac_of(const char *ifname, char text[18])
{
	struct ifreq req = {};
	const unsigned char *mac = (unsigned char *)req.ifr_hwaddr.sa_data;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", ifname);
	CHECK_EQ(ioctl(fd, SIOCGIFHWADDR, &req), 0);
	close(fd);
	snprintf(text, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

static void test_netdev(void)
{
	const char *va = a.dev.info.link.ifname, *vb = b.dev.info.link.ifname;
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	char mac[18];
	struct pair p;

	a.seen[USIW_EVENT_LINK] = 0;
	enter(&a);
	sh("ip link set %s mtu 1400", va);
	CHECK(expect_record(&a, USIW_EVENT_LINK, 1, 2000));
	CHECK_EQ(a.last[USIW_EVENT_LINK].link.mtu, 1400);
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	CHECK_EQ(a.last[USIW_EVENT_CONNECT].conn.mtu, 1400);
	CHECK_EQ(b.last[USIW_EVENT_CONNECT].conn.mtu, 1400);

	/* The peer's MAC changes, and the kernel learns it. */
	enter(&b);
	mac_of(vb, mac);
	sh("ip link set %s address 02:00:00:00:00:77", vb);
	enter(&a);
	sh("ip neigh replace %s lladdr 02:00:00:00:00:77 dev %s", b_ip, va);
	CHECK(expect_record(&a, USIW_EVENT_NEIGH, 1, 3000));
	CHECK_EQ(a.last[USIW_EVENT_NEIGH].conn.remote_mac[5], 0x77);
	/* Who still knows the old one, by IPv6 say, would miss it for seconds. */
	enter(&b);
	sh("ip link set %s address %s", vb, mac);
	enter(&a);
	sh("ip neigh del %s dev %s", b_ip, va);

	/* An address that goes takes its connections with it. */
	a.seen[USIW_EVENT_KILL] = 0;
	sh("ip addr del %s/%d dev %s", a_ip, a.ns_fd < 0 ? 32 : 24, va);
	CHECK(expect_record(&a, USIW_EVENT_KILL, 1, 3000));
	CHECK_EQ(a.last[USIW_EVENT_KILL].conn.reason, USIW_KILL_ADDRESS);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	sh("ip addr add %s/%d dev %s", a_ip, a.ns_fd < 0 ? 32 : 24, va);
	sh("ip link set %s mtu 1500", va);
	if (a.ns_fd < 0)
		sh("ip route replace %s dev %s src %s table 101", b_ip, va, a_ip);
	finish(&a, &b, &p);
	while (expect(&b, EV_DISCONNECTED, NULL, 50))
		;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/* ---- Datagrams --------------------------------------------------------- */

static void put32(uint8_t *p, uint32_t v)
{
	v = htonl(v);
	memcpy(p, &v, 4);
}

static void test_datagrams(void)
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
	/* Real requests from many ports, never followed up: only so many wait. */
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

	/* The connection has not noticed. */
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

/* ---- Removal ----------------------------------------------------------- */

static void test_remove(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	char va[16];
	struct usiw_event ev;
	struct pair p;
	double t;

	memcpy(va, a.dev.info.link.ifname, sizeof(va));
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	t = now_s();
	enter(&a);
	sh("rdma link delete %s", a_dev);
	CHECK(now_s() - t < 5 * patience());
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect_record(&a, USIW_EVENT_DEVICE_GONE, 1, 1000));
	CHECK_EQ(read(a.dev.event_fd, &ev, sizeof(ev)), 0);
	CHECK_EQ(qp_state(&p.qa, NULL, NULL), -EIO);
	end_close(&a);
	CHECK_EQ(cm_destroy_id(&b.cm, p.idb), 0);
	CHECK_EQ(destroy_qp(&p.qb), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	sh("rdma link add %s type usiw netdev %s", a_dev, va);
	CHECK(system("rdma link add usiwx type usiw netdev lo >/dev/null && "
		     "! rdma link add usiwy type usiw netdev lo 2>/dev/null && "
		     "rdma link delete usiwx") == 0);
	usleep(300000);
	end_close(&b);
	ends_open(&a, &b);
}

/* A network namespace goes, with its devices, under contexts and sockets. */
static void test_netns(void)
{
	struct sockaddr_storage any;
	struct pollfd pfd;
	struct dev dev;
	struct qp qp;
	struct cm cm;
	uint32_t id;
	double t;
	int fd;

	sh("ip netns add usiw-t");
	sh("ip -n usiw-t link add vt type veth peer name vu && ip -n usiw-t link set vt up && "
	   "ip -n usiw-t link set vu up && ip -n usiw-t link set lo up && "
	   "ip -n usiw-t addr add 10.77.0.1/24 dev vt");
	sh("ip netns exec usiw-t rdma link add usiwt type usiw netdev vt && "
	   "ip netns exec usiw-t rdma link add usiwl type usiw netdev lo");
	fd = open("/run/netns/usiw-t", O_RDONLY | O_CLOEXEC);
	CHECK_EQ(setns(fd, CLONE_NEWNET), 0);
	close(fd);
	CHECK_EQ(dev_open(&dev, "usiwt"), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	CHECK_EQ(cm_open(&cm), 0);
	addr_set(&any, "::", PORT + 1);
	CHECK_EQ(cm_create_id(&cm, &id), 0);
	CHECK_EQ(cm_bind(&cm, id, &any), 0);
	CHECK_EQ(cm_listen(&cm, id, 8), 0);
	sh("grep -q usiw /proc/modules && ss -uanHp | grep -q ':%d '", PORT + 1);
	/* rdma_cm's ids hold the namespace, nothing of usiw's does. */
	cm_close(&cm);
	fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK_EQ(setns(fd, CLONE_NEWNET), 0);
	close(fd);
	t = now_s();
	sh("ip netns del usiw-t");
	pfd = (struct pollfd){ .fd = dev.event_fd, .events = POLLIN };
	for (int i = 0; i < 100 && !(pfd.revents & POLLHUP); i++) {
		poll(&pfd, 1, 0);
		usleep(100000);
	}
	CHECK(pfd.revents & POLLHUP);
	printf("  gone after %.1f s\n", now_s() - t);
	dev_close(&dev);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "context", test_context },
	{ "counters", test_counters },
	{ "queues", test_queues },
	{ "qp_states", test_qp_states },
	{ "mr", test_mr },
	{ "methods", test_methods },
	{ "connect", test_connect },
	{ "reject", test_reject },
	{ "silence", test_silence },
	{ "refused_by_engine", test_refused_by_engine },
	{ "destroy_qp_first", test_destroy_qp_first },
	{ "abrupt", test_abrupt },
	{ "hostile_order", test_hostile_order },
	{ "wildcard", test_wildcard },
	{ "many", test_many },
	{ "kill", test_kill },
	{ "netdev", test_netdev },
	{ "datagrams", test_datagrams },
	{ "remove", test_remove },
	{ "netns", test_netns },
};

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 1;
}

/* uapi_test [CASE ...]; uapi_test --list names the cases. */
int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			puts(tests[i].name);
		return 0;
	}
	a_dev = getenv("A_DEV");
	b_dev = getenv("B_DEV");
	a_ip = getenv("A_IP");
	b_ip = getenv("B_IP");
	a_ip6 = getenv("A_IP6");
	b_ip6 = getenv("B_IP6");
	if (!a_dev || !b_dev || !a_ip || !b_ip || !a_ip6 || !b_ip6) {
		fprintf(stderr, "uapi_test: run it by scripts/vm, which sets A_DEV, A_IP ...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	ends_open(&a, &b);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		double t = now_s();

		if (!wanted(tests[i].name, argc, argv))
			continue;
		tests[i].run();
		printf("ok %s (%.1f s)\n", tests[i].name, now_s() - t);
	}
	ends_close(&a, &b);
	return 0;
}
