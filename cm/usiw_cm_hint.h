/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Hints: lines that explain to people why a connection could not be made.
 *
 * rdma_cm has few events for a failed attempt: UNREACHABLE, REJECTED, CONNECT_ERROR. People need to
 * know more: whether the server is down, a firewall drops the REQ, no host has the address, or the
 * server is not usiw. The latest answer to the REQ shows the cause. So the state machine notes the
 * answer in c->answer, and usiw_cm_hint() makes a line from it.
 */
#ifndef USIW_CM_HINT_H
#define USIW_CM_HINT_H

#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the meaning of an ICMP message that quotes a REQ, by type and code; NOTHING if it has
 * none.
 */
enum usiw_cm_answer usiw_cm_icmp4_answer(__u8 type, __u8 code);
enum usiw_cm_answer usiw_cm_icmp6_answer(__u8 type, __u8 code);

/* Notes a datagram from the peer's address and port that no usiw sends as an answer to a REQ. */
void usiw_cm_alien(struct usiw_cm_conn *c, const void *data, __u32 len);
/* Notes that a usiw of another wire version has answered. */
void usiw_cm_other_version(struct usiw_cm_conn *c, __u8 version);
/*
 * Notes that this host's firewall has stopped the REQ, if @error is -EPERM. @error: result of
 * sending a datagram, 0 or -errno.
 */
void usiw_cm_unsent(struct usiw_cm_conn *c, int error);

#define USIW_CM_HINT_MAX	192	/* bytes, with the terminating 0 */

/**
 * usiw_cm_hint - write one line, without a newline, about an attempt to connect that has failed
 * @c:		connection whose A_EV_REPLY is being carried out
 * @buf:	USIW_CM_HINT_MAX bytes
 *
 * Return: false if there is no hint: at a responder, after success, and after an error that the
 * answer to the REQ does not explain further.
 */
int usiw_cm_hint(const struct usiw_cm_conn *c, char *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_HINT_H */
