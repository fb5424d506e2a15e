// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include "raw.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { QPS_ATTR_STATE = 1 };

/*
 * A command of uverbs' write(2) ABI: the header, the structure of the command, the data of the
 * driver.
 */
static int verb(int fd, uint32_t command, const void *cmd, size_t cmd_len, const void *drv,
		size_t drv_len, size_t resp_len)
{
	uint8_t buf[512] = {};
	struct ib_uverbs_cmd_hdr *hdr = (void *)buf;
	size_t len = sizeof(*hdr) + cmd_len + drv_len;

	hdr->command = command;
	hdr->in_words = len / 4;
	hdr->out_words = resp_len / 4;
	memcpy(buf + sizeof(*hdr), cmd, cmd_len);
	if (drv_len)
		memcpy(buf + sizeof(*hdr) + cmd_len, drv, drv_len);
	return write(fd, buf, len) == (ssize_t)len ? 0 : -errno;
}

int dev_fd(const char *ibdev)
{
	char path[256], name[64];
	struct dirent *entry;
	int fd = -ENODEV;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband_verbs");
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/%.100s/ibdev", entry->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%63s", name) == 1 && !strcmp(name, ibdev)) {
			snprintf(path, sizeof(path), "/dev/infiniband/%.100s", entry->d_name);
			fd = open(path, O_RDWR | O_CLOEXEC);
			if (fd < 0)
				fd = -errno;
		}
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return fd;
}

int dev_get_context(int fd, const void *req, uint32_t req_len, void *resp, uint32_t resp_len, int *async_fd)
{
	union {
		struct ib_uverbs_get_context_resp core;
		uint8_t room[256];
	} out = {};
	struct ib_uverbs_get_context cmd = { .response = (uintptr_t)&out };
	int ret;

	memcpy(out.room + sizeof(out.core), resp, resp_len);
	ret = verb(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &cmd, sizeof(cmd), req, req_len,
		   sizeof(out.core) + resp_len);
	memcpy(resp, out.room + sizeof(out.core), resp_len);
	if (!ret)
		*async_fd = out.core.async_fd;
	return ret;
}

int open_events(int fd)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attr;
	} cmd = {
		.hdr = {
			.length = sizeof(cmd), .object_id = USIW_OBJECT_EVENT_FILE,
			.method_id = USIW_METHOD_EVENT_FILE_ALLOC, .num_attrs = 1,
			.driver_id = USIW_DRIVER_ID,
		},
		.attr = { .attr_id = USIW_ATTR_EVENT_FILE_HANDLE, .flags = UVERBS_ATTR_F_MANDATORY },
	};

	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd) ? -errno : (int)cmd.attr.data_s64;
}

int alloc_pd(int fd, uint32_t *pd)
{
	struct ib_uverbs_alloc_pd cmd = { .response = (uintptr_t)pd };

	return verb(fd, IB_USER_VERBS_CMD_ALLOC_PD, &cmd, sizeof(cmd), NULL, 0, 4);
}

static int create_cq_any(struct dev *dev, uint32_t cqe, const void *req, uint32_t req_len, void *resp,
			 uint32_t resp_len, uint32_t *cq)
{
	union {
		struct ib_uverbs_create_cq_resp core;
		uint8_t room[320];
	} out = {};
	struct ib_uverbs_create_cq cmd = {
		.response = (uintptr_t)&out, .cqe = cqe, .comp_channel = dev->comp_fd,
	};
	int ret;

	memcpy(out.room + sizeof(out.core), resp, resp_len);
	ret = verb(dev->fd, IB_USER_VERBS_CMD_CREATE_CQ, &cmd, sizeof(cmd), req, req_len,
		   sizeof(out.core) + resp_len);
	memcpy(resp, out.room + sizeof(out.core), resp_len);
	if (!ret)
		*cq = out.core.cq_handle;
	return ret;
}

int create_cq_with(struct dev *dev, const void *req, uint32_t req_len, void *resp, uint32_t resp_len, uint32_t *cq)
{
	return create_cq_any(dev, 16, req, req_len, resp, resp_len, cq);
}

int create_cq(struct dev *dev, uint32_t cqe, uint32_t *cq)
{
	struct usiw_create_cq_req req = {};
	struct usiw_create_cq_resp resp = {};

	return create_cq_any(dev, cqe, &req, sizeof(req), &resp, sizeof(resp), cq);
}

int destroy_cq(struct dev *dev, uint32_t cq)
{
	uint32_t out[2];
	struct ib_uverbs_destroy_cq cmd = { .response = (uintptr_t)out, .cq_handle = cq };

	return verb(dev->fd, IB_USER_VERBS_CMD_DESTROY_CQ, &cmd, sizeof(cmd), NULL, 0, sizeof(out));
}

int dev_open(struct dev *dev, const char *ibdev)
{
	return dev_open_with(dev, ibdev, USIW_CAP_DATA_SOCKET);
}

int dev_open_with(struct dev *dev, const char *ibdev, uint64_t caps)
{
	struct usiw_alloc_ucontext_req req = { .abi_version = USIW_ABI_VERSION, .caps = caps };
	struct ib_uverbs_create_comp_channel channel = { .response = (uintptr_t)&dev->comp_fd };
	int ret;

	memset(dev, 0, sizeof(*dev));
	dev->fd = dev_fd(ibdev);
	if (dev->fd < 0)
		return dev->fd;
	ret = dev_get_context(dev->fd, &req, sizeof(req), &dev->info, sizeof(dev->info), &dev->async_fd);
	if (ret)
		return ret;
	dev->event_fd = open_events(dev->fd);
	if (dev->event_fd < 0)
		return dev->event_fd;
	dev->counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, dev->fd,
			     dev->info.counters_offset);
	if (dev->counters == MAP_FAILED)
		return -errno;
	ret = verb(dev->fd, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &channel, sizeof(channel), NULL, 0, 4);
	if (!ret)
		ret = alloc_pd(dev->fd, &dev->pd);
	if (!ret)
		ret = create_cq(dev, 64, &dev->cq);
	return ret;
}

void dev_close(struct dev *dev)
{
	munmap(dev->counters, 4096);
	close(dev->event_fd);
	close(dev->comp_fd);
	close(dev->async_fd);
	close(dev->fd);
}

static int create_qp_any(struct dev *dev, struct qp *qp, const uint32_t caps[5], uint8_t type, const void *req,
			 uint32_t req_len, void *resp, uint32_t resp_len)
{
	union {
		struct ib_uverbs_create_qp_resp core;
		uint8_t room[320];
	} out = {};
	struct ib_uverbs_create_qp cmd = {
		.response = (uintptr_t)&out, .pd_handle = dev->pd, .send_cq_handle = dev->cq,
		.recv_cq_handle = dev->cq, .max_send_wr = caps[0], .max_recv_wr = caps[1],
		.max_send_sge = caps[2], .max_recv_sge = caps[3], .max_inline_data = caps[4],
		.qp_type = type,
	};
	int ret;

	memcpy(out.room + sizeof(out.core), resp, resp_len);
	ret = verb(dev->fd, IB_USER_VERBS_CMD_CREATE_QP, &cmd, sizeof(cmd), req, req_len,
		   sizeof(out.core) + resp_len);
	memcpy(resp, out.room + sizeof(out.core), resp_len);
	qp->dev = dev;
	qp->handle = out.core.qp_handle;
	qp->qpn = out.core.qpn;
	return ret;
}

static const uint32_t usual_caps[5] = { 16, 16, 4, 4, 64 };

int create_qp_with(struct dev *dev, struct qp *qp, const void *req, uint32_t req_len, void *resp, uint32_t resp_len)
{
	return create_qp_any(dev, qp, usual_caps, 2 /* RC */, req, req_len, resp, resp_len);
}

int create_qp_caps(struct dev *dev, struct qp *qp, const uint32_t caps[5], uint8_t type)
{
	struct usiw_create_qp_req req = {};
	struct usiw_create_qp_resp resp = {};
	int ret = create_qp_any(dev, qp, caps, type, &req, sizeof(req), &resp, sizeof(resp));

	qp->stats_size = resp.stats_size;
	qp->stats_offset = resp.stats_offset;
	return ret ? ret : qp->qpn == resp.qpn ? 0 : -EPROTO;
}

int create_qp(struct dev *dev, struct qp *qp)
{
	return create_qp_caps(dev, qp, usual_caps, 2 /* RC */);
}

int destroy_qp(struct qp *qp)
{
	uint32_t out;
	struct ib_uverbs_destroy_qp cmd = { .response = (uintptr_t)&out, .qp_handle = qp->handle };

	return verb(qp->dev->fd, IB_USER_VERBS_CMD_DESTROY_QP, &cmd, sizeof(cmd), NULL, 0, sizeof(out));
}

int modify_qp(struct qp *qp, int state)
{
	struct ib_uverbs_modify_qp cmd = {
		.qp_handle = qp->handle, .attr_mask = QPS_ATTR_STATE, .qp_state = state,
	};

	return verb(qp->dev->fd, IB_USER_VERBS_CMD_MODIFY_QP, &cmd, sizeof(cmd), NULL, 0, 0);
}

int qp_state(struct qp *qp, uint8_t *ird, uint8_t *ord)
{
	struct ib_uverbs_query_qp_resp out = {};
	struct ib_uverbs_query_qp cmd = {
		.response = (uintptr_t)&out, .qp_handle = qp->handle, .attr_mask = QPS_ATTR_STATE,
	};
	int ret = verb(qp->dev->fd, IB_USER_VERBS_CMD_QUERY_QP, &cmd, sizeof(cmd), NULL, 0, sizeof(out));

	if (ret)
		return ret;
	if (ird)
		*ird = out.max_dest_rd_atomic;
	if (ord)
		*ord = out.max_rd_atomic;
	return out.qp_state;
}

int reg_mr(struct dev *dev, const void *addr, uint64_t len, uint32_t access, uint32_t *handle,
	   uint32_t *lkey)
{
	struct ib_uverbs_reg_mr_resp out = {};
	struct ib_uverbs_reg_mr cmd = {
		.response = (uintptr_t)&out, .start = (uintptr_t)addr, .length = len,
		.hca_va = (uintptr_t)addr, .pd_handle = dev->pd, .access_flags = access,
	};
	int ret = verb(dev->fd, IB_USER_VERBS_CMD_REG_MR, &cmd, sizeof(cmd), NULL, 0, sizeof(out));

	if (handle)
		*handle = out.mr_handle;
	if (lkey)
		*lkey = out.lkey;
	return ret;
}

int dereg_mr(struct dev *dev, uint32_t handle)
{
	struct ib_uverbs_dereg_mr cmd = { .mr_handle = handle };

	return verb(dev->fd, IB_USER_VERBS_CMD_DEREG_MR, &cmd, sizeof(cmd), NULL, 0, 0);
}

int raw_post_send(struct qp *qp)
{
	uint32_t bad = 0;
	struct ib_uverbs_post_send cmd = {
		.response = (uintptr_t)&bad, .qp_handle = qp->handle, .wqe_size = 128,
	};

	return verb(qp->dev->fd, IB_USER_VERBS_CMD_POST_SEND, &cmd, sizeof(cmd), NULL, 0, 4);
}

/* An ioctl with a handle and one attribute. */
static int method(int fd, uint16_t object, uint16_t method_id, uint16_t handle_attr, uint32_t handle,
		  uint16_t data_attr, const void *data, uint16_t len)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[2];
	} cmd = {
		.hdr = { .length = sizeof(cmd), .object_id = object, .method_id = method_id,
			 .num_attrs = 2, .driver_id = USIW_DRIVER_ID },
		.attrs = {
			{ .attr_id = handle_attr, .flags = UVERBS_ATTR_F_MANDATORY, .data = handle },
			{ .attr_id = data_attr, .flags = UVERBS_ATTR_F_MANDATORY, .len = len },
		},
	};

	if (len > 8)
		cmd.attrs[1].data = (uintptr_t)data;
	else
		memcpy(&cmd.attrs[1].data, data, len);
	return ioctl(fd, RDMA_VERBS_IOCTL, &cmd) ? -errno : 0;
}

int cq_event(struct dev *dev, uint32_t cq, uint32_t kind)
{
	return method(dev->fd, UVERBS_OBJECT_CQ, USIW_METHOD_CQ_EVENT, USIW_ATTR_CQ_EVENT_HANDLE, cq,
		      USIW_ATTR_CQ_EVENT_KIND, &kind, sizeof(kind));
}

int qp_report(struct qp *qp, uint32_t kind, uint32_t conn_id, int error, uint32_t async_event)
{
	struct usiw_qp_report report = {
		.kind = kind, .conn_id = conn_id, .error = error, .async_event = async_event,
	};

	return qp_report_with(qp, &report, sizeof(report));
}

int qp_report_port(struct qp *qp, uint32_t conn_id, enum usiw_port_kind port, enum usiw_port_why why)
{
	struct usiw_qp_report report = {
		.kind = USIW_REPORT_PORT, .conn_id = conn_id, .port = port, .port_why = why,
	};

	return qp_report_with(qp, &report, sizeof(report));
}

int qp_report_with(struct qp *qp, const void *report, uint16_t len)
{
	return method(qp->dev->fd, UVERBS_OBJECT_QP, USIW_METHOD_QP_REPORT, USIW_ATTR_QP_REPORT_HANDLE,
		      qp->handle, USIW_ATTR_QP_REPORT_DATA, report, len);
}

/* ---- rdma_cm ----------------------------------------------------------- */

static int ucm(struct cm *cm, uint32_t command, const void *cmd, size_t len, size_t out)
{
	uint8_t buf[1024] = {};
	struct rdma_ucm_cmd_hdr *hdr = (void *)buf;

	hdr->cmd = command;
	hdr->in = len;
	hdr->out = out;
	memcpy(buf + sizeof(*hdr), cmd, len);
	len += sizeof(*hdr);
	return write(cm->fd, buf, len) == (ssize_t)len ? 0 : -errno;
}

int cm_open(struct cm *cm)
{
	cm->fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	return cm->fd < 0 ? -errno : 0;
}

void cm_close(struct cm *cm)
{
	close(cm->fd);
}

int cm_create_id_in(struct cm *cm, uint32_t *id, uint16_t port_space)
{
	struct rdma_ucm_create_id cmd = {
		.uid = 1, .response = (uintptr_t)id, .ps = port_space, .qp_type = 2,
	};

	return ucm(cm, RDMA_USER_CM_CMD_CREATE_ID, &cmd, sizeof(cmd), 4);
}

int cm_create_id(struct cm *cm, uint32_t *id)
{
	return cm_create_id_in(cm, id, RDMA_PS_TCP);
}

int cm_destroy_id(struct cm *cm, uint32_t id)
{
	uint32_t out;
	struct rdma_ucm_destroy_id cmd = { .response = (uintptr_t)&out, .id = id };

	return ucm(cm, RDMA_USER_CM_CMD_DESTROY_ID, &cmd, sizeof(cmd), sizeof(out));
}

static uint16_t addr_size(const struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

int cm_bind(struct cm *cm, uint32_t id, const struct sockaddr_storage *addr)
{
	struct rdma_ucm_bind cmd = { .id = id, .addr_size = addr_size(addr) };

	memcpy(&cmd.addr, addr, sizeof(*addr));
	return ucm(cm, RDMA_USER_CM_CMD_BIND, &cmd, sizeof(cmd), 0);
}

int cm_listen(struct cm *cm, uint32_t id, int backlog)
{
	struct rdma_ucm_listen cmd = { .id = id, .backlog = backlog };

	return ucm(cm, RDMA_USER_CM_CMD_LISTEN, &cmd, sizeof(cmd), 0);
}

int cm_set_afonly(struct cm *cm, uint32_t id, int afonly)
{
	struct rdma_ucm_set_option cmd = {
		.optval = (uintptr_t)&afonly, .id = id, .level = RDMA_OPTION_ID,
		.optname = RDMA_OPTION_ID_AFONLY, .optlen = sizeof(afonly),
	};

	return ucm(cm, RDMA_USER_CM_CMD_SET_OPTION, &cmd, sizeof(cmd), 0);
}

int cm_resolve_addr(struct cm *cm, uint32_t id, const struct sockaddr_storage *src,
		    const struct sockaddr_storage *dst)
{
	struct rdma_ucm_resolve_addr cmd = { .id = id, .timeout_ms = 2000 };

	if (src) {
		cmd.src_size = addr_size(src);
		memcpy(&cmd.src_addr, src, sizeof(*src));
	}
	cmd.dst_size = addr_size(dst);
	memcpy(&cmd.dst_addr, dst, sizeof(*dst));
	return ucm(cm, RDMA_USER_CM_CMD_RESOLVE_ADDR, &cmd, sizeof(cmd), 0);
}

int cm_resolve_route(struct cm *cm, uint32_t id)
{
	struct rdma_ucm_resolve_route cmd = { .id = id, .timeout_ms = 2000 };

	return ucm(cm, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &cmd, sizeof(cmd), 0);
}

static void fill_param(struct rdma_ucm_conn_param *param, uint32_t qpn, int ird, int ord,
		       const void *pd, int pd_len)
{
	param->qp_num = qpn;
	param->responder_resources = ird;
	param->initiator_depth = ord;
	if (pd_len)
		memcpy(param->private_data, pd, pd_len);
	param->private_data_len = pd_len;
	param->valid = 1;
}

int cm_connect(struct cm *cm, uint32_t id, uint32_t qpn, int ird, int ord, const void *pd,
	       int pd_len)
{
	struct rdma_ucm_connect cmd = { .id = id };

	fill_param(&cmd.conn_param, qpn, ird, ord, pd, pd_len);
	return ucm(cm, RDMA_USER_CM_CMD_CONNECT, &cmd, sizeof(cmd), 0);
}

int cm_accept(struct cm *cm, uint32_t id, uint32_t qpn, int ird, int ord, const void *pd,
	      int pd_len)
{
	struct rdma_ucm_accept cmd = { .id = id, .uid = 1 };

	fill_param(&cmd.conn_param, qpn, ird, ord, pd, pd_len);
	return ucm(cm, RDMA_USER_CM_CMD_ACCEPT, &cmd, sizeof(cmd), 0);
}

int cm_reject(struct cm *cm, uint32_t id, const void *pd, int pd_len)
{
	struct rdma_ucm_reject cmd = { .id = id, .private_data_len = pd_len };

	if (pd_len)
		memcpy(cmd.private_data, pd, pd_len);
	return ucm(cm, RDMA_USER_CM_CMD_REJECT, &cmd, sizeof(cmd), 0);
}

int cm_disconnect(struct cm *cm, uint32_t id)
{
	struct rdma_ucm_disconnect cmd = { .id = id };

	return ucm(cm, RDMA_USER_CM_CMD_DISCONNECT, &cmd, sizeof(cmd), 0);
}

int cm_next(struct cm *cm, struct cm_event *ev, int ms)
{
	struct rdma_ucm_event_resp out = {};
	struct rdma_ucm_get_event cmd = { .response = (uintptr_t)&out };
	struct pollfd pfd = { .fd = cm->fd, .events = POLLIN };
	int ret;

	memset(ev, 0, sizeof(*ev));
	ev->event = EV_NONE;
	if (poll(&pfd, 1, ms) <= 0)
		return 0;
	ret = ucm(cm, RDMA_USER_CM_CMD_GET_EVENT, &cmd, sizeof(cmd), sizeof(out));
	if (ret)
		return ret;
	ev->uid = out.uid;
	ev->id = out.id;
	ev->event = out.event;
	ev->status = out.status;
	ev->conn = out.param.conn;
	return 0;
}

void addr_set(struct sockaddr_storage *ss, const char *ip, int port)
{
	struct sockaddr_in *sin = (void *)ss;
	struct sockaddr_in6 *sin6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (strchr(ip, ':')) {
		sin6->sin6_family = AF_INET6;
		inet_pton(AF_INET6, ip, &sin6->sin6_addr);
		sin6->sin6_port = htons(port);
	} else {
		sin->sin_family = AF_INET;
		inet_pton(AF_INET, ip, &sin->sin_addr);
		sin->sin_port = htons(port);
	}
}
