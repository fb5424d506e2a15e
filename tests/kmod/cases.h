/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The cases of uapi_test, and what they share.
 */
#ifndef USIW_TEST_CASES_H
#define USIW_TEST_CASES_H

#include "ends.h"

enum { QPS_RESET, QPS_INIT, QPS_RTR, QPS_RTS, QPS_SQD, QPS_SQE, QPS_ERR };
enum { PORT = 7100 };

/* The two ends. They are open, and each case leaves them as it found them. */
extern struct end a, b;

/* Runs a command in the network namespace that was entered last. */
void sh(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* objects.c */
void test_context(void);
void test_queues(void);
void test_qp_states(void);
void test_mr(void);
void test_methods(void);

/* abi.c */
void test_abi(void);

/* tenant.c */
void test_pages(void);
void test_handed_over(void);
void test_closed_under_way(void);
void test_fork_shares(void);
void test_any_ioctl(void);
void test_unread_events(void);

/* connections.c */
void test_connect(void);
void test_reject(void);
void test_silence(void);
void test_refused_by_engine(void);
void test_destroy_qp_first(void);
void test_abrupt(void);
void test_hostile_order(void);
void test_wildcard(void);
void test_port_spaces(void);
void test_crossing(void);
void test_many(void);

/* endings.c */
void test_kill(void);
void test_netdev(void);
void test_remove(void);
void test_netns(void);

/* datagrams.c */
void test_datagrams(void);

/* moves.c */
void test_moves(void);

/* counters.c */
void test_counters(void);

#endif
