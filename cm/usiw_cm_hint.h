/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Why a connection could not be made, for people. rdma_cm has two words for it, UNREACHABLE and REJECTED; what has been
 * heard meanwhile (c->heard) tells a server that is down from a firewall, from an address that no host has, and from
 * a server that is not usiw.
 */
#ifndef USIW_CM_HINT_H
#define USIW_CM_HINT_H

#include "usiw_cm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What ICMP means as an answer to a REQ, by its type and code; NOTHING: it is none. */
enum usiw_cm_heard usiw_cm_icmp4_heard(__u8 type, __u8 code);
enum usiw_cm_heard usiw_cm_icmp6_heard(__u8 type, __u8 code);

/* Note a datagram of the peer's address and port, @len bytes, that is no answer to a REQ. */
void usiw_cm_alien(struct usiw_cm_conn *c, const void *data, __u32 len);
/* Note an answer of a usiw of another wire version. */
void usiw_cm_other_version(struct usiw_cm_conn *c, __u8 version);
/* Note that the datagram of A_TX could not be sent; @error: -errno, or 0 */
void usiw_cm_unsent(struct usiw_cm_conn *c, int error);

#define USIW_CM_HINT_MAX	192	/* with the terminating 0 */

/**
 * usiw_cm_hint - one line, without its end, about an attempt to connect that has failed
 * @c:		when A_EV_REPLY is carried out
 * @buf:	USIW_CM_HINT_MAX bytes
 *
 * Return: false when there is nothing to say: it has succeeded, or the program sees by itself why not.
 */
int usiw_cm_hint(const struct usiw_cm_conn *c, char *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_HINT_H */
