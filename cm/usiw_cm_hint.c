// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Makes hints about connections that could not be made; see usiw_cm_hint.h. */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <stdio.h>
#include <string.h>
#endif

#include "usiw_cm_hint.h"

/*
 * Types of ICMP messages. Their codes: RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1;
 * RFC 4443 section 3.1
 */
#define ICMP4_UNREACHABLE	3
#define ICMP6_UNREACHABLE	1

enum usiw_cm_answer usiw_cm_icmp4_answer(__u8 type, __u8 code)
{
	if (type != ICMP4_UNREACHABLE)
		return USIW_CM_ANSWER_NOTHING;
	switch (code) {
	case 0:		/* network */
	case 1:		/* host */
	case 6:		/* network unknown */
	case 7:		/* host unknown */
		return USIW_CM_ANSWER_NO_HOST;
	case 3:
		return USIW_CM_ANSWER_NO_PORT;
	case 9:		/* network prohibited */
	case 10:	/* host prohibited */
	case 13:	/* communication prohibited */
		return USIW_CM_ANSWER_PROHIBITED;
	default:
		return USIW_CM_ANSWER_NOTHING;
	}
}

enum usiw_cm_answer usiw_cm_icmp6_answer(__u8 type, __u8 code)
{
	if (type != ICMP6_UNREACHABLE)
		return USIW_CM_ANSWER_NOTHING;
	switch (code) {
	case 0:		/* no route */
	case 3:		/* address unreachable */
	case 6:		/* the route is a reject route */
		return USIW_CM_ANSWER_NO_HOST;
	case 4:
		return USIW_CM_ANSWER_NO_PORT;
	case 1:		/* communication prohibited */
	case 5:		/* the source address fails a policy */
		return USIW_CM_ANSWER_PROHIBITED;
	default:
		return USIW_CM_ANSWER_NOTHING;
	}
}

void usiw_cm_alien(struct usiw_cm_conn *c, const void *data, __u32 len)
{
	if (c->state != USIW_CM_REQ_SENT || !len)
		return;
	c->answer = USIW_CM_ANSWER_ALIEN;
	c->alien_len = (__u8)(len < sizeof(c->alien) ? len : sizeof(c->alien));
	memcpy(c->alien, data, c->alien_len);
}

void usiw_cm_other_version(struct usiw_cm_conn *c, __u8 version)
{
	if (c->state != USIW_CM_REQ_SENT)
		return;
	c->answer = USIW_CM_ANSWER_VERSION;
	c->peer_version = version;
}

void usiw_cm_unsent(struct usiw_cm_conn *c, int error)
{
	if (c->state == USIW_CM_REQ_SENT && error == -EPERM)
		c->answer = USIW_CM_ANSWER_OWN_FIREWALL;
}

static const char *refusal(__u8 reason)
{
	switch (reason) {
	case USIW_REJECT_NO_LISTENER:
		return "usiw answers: no program listens at this port";
	case USIW_REJECT_NO_RESOURCE:
		return "usiw answers: its backlog or its memory is full, or its program has not accepted in time";
	case USIW_REJECT_MTU:
		return "usiw answers: the MTU of the path is too small";
	case USIW_REJECT_FEATURES:
	case USIW_REJECT_MALFORMED:
		return "usiw answers, and does not understand: use the same version at both ends";
	default:	/* the peer's program has rejected it, or the reason is unknown: no hint */
		return NULL;
	}
}

/* The answers that mean something else if a QP asks another QP. */
static const char *silent_text(const struct usiw_cm_conn *c)
{
	switch (c->answer) {
	case USIW_CM_ANSWER_NOTHING:
		return "no answer: no host has this address, or a firewall drops UDP";
	case USIW_CM_ANSWER_REJECT:
		if (c->reject_reason == USIW_REJECT_NO_LISTENER)
			return "usiw answers: it has no such QP, or addresses are translated on the way (NAT)";
		return "usiw answers, but no QP of the RoCE face";
	case USIW_CM_ANSWER_NO_PORT:
		return "the host has no such QP (ICMP port unreachable), or a firewall rejects it";
	default:
		return NULL;
	}
}

static const char *hint_text(const struct usiw_cm_conn *c)
{
	const char *text = c->silent ? silent_text(c) : NULL;

	if (text)
		return text;
	switch (c->answer) {
	case USIW_CM_ANSWER_NOTHING:
		return c->status == -ETIMEDOUT ?
		       "no answer: no host has this address, or a firewall drops UDP" : NULL;
	case USIW_CM_ANSWER_PENDING:
		return c->status == -ETIMEDOUT ?
		       "usiw answers: its program has not accepted in time" : NULL;
	case USIW_CM_ANSWER_REJECT:
		return refusal(c->reject_reason);
	case USIW_CM_ANSWER_NO_PORT:
		return "the host has no usiw at this UDP port (ICMP port unreachable), or a firewall rejects it; "
		       "TCP, siw, rxe and adapters are no peers";
	case USIW_CM_ANSWER_PROHIBITED:
		return "a firewall prohibits it (ICMP)";
	case USIW_CM_ANSWER_NO_HOST:
		return "no host has this address, or there is no route to it (ICMP host unreachable)";
	case USIW_CM_ANSWER_OWN_FIREWALL:
		return "the firewall of this host does not let UDP out (EPERM)";
	default:
		return NULL;
	}
}

static void write_alien(const struct usiw_cm_conn *c, char *buf)
{
	int i, at = snprintf(buf, USIW_CM_HINT_MAX, "what answers there is not usiw, it begins with");

	for (i = 0; i < c->alien_len; i++)
		at += snprintf(buf + at, USIW_CM_HINT_MAX - at, " %02x", c->alien[i]);
}

int usiw_cm_hint(const struct usiw_cm_conn *c, char *buf)
{
	const char *text;

	/*
	 * Only an initiator gets a hint, and only for these three errors. Other errors have their
	 * cause on this host, or the peer has reset the connection. A silent initiator gets one
	 * while it asks.
	 */
	if (!c->initiator || (c->silent && c->state != USIW_CM_REQ_SENT))
		return 0;
	if (!c->silent &&
	    (c->status != -ETIMEDOUT && c->status != -ECONNREFUSED && c->status != -EPROTO))
		return 0;
	if (c->answer == USIW_CM_ANSWER_ALIEN) {
		write_alien(c, buf);
		return 1;
	}
	if (c->answer == USIW_CM_ANSWER_VERSION) {
		snprintf(buf, USIW_CM_HINT_MAX,
			 "usiw of wire version %u answers, this one has %u: use the same version at both ends",
			 c->peer_version, USIW_WIRE_VERSION);
		return 1;
	}
	text = hint_text(c);
	if (text)
		snprintf(buf, USIW_CM_HINT_MAX, "%s", text);
	return text != NULL;
}
