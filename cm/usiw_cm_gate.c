// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Admission of REQs; see usiw_cm_gate.h.
 */
#ifdef __KERNEL__
#include <linux/stddef.h>
#include <linux/string.h>
#else
#include <stddef.h>
#include <string.h>
#endif

#include "usiw_cm_gate.h"

#define EPOCH_BITS	26	/* of microseconds: 67 s. A cookie is good in its epoch and the next */

/* ---- Room that is shared ----------------------------------------------- */

/* One more for a listener that has @own and may have @limit. */
static int take(struct usiw_cm_pool *pool, __u32 *own, __u32 limit)
{
	if (*own >= limit)
		return 0;
	if (*own >= USIW_CM_RESERVED) {
		if (*own - USIW_CM_RESERVED >= pool->limit - pool->used)
			return 0;
		pool->used++;
	}
	++*own;
	return 1;
}

static void give(struct usiw_cm_pool *pool, __u32 *own)
{
	if (*own > USIW_CM_RESERVED)
		pool->used--;
	--*own;
}

/* ---- The list ---------------------------------------------------------- */

static void link_last(struct usiw_cm_gate *gate, struct usiw_cm_req *req)
{
	req->next = NULL;
	req->prev = gate->last;
	if (gate->last)
		gate->last->next = req;
	else
		gate->first = req;
	gate->last = req;
}

static void unlink(struct usiw_cm_gate *gate, struct usiw_cm_req *req)
{
	if (req->prev)
		req->prev->next = req->next;
	else
		gate->first = req->next;
	if (req->next)
		req->next->prev = req->prev;
	else
		gate->last = req->prev;
	req->next = NULL;
	req->prev = NULL;
}

static struct usiw_cm_req *find(const struct usiw_cm_gate *gate, const struct usiw_cm_tuple *tuple)
{
	struct usiw_cm_req *req;

	for (req = gate->first; req; req = req->next)
		if (!memcmp(&req->tuple, tuple, sizeof(*tuple)))
			return req;
	return NULL;
}

static int is_stale(const struct usiw_cm_req *req, __u64 now_us)
{
	return now_us - req->seen_us >= USIW_CM_STALE_US;
}

static int is_due(__u8 state)
{
	return state == USIW_CM_R_OFFERED || state == USIW_CM_R_RETRY;
}

/* What the state costs has been taken, and that of the old one given back, or goes with it. */
static void enter(struct usiw_cm_gate *gate, struct usiw_cm_req *req, __u8 state,
		  struct usiw_cm_listener *l)
{
	gate->held += (state == USIW_CM_R_HELD) - (req->state == USIW_CM_R_HELD);
	gate->due += is_due(state) - is_due(req->state);
	req->state = state;
	req->listener = l;
}

/* To a state that costs nothing. What the present one costs is given back. */
static void retire(struct usiw_cm_gate *gate, struct usiw_cm_req *req, __u8 state)
{
	struct usiw_cm_listener *l = req->listener;

	if (req->state == USIW_CM_R_QUEUED)
		give(&l->net->queued, &l->queued);
	else if (req->state == USIW_CM_R_OFFERED)
		give(&l->net->half_open, &l->open);
	enter(gate, req, state, NULL);
}

static void remove_entry(struct usiw_cm_gate *gate, struct usiw_cm_req *req)
{
	retire(gate, req, USIW_CM_R_NEW);
	unlink(gate, req);
	req->busy = 0;
}

/* ---- Places ------------------------------------------------------------ */

/* Who has not proven its address may use half of the backlog. */
static int take_place(struct usiw_cm_listener *l, int proven)
{
	__u32 limit = proven ? l->backlog : (l->backlog + 1) / 2;

	return take(&l->net->half_open, &l->open, limit);
}

/* Give a place to the first one that waits, proven ones before others. */
static int offer(struct usiw_cm_listener *l, __u64 now_us)
{
	struct usiw_cm_req *req;
	int proven;

	if (!l->gate || !l->queued)
		return 0;
	for (proven = 1; proven >= 0; proven--) {
		for (req = l->gate->first; req; req = req->next) {
			if (req->listener != l || req->state != USIW_CM_R_QUEUED ||
			    req->proven != proven || is_stale(req, now_us))
				continue;
			if (!take_place(l, proven))
				return 0;
			give(&l->net->queued, &l->queued);
			enter(l->gate, req, USIW_CM_R_OFFERED, l);
			return 1;
		}
	}
	return 0;
}

int usiw_cm_gate_return(struct usiw_cm_listener *l, __u64 now_us)
{
	give(&l->net->half_open, &l->open);
	return offer(l, now_us);
}

/* ---- The waiting room -------------------------------------------------- */

/*
 * The entry of @l that has to make room: one that is not proven goes first, then the one that
 * has not been repeated for longest, if the newcomer is proven or that one is stale.
 */
static struct usiw_cm_req *victim(const struct usiw_cm_listener *l, int proven, __u64 now_us)
{
	struct usiw_cm_req *req, *found = NULL;

	for (req = l->gate->first; req; req = req->next) {
		if (req->listener != l || req->state != USIW_CM_R_QUEUED || req->busy)
			continue;
		if (!found || req->proven < found->proven ||
		    (req->proven == found->proven && req->seen_us < found->seen_us))
			found = req;
	}
	if (found && found->proven && !proven && !is_stale(found, now_us))
		return NULL;
	return found;
}

static void put_out(struct usiw_cm_gate_verdict *v, struct usiw_cm_gate *gate,
		    struct usiw_cm_req *req)
{
	remove_entry(gate, req);
	req->next = v->out;
	v->out = req;
}

static void queue(struct usiw_cm_gate_verdict *v, struct usiw_cm_listener *l,
		  struct usiw_cm_req *req, __u64 now_us)
{
	if (!take(&l->net->queued, &l->queued, USIW_CM_MAX_QUEUED)) {
		struct usiw_cm_req *other = victim(l, req->proven, now_us);

		if (!other)
			return;
		put_out(v, l->gate, other);
		/* The room that has become free may be another one's by now: see take(). */
		if (!take(&l->net->queued, &l->queued, USIW_CM_MAX_QUEUED))
			return;
	}
	enter(l->gate, req, USIW_CM_R_QUEUED, l);
	link_last(l->gate, req);
	if (!l->gate->sweep_us)
		l->gate->sweep_us = now_us + USIW_CM_STALE_US;
	v->kind = USIW_CM_G_KEPT;
}

/*
 * Nobody listens. There are programs that close their listener behind a first connection,
 * listen again, and count on the order of the requests that come then (perftest -R does). So
 * for a moment a REQ is kept for the next listener: it would be refused and repeated behind
 * its successors otherwise.
 */
static void hold(struct usiw_cm_gate_verdict *v, struct usiw_cm_gate *gate, struct usiw_cm_req *req,
		 __u64 now_us)
{
	if (now_us >= gate->hold_until_us || gate->held >= USIW_CM_MAX_HELD) {
		v->kind = USIW_CM_G_REFUSE;
		return;
	}
	enter(gate, req, USIW_CM_R_HELD, NULL);
	link_last(gate, req);
	v->kind = USIW_CM_G_KEPT;
}

/* A listener has come since the host last asked what is due: who was held for it goes first. */
static int is_overtaking(const struct usiw_cm_gate *gate)
{
	const struct usiw_cm_req *req;

	if (gate->due)
		for (req = gate->first; req; req = req->next)
			if (req->state == USIW_CM_R_RETRY && !req->busy)
				return 1;
	return 0;
}

/* ---- Listeners --------------------------------------------------------- */

void usiw_cm_gate_net_init(struct usiw_cm_gate_net *net, const __u64 key[2])
{
	memset(net, 0, sizeof(*net));
	net->half_open.limit = USIW_CM_NET_HALF_OPEN;
	net->queued.limit = USIW_CM_NET_QUEUED;
	net->key[0] = key[0];
	net->key[1] = key[1];
}

static void retry_held(struct usiw_cm_gate *gate)
{
	struct usiw_cm_req *req;

	for (req = gate->first; req; req = req->next)
		if (req->state == USIW_CM_R_HELD)
			enter(gate, req, USIW_CM_R_RETRY, NULL);
}

void usiw_cm_gate_join(struct usiw_cm_gate *gate, struct usiw_cm_listener *l, __u32 backlog)
{
	l->gate = gate;
	l->net = gate->net;
	l->backlog = backlog ? backlog : 1;
	retry_held(gate);
}

struct usiw_cm_req *usiw_cm_gate_leave(struct usiw_cm_listener *l, __u64 now_us)
{
	struct usiw_cm_gate *gate = l->gate;
	struct usiw_cm_req *req, *next, *out = NULL;

	if (!gate)
		return NULL;
	gate->hold_until_us = now_us + USIW_CM_HOLD_US;
	for (req = gate->first; req; req = next) {
		next = req->next;
		if (req->listener != l)
			continue;
		if (req->busy) {
			retire(gate, req, USIW_CM_R_RETRY);
		} else if (gate->held < USIW_CM_MAX_HELD && !is_stale(req, now_us)) {
			retire(gate, req, USIW_CM_R_HELD);
		} else {
			remove_entry(gate, req);
			req->next = out;
			out = req;
		}
	}
	l->gate = NULL;
	return out;
}

/* ---- Requests ---------------------------------------------------------- */

/* Does the REQ bring back the ISN that PENDING has told? */
static int is_proven(const struct usiw_cm_gate_net *net, const struct usiw_cm_tuple *tuple,
		     const struct usiw_cm_packet *pkt, __u32 epoch)
{
	return pkt->ack_psn && (pkt->ack_psn == usiw_cm_cookie(net->key, tuple, pkt->psn, epoch) ||
				pkt->ack_psn == usiw_cm_cookie(net->key, tuple, pkt->psn, epoch - 1));
}

/* Another datagram of one that waits. */
static void repeated(struct usiw_cm_gate_verdict *v, struct usiw_cm_req *known,
		     const struct usiw_cm_packet *pkt, int proven, __u64 now_us)
{
	known->seen_us = now_us;
	if (proven) {
		known->proven = 1;
		known->isn = pkt->ack_psn;
	}
	/* There may be a place that it had no right to before, or was not given as one who had gone. */
	if (known->state == USIW_CM_R_QUEUED && !known->busy)
		offer(known->listener, now_us);
	v->isn = known->isn;
	v->pending = known->state == USIW_CM_R_QUEUED;
}

/* May another attempt from the same address and port take the place of @known? */
static int gives_way(const struct usiw_cm_req *known, int proven, __u64 now_us)
{
	return !known->busy && known->state != USIW_CM_R_OFFERED &&
	       (proven || !known->proven || is_stale(known, now_us));
}

void usiw_cm_gate_request(struct usiw_cm_gate_verdict *v, struct usiw_cm_gate *gate,
			  struct usiw_cm_listener *l, struct usiw_cm_req *req,
			  const struct usiw_cm_packet *pkt, __u64 now_us)
{
	__u32 epoch = (__u32)(now_us >> EPOCH_BITS);
	int proven = is_proven(gate->net, &req->tuple, pkt, epoch);
	struct usiw_cm_req *known;

	v->kind = USIW_CM_G_DROP;
	v->pending = 0;
	v->out = NULL;
	if (req->busy) {
		/* It was told this ISN, or will be; it has shown what it has shown. */
		int offered = req->state == USIW_CM_R_OFFERED && req->listener == l;

		v->isn = req->isn;
		proven = req->proven;
		if (offered) {	/* the place is the connection's */
			enter(gate, req, USIW_CM_R_NEW, NULL);
			remove_entry(gate, req);
			v->kind = USIW_CM_G_ADMIT;
			return;
		}
		usiw_cm_gate_discard(gate, req, now_us);
	} else {
		req->isn = proven ? pkt->ack_psn :
				    usiw_cm_cookie(gate->net->key, &req->tuple, pkt->psn, epoch);
		req->peer_isn = pkt->psn;
		req->seen_us = now_us;
		req->proven = (__u8)proven;
		v->isn = req->isn;

		known = find(gate, &req->tuple);
		if (known && known->peer_isn == pkt->psn) {
			repeated(v, known, pkt, proven, now_us);
			return;
		}
		if (known && !gives_way(known, proven, now_us)) {
			v->pending = 1;
			return;
		}
		if (known)
			put_out(v, gate, known);
		if (is_overtaking(gate)) {
			enter(gate, req, USIW_CM_R_RETRY, NULL);
			link_last(gate, req);
			v->kind = USIW_CM_G_KEPT;
			return;
		}
	}
	if (!l) {
		hold(v, gate, req, now_us);
	} else if (take_place(l, proven)) {
		v->kind = USIW_CM_G_ADMIT;
	} else {
		v->pending = 1;
		queue(v, l, req, now_us);
	}
}

struct usiw_cm_req *usiw_cm_gate_next(struct usiw_cm_gate *gate, __u64 now_us)
{
	struct usiw_cm_req *req;

	if (gate->held && now_us >= gate->hold_until_us)
		retry_held(gate);
	if (!gate->due)
		return NULL;
	for (req = gate->first; req; req = req->next) {
		if (!req->busy && is_due(req->state)) {
			req->busy = 1;
			return req;
		}
	}
	return NULL;
}

int usiw_cm_gate_discard(struct usiw_cm_gate *gate, struct usiw_cm_req *req, __u64 now_us)
{
	struct usiw_cm_listener *l = req->state == USIW_CM_R_OFFERED ? req->listener : NULL;

	remove_entry(gate, req);
	return l ? offer(l, now_us) : 0;
}

struct usiw_cm_req *usiw_cm_gate_expire(struct usiw_cm_gate *gate, __u64 now_us)
{
	struct usiw_cm_req *req, *next, *out = NULL;

	if (!gate->sweep_us || now_us < gate->sweep_us)
		return NULL;
	gate->sweep_us = 0;
	for (req = gate->first; req; req = next) {
		next = req->next;
		if (req->state != USIW_CM_R_QUEUED)
			continue;
		if (is_stale(req, now_us)) {
			remove_entry(gate, req);
			req->next = out;
			out = req;
		} else {
			gate->sweep_us = now_us + USIW_CM_STALE_US;
		}
	}
	return out;
}

__u64 usiw_cm_gate_deadline(const struct usiw_cm_gate *gate)
{
	__u64 at = gate->sweep_us;

	if (gate->due)
		return 1;
	if (gate->held && (!at || gate->hold_until_us < at))
		at = gate->hold_until_us;
	return at;
}

struct usiw_cm_req *usiw_cm_gate_withdraw(struct usiw_cm_gate *gate,
					  const struct usiw_cm_tuple *tuple,
					  const struct usiw_cm_packet *pkt)
{
	struct usiw_cm_req *req = find(gate, tuple);

	if (!req || req->busy || req->state == USIW_CM_R_OFFERED || req->peer_isn != pkt->psn ||
	    req->isn != pkt->ack_psn)
		return NULL;
	remove_entry(gate, req);
	return req;
}
