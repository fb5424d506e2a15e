/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Classifies a datagram that has reached a UDP port of a host, in two steps.
 *
 * A datagram may be data for the engine, a handshake for a connection, a request, or garbage. The
 * first step, usiw_cm_look(), reads only the header, because the module calls it in softirq for
 * every datagram. The second step, usiw_cm_input(), needs the connection of the 4-tuple, if there
 * is one, and its lock.
 */
#ifndef USIW_CM_INPUT_H
#define USIW_CM_INPUT_H

#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum usiw_cm_look {
	USIW_CM_LOOK_DROP,	/* not of TRP, too short, or too long for a handshake */
	/*
	 * DATA, SHUTDOWN or SACK, for the engine. The host also handles it if the connection waits
	 * for CONFIRM or for the answer to its REQ, or if there is no connection.
	 */
	USIW_CM_LOOK_DATA,
	USIW_CM_LOOK_ENGINE,	/* a stray RESET, for the engine alone */
	USIW_CM_LOOK_HANDSHAKE,	/* for the host: usiw_cm_input() */
};

/*
 * Classifies a datagram of @len bytes by its header. @hdr: its first sizeof(struct usiw_trp_hdr)
 * bytes, or all of it if it is shorter.
 */
enum usiw_cm_look usiw_cm_look(const void *hdr, __u32 len);

/* Shortest time between two possibly stray datagrams that a UDP port handles, us. */
#define USIW_CM_STRAY_US	20000u

/*
 * Returns true if the port may handle a possibly stray datagram now. If so, sets *@next_us to the
 * earliest time for the next one. *@next_us is 0 at first.
 */
int usiw_cm_stray_due(__u64 *next_us, __u64 now_us);

/*
 * True if a DATA or SHUTDOWN with the header @hdr may be one of the first after a CONFIRM that was
 * lost: its PSNs are close to the ISNs. If so, the host calls usiw_cm_data_seen() on a connection
 * in ACCEPT_SENT. A SACK passes only by chance, because its PSN counts what this end has sent. The
 * test reads only the ISNs of @c, which never change in a responder, so it needs no lock.
 */
int usiw_cm_confirms(const struct usiw_cm_conn *c, const void *hdr);

/*
 * True if an ICMP message quotes a datagram whose PSN is the ISN of @c, such as the REQ of @c.
 * @quoted, @len: the UDP payload that the message quotes. A message that does not quote this ISN
 * does not count, because anybody could have sent it.
 */
int usiw_cm_quotes(const struct usiw_cm_conn *c, const void *quoted, __u32 len);

enum usiw_cm_verdict_kind {
	USIW_CM_V_DROP,
	USIW_CM_V_CONN,		/* the connection has handled or ignored it */
	USIW_CM_V_ADMIT,	/* @pkt is a REQ that asks for a new connection */
	USIW_CM_V_WITHDRAW,	/* @pkt is a RESET, for usiw_cm_admission_withdraw() */
	USIW_CM_V_ANSWER,	/* send the first @len bytes of the buffer to the sender */
};

/* The decision about one datagram. */
struct usiw_cm_verdict {
	__u32 kind;		/* enum usiw_cm_verdict_kind */
	__u32 actions;		/* USIW_CM_A_* of the connection, due before @kind */
	__u32 len;		/* ANSWER: bytes of the answer */
	struct usiw_cm_packet pkt;	/* points into the datagram */
};

/**
 * usiw_cm_input - decide about a datagram
 * @v:		the decision
 * @c:		the connection of its 4-tuple, or NULL
 * @data: @len:	UDP payload. The header of a DATA, SHUTDOWN or SACK is enough
 * @now_us:	time
 * @buf:	at least USIW_CM_MAX_DATAGRAM bytes, for an answer
 *
 * An ANSWER is not longer than the datagram, except a REJECT to a REQ of another wire version.
 * That REJECT may be 3 bytes longer.
 */
void usiw_cm_input(struct usiw_cm_verdict *v, struct usiw_cm_conn *c, const void *data, __u32 len,
		   __u64 now_us, void *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_INPUT_H */
