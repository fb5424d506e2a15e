// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Contexts, CQs, QPs, memory regions and the methods of usiw, with valid and hostile arguments. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

void test_context(void)
{
	struct usiw_alloc_ucontext_req req = { .abi_version = USIW_ABI_VERSION + 1 };
	struct usiw_alloc_ucontext_resp resp = {};
	struct usiw_event ev;
	struct pollfd pfd;
	struct dev dev;
	int fd, async_fd;

	fd = dev_fd(a_dev);
	CHECK(fd >= 0);
	CHECK_EQ(dev_get_context(fd, NULL, 0, &resp, sizeof(resp), &async_fd), -EINVAL);
	CHECK_EQ(dev_get_context(fd, &req, sizeof(req), &resp, sizeof(resp), &async_fd), -EPROTO);
	CHECK_EQ(resp.abi_min, USIW_ABI_VERSION_MIN);
	CHECK_EQ(resp.abi_max, USIW_ABI_VERSION);
	req.abi_version = USIW_ABI_VERSION;
	CHECK_EQ(dev_get_context(fd, &req, 8, &resp, sizeof(resp), &async_fd), -EINVAL);
	req.comp_mask = 1;
	CHECK_EQ(dev_get_context(fd, &req, sizeof(req), &resp, sizeof(resp), &async_fd), -EOPNOTSUPP);
	CHECK_EQ(open_events(fd), -EINVAL);
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

	/* The event file outlives the context and reports its end. */
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

void test_queues(void)
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

void test_qp_states(void)
{
	struct qp qp;

	end_qp(&a, &qp);
	CHECK_EQ(qp_state(&qp, NULL, NULL), QPS_INIT);
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

void test_mr(void)
{
	enum { LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, ATOMIC = 8, MW_BIND = 16,
	       ON_DEMAND = 64, RELAXED = 1 << 20 };
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
	CHECK_EQ(reg_mr(&a.dev, mem, 10, ATOMIC, NULL, NULL), -EINVAL);
	CHECK_EQ(reg_mr(&a.dev, mem, 10, LOCAL_WRITE | ATOMIC, &handle, &lkey), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, mem, 10, LOCAL_WRITE | MW_BIND, &handle, &lkey), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	munmap(mem + 2 * 4096, 4096);
	CHECK_EQ(reg_mr(&a.dev, mem, 4 * 4096, LOCAL_WRITE, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, 2 * 4096, LOCAL_WRITE, &handle, NULL), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, (void *)4096, 4096, 0, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, USIW_MAX_MR_SIZE, LOCAL_WRITE, NULL, NULL), -EFAULT);
	CHECK_EQ(reg_mr(&a.dev, mem, USIW_MAX_MR_SIZE + 1, LOCAL_WRITE, NULL, NULL), -EINVAL);
	CHECK_EQ(reg_mr(&a.dev, mem, UINT64_MAX, LOCAL_WRITE, NULL, NULL), -EINVAL);
	CHECK_EQ(reg_mr(&a.dev, mem, UINT64_MAX, LOCAL_WRITE | ON_DEMAND, NULL, NULL), -EINVAL);
	CHECK_EQ(reg_mr(&a.dev, NULL, UINT64_MAX, LOCAL_WRITE | ON_DEMAND, &handle, NULL), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	CHECK_EQ(reg_mr(&a.dev, mem + 2 * 4096, 4096, LOCAL_WRITE | ON_DEMAND, &handle, NULL), 0);
	CHECK_EQ(dereg_mr(&a.dev, handle), 0);
	munmap(mem, 4 * 4096);
	munmap(ro, 4096);
}

void test_methods(void)
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
