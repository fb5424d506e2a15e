// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Older and newer providers: structures that are shorter or longer than the module's, bits that the
 * module does not know, and another version of the ABI.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "cases.h"

enum { ROOM = 200, UNTOUCHED = 0xee };

/* Structures of ABI version 2, as its provider sent and expected them. */
struct old_request {
	uint32_t abi_version, reserved;
};

enum { OLD_RESPONSE = 56 };

static bool untouched(const uint8_t *resp, size_t at)
{
	while (at < ROOM)
		if (resp[at++] != UNTOUCHED)
			return false;
	return true;
}

/* Returns the result of GET_CONTEXT with @req on a new file. */
static int context(const void *req, uint32_t req_len, uint8_t *resp, uint32_t resp_len)
{
	int fd = dev_fd(a_dev), async_fd = -1, ret;

	CHECK(fd >= 0);
	memset(resp, UNTOUCHED, ROOM);
	ret = dev_get_context(fd, req, req_len, resp, resp_len, &async_fd);
	close(fd);
	if (!ret)
		close(async_fd);
	return ret;
}

static void test_context_sizes(void)
{
	static const uint32_t sizes[] = { 0, 4, 8, 24, 40, 84, 88, 92, ROOM };
	struct {
		struct usiw_alloc_ucontext_req req;
		uint32_t more[8];
	} newer = { .req = { .abi_version = USIW_ABI_VERSION, .caps = ~0ull } };
	struct usiw_alloc_ucontext_resp info;
	uint8_t resp[ROOM];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t written = sizes[i] < sizeof(info) ? sizes[i] : sizeof(info);

		CHECK_EQ(context(&newer, sizeof(newer.req), resp, sizes[i]), 0);
		CHECK(untouched(resp, written));
		CHECK_EQ(context(&newer, sizeof(newer), resp, sizes[i]), 0);
		CHECK(untouched(resp, written));
	}
	memcpy(&info, resp, sizeof(info));
	CHECK_EQ(info.counters_size, USIW_COUNTERS_SIZE);
	CHECK_EQ(info.comp_mask, 0);
	CHECK_EQ(info.caps & ~(USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE |
			       USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES | USIW_CAP_SILENT),
		 0);

	/* The module refuses unknown bits, unless they are capabilities. */
	newer.more[7] = 1;
	CHECK_EQ(context(&newer, sizeof(newer), resp, ROOM), -EOPNOTSUPP);
	for (int bit = 0; bit < 32; bit++) {
		newer.req.comp_mask = 1u << bit;
		CHECK_EQ(context(&newer, sizeof(newer.req), resp, ROOM), -EOPNOTSUPP);
	}
	CHECK_EQ(context(&newer, sizeof(newer.req) - 4, resp, ROOM), -EINVAL);
}

static void test_other_versions(void)
{
	static const uint32_t versions[] = { 0, 1, 2, USIW_ABI_VERSION + 1, UINT32_MAX };
	struct usiw_alloc_ucontext_resp info;
	uint8_t resp[ROOM];

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		struct old_request req = { .abi_version = versions[i] };

		CHECK_EQ(context(&req, sizeof(req), resp, OLD_RESPONSE), -EPROTO);
		memcpy(&info, resp, sizeof(info));
		CHECK_EQ(info.abi_min, USIW_ABI_VERSION_MIN);
		CHECK_EQ(info.abi_max, USIW_ABI_VERSION);
		CHECK(untouched(resp, OLD_RESPONSE));
		CHECK_EQ(context(&req, sizeof(req), resp, 0), -EPROTO);
	}
}

/* The requests of create_cq and create_qp have the same rules. */
static void test_object(int (*create)(const void *req, uint32_t req_len, void *resp, uint32_t resp_len),
			size_t whole)
{
	static const uint32_t in[] = { 0, 4, 8, 12, 40 }, out[] = { 0, 4, 8, 16, 24, 28, ROOM };
	uint32_t req[10] = { 0 };
	uint8_t resp[ROOM];

	for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
		for (size_t o = 0; o < sizeof(out) / sizeof(out[0]); o++) {
			memset(resp, UNTOUCHED, ROOM);
			CHECK_EQ(create(req, in[i], resp, out[o]), 0);
			CHECK(untouched(resp, out[o] < whole ? out[o] : whole));
		}
	req[9] = 1;
	CHECK_EQ(create(req, sizeof(req), resp, ROOM), -EOPNOTSUPP);
	CHECK_EQ(create(req, 8, resp, ROOM), 0);
	req[1] = 1;
	CHECK_EQ(create(req, 8, resp, ROOM), -EINVAL);
	req[1] = 0;
	req[0] = 1u << 31;
	CHECK_EQ(create(req, 8, resp, ROOM), -EOPNOTSUPP);
	CHECK_EQ(create(req, 4, resp, ROOM), -EOPNOTSUPP);
}

static int make_cq(const void *req, uint32_t req_len, void *resp, uint32_t resp_len)
{
	uint32_t cq;
	int ret = create_cq_with(&a.dev, req, req_len, resp, resp_len, &cq);

	return ret ? ret : destroy_cq(&a.dev, cq);
}

static int make_qp(const void *req, uint32_t req_len, void *resp, uint32_t resp_len)
{
	struct qp qp;
	int ret = create_qp_with(&a.dev, &qp, req, req_len, resp, resp_len);

	return ret ? ret : destroy_qp(&qp);
}

static void test_report_sizes(void)
{
	struct {
		struct usiw_qp_report report;
		uint32_t more[12];
	} newer = { .report = { .kind = USIW_REPORT_READY, .conn_id = 12345 } };
	struct qp qp;

	CHECK_EQ(create_qp(&a.dev, &qp), 0);
	CHECK_EQ(qp_report_with(&qp, &newer, sizeof(newer.report)), 0);
	CHECK_EQ(qp_report_with(&qp, &newer, sizeof(newer)), 0);
	CHECK_EQ(qp_report_with(&qp, &newer, offsetof(struct usiw_qp_report, port)), 0);
	CHECK_EQ(qp_report_with(&qp, &newer, offsetof(struct usiw_qp_report, port) - 1), -EINVAL);
	CHECK_EQ(qp_report_with(&qp, &newer, 4), -EINVAL);
	newer.more[11] = 1u << 31;
	CHECK_EQ(qp_report_with(&qp, &newer, sizeof(newer)), -EOPNOTSUPP);
	CHECK_EQ(qp_report_with(&qp, &newer, sizeof(newer) - 4), 0);
	CHECK_EQ(destroy_qp(&qp), 0);
}

/* A context has one stream, opened before its first QP. It gets no other when that is closed. */
static void test_event_stream(void)
{
	struct usiw_alloc_ucontext_req req = { .abi_version = USIW_ABI_VERSION, .caps = USIW_CAP_DATA_SOCKET };
	struct dev dev = { .fd = dev_fd(a_dev), .comp_fd = -1 };
	uint8_t resp[ROOM];
	struct qp qp;

	CHECK_EQ(open_events(dev.fd), -EINVAL);
	CHECK_EQ(dev_get_context(dev.fd, &req, sizeof(req), resp, ROOM, &dev.async_fd), 0);
	CHECK_EQ(alloc_pd(dev.fd, &dev.pd), 0);
	CHECK_EQ(create_cq(&dev, 16, &dev.cq), 0);
	CHECK_EQ(create_qp(&dev, &qp), -EINVAL);
	dev.event_fd = open_events(dev.fd);
	CHECK(dev.event_fd >= 0);
	CHECK_EQ(open_events(dev.fd), -EBUSY);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	close(dev.event_fd);
	CHECK_EQ(open_events(dev.fd), -EBUSY);
	CHECK_EQ(destroy_qp(&qp), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	close(dev.async_fd);
	close(dev.fd);
}

void test_abi(void)
{
	test_context_sizes();
	test_other_versions();
	test_object(make_cq, sizeof(struct usiw_create_cq_resp));
	test_object(make_qp, sizeof(struct usiw_create_qp_resp));
	test_report_sizes();
	test_event_stream();
}
