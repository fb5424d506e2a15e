/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Two ends of a connection in one process, with a stand-in for the engine that answers the
 * module's records as a provider does, but moves no data.
 */
#ifndef USIW_TEST_ENDS_H
#define USIW_TEST_ENDS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

#define CHECK(cond)                                                                     \
	do {                                                                            \
		if (!(cond)) {                                                          \
			printf("%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #cond); \
			fflush(stdout);                                                 \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

#define CHECK_EQ(got, want)                                                             \
	do {                                                                            \
		long long got_ = (got), want_ = (want);                                 \
		if (got_ != want_) {                                                    \
			printf("%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__, \
			       __func__, #got, got_, want_);                            \
			fflush(stdout);                                                 \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

enum { MAX_LINKS = 512 };

/* A connection as the engine knows it. */
struct link {
	uint32_t conn_id;
	uint32_t qpn;
	uint16_t local_port;
	uint16_t remote_port;
	bool open;
};

struct end {
	struct dev dev;
	struct cm cm;
	const char *ip;
	int ns_fd;		/* network namespace, -1: this one */
	bool mute;		/* do not answer CONNECT */
	int refuse;		/* answer CONNECT with this error */
	struct qp *qps[MAX_LINKS];
	int nr_qps;
	struct link links[MAX_LINKS];
	int nr_links;
	int seen[8];		/* records by type */
	struct usiw_event last[8];
	struct end *peer;
};

extern const char *a_dev, *b_dev, *a_ip, *b_ip, *a_ip6, *b_ip6;

/* Sockets and ids that are made after this call are in the network namespace of the end. */
void enter(const struct end *end);
void end_open(struct end *end, const char *ibdev, const char *ip);
void end_open_with(struct end *end, const char *ibdev, const char *ip, uint64_t caps);
void end_close(struct end *end);
void ends_open(struct end *a, struct end *b);
void ends_close(struct end *a, struct end *b);
struct qp *end_qp(struct end *end, struct qp *qp);
/* Handles the records of the module. */
void engine(struct end *end);
void engines(struct end *end, int ms);
/* Waits for an event of rdma_cm while both engines run. Returns true if it came. */
bool expect(struct end *end, uint32_t event, struct cm_event *ev, int ms);
/* Waits for a record of the module. */
bool expect_record(struct end *end, uint32_t type, int count, int ms);
uint32_t listen_on(struct end *end, const char *ip, int port, int backlog);
/* Returns a cm_id that is resolved for @ip:@port. */
uint32_t resolve_to(struct end *end, const char *ip, int port);
double now_s(void);
/* Factor for all time limits (VM_PATIENCE), because a debug kernel is slow. */
double patience(void);

/* Makes a connection from @a to @b, established. */
struct pair {
	struct qp qa, qb;
	uint32_t ida, idb;
};

void establish(struct end *a, struct end *b, uint32_t listen_id, const char *ip, int port,
	       struct pair *pair);
void finish(struct end *a, struct end *b, struct pair *pair);

#endif
