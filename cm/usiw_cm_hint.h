/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Hints: why a connection could not be made, for people.
 *
 * rdma_cm has two events for it, UNREACHABLE and REJECTED. People need to know more: whether the
 * server is down, a firewall is in the way, no host has the address, or the server is not usiw. The
 * latest answer to the REQ shows the difference, so the state machine notes it in c->answer, and a
 * hint is made from it.
 */
#ifndef USIW_CM_HINT_H
#define USIW_CM_HINT_H

#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the meaning of an ICMP type and code as an answer to a REQ; NOTHING: it is no answer. */
enum usiw_cm_answer usiw_cm_icmp4_answer(__u8 type, __u8 code);
enum usiw_cm_answer usiw_cm_icmp6_answer(__u8 type, __u8 code);

/* Notes a datagram from the peer's address and port that no usiw sends to answer a REQ. */
void usiw_cm_alien(struct usiw_cm_conn *c, const void *data, __u32 len);
/* Notes an answer of a usiw of another wire version. */
void usiw_cm_other_version(struct usiw_cm_conn *c, __u8 version);
/* Notes the result of sending the datagram of A_TX; @error: 0 or -errno. */
void usiw_cm_unsent(struct usiw_cm_conn *c, int error);

#define USIW_CM_HINT_MAX	192	/* bytes, with the terminating 0 */

/**
 * usiw_cm_hint - write one line, without a newline, about an attempt to connect that has failed
 * @c:		connection whose A_EV_REPLY is being carried out
 * @buf:	USIW_CM_HINT_MAX bytes
 *
 * Return: false if there is no hint, because the attempt succeeded or the program knows the cause.
 */
int usiw_cm_hint(const struct usiw_cm_conn *c, char *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_HINT_H */
