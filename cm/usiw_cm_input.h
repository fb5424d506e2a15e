/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What becomes of a datagram that has reached a host's UDP port, in two steps: a first look
 * at its header, for where time is short (softirq, a socket filter), and the verdict, with the
 * connection of its 4-tuple at hand.
 */
#ifndef USIW_CM_INPUT_H
#define USIW_CM_INPUT_H

#include "usiw_cm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum usiw_cm_look {
	USIW_CM_LOOK_DROP,	/* nobody's */
	/*
	 * DATA, SHUTDOWN or SACK for the engine, which has its own copy. The datagram concerns the
	 * host if a connection waits for CONFIRM, or if there is no connection.
	 */
	USIW_CM_LOOK_DATA,
	USIW_CM_LOOK_ENGINE,	/* a stray RESET: the engine's alone */
	USIW_CM_LOOK_HANDSHAKE,	/* the host's */
};

/* @hdr: the first sizeof(struct usiw_trp_hdr) bytes of a datagram of @len, which may be shorter. */
enum usiw_cm_look usiw_cm_look(const void *hdr, __u32 len);

/* At most one datagram per UDP port and this time is looked at as possibly stray, us. */
#define USIW_CM_STRAY_US	20000u

/* May one be looked at now? Then the next one may at the time left in *@next_us (0 at first). */
int usiw_cm_stray_due(__u64 *next_us, __u64 now_us);

/*
 * Is @hdr, of a DATA, SHUTDOWN or SACK, plausible as the first behind a lost CONFIRM? For
 * connections in ACCEPT_SENT, then to be told usiw_cm_data_seen(). Looks at ISNs only: these
 * are fixed, so no lock is needed.
 */
int usiw_cm_confirms(const struct usiw_cm_conn *c, const void *hdr);

/*
 * Does ICMP quote a REQ of @c? @quoted: what it has of the UDP payload, @len bytes. Without
 * the ISN it is not believed: anybody could have sent it.
 */
int usiw_cm_quotes(const struct usiw_cm_conn *c, const void *quoted, __u32 len);

enum usiw_cm_verdict_kind {
	USIW_CM_V_DROP,
	USIW_CM_V_CONN,		/* it was the connection's */
	USIW_CM_V_ADMIT,	/* a REQ, in @pkt, that asks for a new connection */
	USIW_CM_V_WITHDRAW,	/* a RESET, in @pkt, for none: it may end a REQ that waits at the admission */
	USIW_CM_V_ANSWER,	/* send the first @len bytes of the buffer to where it came from */
};

struct usiw_cm_verdict {
	__u32 kind;		/* enum usiw_cm_verdict_kind */
	__u32 actions;		/* of the connection, whatever @kind is: to be carried out first */
	__u32 len;
	struct usiw_cm_packet pkt;	/* points into the datagram */
};

/**
 * usiw_cm_input - decide about a datagram
 * @c:		the connection of its 4-tuple, or NULL
 * @data: @len:	UDP payload. Of a DATA, SHUTDOWN or SACK the header is enough
 * @buf:	at least USIW_CM_MAX_DATAGRAM bytes, for an answer
 *
 * An answer is never longer than the datagram, but for a REJECT to a REQ, of its size class.
 */
void usiw_cm_input(struct usiw_cm_verdict *v, struct usiw_cm_conn *c, const void *data, __u32 len,
		   __u64 now_us, void *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_INPUT_H */
