/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The raw user ABIs of uverbs, rdma_cm and usiw.ko, without libibverbs and librdmacm. So a test can
 * make calls that a library never makes. Calls return 0 or a positive value, or -errno.
 */
#ifndef USIW_TEST_RAW_H
#define USIW_TEST_RAW_H

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../uapi/usiw_abi.h"

/* ---- uverbs ---- */

/* A context on one device, with a PD and a CQ. */
struct dev {
	int fd;
	int event_fd;
	int async_fd;
	int comp_fd;
	uint32_t pd;
	uint32_t cq;
	uint64_t *counters;
	struct usiw_alloc_ucontext_resp info;
};

struct qp {
	struct dev *dev;
	uint32_t handle;
	uint32_t qpn;
	uint32_t stats_size;
	uint64_t stats_offset;
};

int dev_fd(const char *ibdev);
/* @resp: at most 240 bytes. Bytes that the kernel does not write keep their values. */
int dev_get_context(int fd, const void *req, uint32_t req_len, void *resp, uint32_t resp_len, int *async_fd);
/* The event stream of the context on @fd. */
int open_events(int fd);
int dev_open(struct dev *dev, const char *ibdev);
int dev_open_with(struct dev *dev, const char *ibdev, uint64_t caps);
void dev_close(struct dev *dev);
int alloc_pd(int fd, uint32_t *pd);
int create_cq(struct dev *dev, uint32_t cqe, uint32_t *cq);
int destroy_cq(struct dev *dev, uint32_t cq);
/* The ports that CONNECT offers differ between the module and usiw-run. */
#define PORT_FLAGS	(USIW_CONN_F_SOCKET | USIW_CONN_F_PACKET)
/* Their network differs as well: tests of usiw-run have lo. */
#define WAY_FLAGS	(PORT_FLAGS | USIW_CONN_F_LOCAL)

/* caps: send_wr, recv_wr, send_sge, recv_sge, inline */
int create_qp_caps(struct dev *dev, struct qp *qp, const uint32_t caps[5], uint8_t type);
int create_qp(struct dev *dev, struct qp *qp);
int destroy_qp(struct qp *qp);
int modify_qp(struct qp *qp, int state);
int qp_state(struct qp *qp, uint8_t *ird, uint8_t *ord);
int reg_mr(struct dev *dev, const void *addr, uint64_t len, uint32_t access, uint32_t *handle,
	   uint32_t *lkey);
int dereg_mr(struct dev *dev, uint32_t handle);
int cq_event(struct dev *dev, uint32_t cq, uint32_t kind);
int qp_report(struct qp *qp, uint32_t kind, uint32_t conn_id, int error, uint32_t async_event);
int qp_report_port(struct qp *qp, uint32_t conn_id, enum usiw_port_kind port, enum usiw_port_why why);
int raw_post_send(struct qp *qp);
/* The same with driver data of any length that is a multiple of 4; @resp as above. */
int create_cq_with(struct dev *dev, const void *req, uint32_t req_len, void *resp, uint32_t resp_len, uint32_t *cq);
int create_qp_with(struct dev *dev, struct qp *qp, const void *req, uint32_t req_len, void *resp, uint32_t resp_len);
int qp_report_with(struct qp *qp, const void *report, uint16_t len);

/* ---- rdma_cm ---- */

struct cm {
	int fd;
};

struct cm_event {
	uint64_t uid;
	uint32_t id;
	uint32_t event;
	int32_t status;
	struct rdma_ucm_conn_param conn;
};

enum { EV_ADDR_RESOLVED = 0, EV_ADDR_ERROR = 1, EV_ROUTE_RESOLVED = 2, EV_CONNECT_REQUEST = 4,
       EV_CONNECT_ERROR = 6, EV_UNREACHABLE = 7, EV_REJECTED = 8, EV_ESTABLISHED = 9,
       EV_DISCONNECTED = 10, EV_DEVICE_REMOVAL = 11, EV_NONE = -1 };

int cm_open(struct cm *cm);
void cm_close(struct cm *cm);
int cm_create_id(struct cm *cm, uint32_t *id);
int cm_create_id_in(struct cm *cm, uint32_t *id, uint16_t port_space);
int cm_destroy_id(struct cm *cm, uint32_t id);
int cm_bind(struct cm *cm, uint32_t id, const struct sockaddr_storage *addr);
int cm_listen(struct cm *cm, uint32_t id, int backlog);
int cm_set_afonly(struct cm *cm, uint32_t id, int afonly);
int cm_resolve_addr(struct cm *cm, uint32_t id, const struct sockaddr_storage *src,
		    const struct sockaddr_storage *dst);
int cm_resolve_route(struct cm *cm, uint32_t id);
int cm_connect(struct cm *cm, uint32_t id, uint32_t qpn, int ird, int ord, const void *pd,
	       int pd_len);
int cm_accept(struct cm *cm, uint32_t id, uint32_t qpn, int ird, int ord, const void *pd,
	      int pd_len);
int cm_reject(struct cm *cm, uint32_t id, const void *pd, int pd_len);
int cm_disconnect(struct cm *cm, uint32_t id);
/* Returns the next event within @ms; ev->event is EV_NONE if there was none. */
int cm_next(struct cm *cm, struct cm_event *ev, int ms);

void addr_set(struct sockaddr_storage *ss, const char *ip, int port);

#endif
