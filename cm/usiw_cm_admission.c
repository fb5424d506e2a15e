// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Implements the admission of REQs: shares of the listeners, states and lists of the entries,
 * decisions. usiw_cm_admission.h explains the rules.
 */
#ifdef __KERNEL__
#include <linux/stddef.h>
#include <linux/string.h>
#else
#include <stddef.h>
#include <string.h>
#endif

#include "usiw_cm_admission.h"
#include "usiw_cm_cookie.h"

/* ---- Shares of the listeners ------------------------------------------- */

/*
 * Takes one of @pool for a listener that has already taken @beyond of it. Returns false unless more
 * than @beyond are left. Several ports use a pool at the same time without a common lock, so @used
 * is atomic.
 */
static int pool_take(struct usiw_cm_pool *pool, __u32 beyond)
{
	__u32 used = __atomic_load_n(&pool->used, __ATOMIC_RELAXED);

	do {
		if (used >= pool->limit || beyond >= pool->limit - used)
			return 0;
	} while (!__atomic_compare_exchange_n(&pool->used, &used, used + 1, 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return 1;
}

/*
 * Takes one slot or waiting entry more for a listener that has *@own of them and may have @limit.
 * Returns false if it cannot have one.
 */
static int take(struct usiw_cm_pool *pool, __u32 *own, __u32 limit)
{
	if (*own >= limit)
		return 0;
	if (*own >= USIW_CM_RESERVED && !pool_take(pool, *own - USIW_CM_RESERVED))
		return 0;
	++*own;
	return 1;
}

/* Gives back one slot or waiting entry that take() has granted. */
static void give(struct usiw_cm_pool *pool, __u32 *own)
{
	if (*own > USIW_CM_RESERVED)
		__atomic_fetch_sub(&pool->used, 1, __ATOMIC_RELAXED);
	--*own;
}

/* ---- Entries of a port ------------------------------------------------- */

/* Returns the entry to which a link or a node belongs. */
#define req_of(link, member) \
	((struct usiw_cm_req *)((char *)(link) - offsetof(struct usiw_cm_req, member)))

static __u32 hash_of(const struct usiw_cm_admission *adm, const struct usiw_cm_tuple *tuple)
{
	/* No PENDING is sent in this epoch, so no PENDING shows a peer the hash of a tuple. */
	return usiw_cm_cookie(adm->net->key, tuple, 0, ~(__u32)0);
}

static struct usiw_cm_req *find(struct usiw_cm_admission *adm, const struct usiw_cm_tuple *tuple)
{
	__u32 hash = hash_of(adm, tuple);
	struct usiw_cm_node *node = adm->tree.root;
	struct usiw_cm_req *req;
	unsigned int depth = 0;

	for (; node; node = usiw_cm_tree_child(node, hash, depth++)) {
		req = req_of(node, node);
		adm->entries_read++;
		if (node->hash == hash && !memcmp(&req->tuple, tuple, sizeof(*tuple)))
			return req;
	}
	return NULL;
}

/* ---- Lists ------------------------------------------------------------- */

/*
 * Adds @req to @list by its link @wait, in the order of arrival. The search begins at the end,
 * because the entry is the latest one as a rule.
 */
static void insert(struct usiw_cm_admission *adm, struct usiw_cm_list *list,
		   struct usiw_cm_req *req)
{
	struct usiw_cm_link *at = list->last;

	while (at && req_of(at, wait)->order > req->order) {
		at = at->prev;
		adm->entries_read++;
	}
	usiw_cm_list_insert(list, at, &req->wait);
}

/* ---- States ------------------------------------------------------------ */

static int is_stale(const struct usiw_cm_req *req, __u64 now_us)
{
	return now_us - req->seen_us >= USIW_CM_STALE_US;
}

/* Returns the list in which the link @wait of an entry is, by the state of the entry; or NULL. */
static struct usiw_cm_list *list_of(struct usiw_cm_admission *adm, struct usiw_cm_req *req)
{
	if (req->state == USIW_CM_R_QUEUED)
		return &req->listener->waiting[req->proven];
	if (req->state == USIW_CM_R_HELD)
		return &adm->held;
	return req->state != USIW_CM_R_NEW && !req->busy ? &adm->due : NULL;
}

static void leave_lists(struct usiw_cm_admission *adm, struct usiw_cm_req *req)
{
	struct usiw_cm_list *list = list_of(adm, req);

	if (!list)
		return;
	usiw_cm_list_remove(list, &req->wait);
	if (req->state == USIW_CM_R_QUEUED)
		usiw_cm_list_remove(&req->listener->seen[req->proven], &req->seen);
	adm->retry -= req->state == USIW_CM_R_RETRY;
}

static void enter_lists(struct usiw_cm_admission *adm, struct usiw_cm_req *req)
{
	struct usiw_cm_list *list = list_of(adm, req);

	if (!list)
		return;
	insert(adm, list, req);
	if (req->state == USIW_CM_R_QUEUED)
		usiw_cm_list_append(&req->listener->seen[req->proven], &req->seen);
	adm->retry += req->state == USIW_CM_R_RETRY;
}

/*
 * Changes the state of an entry. A QUEUED entry counts in @queued of its listener, and an OFFERED
 * entry has a slot. The caller has already taken the waiting entry or slot of the new state, and
 * has given back or passed on that of the old state.
 */
static void enter(struct usiw_cm_admission *adm, struct usiw_cm_req *req, __u8 state,
		  struct usiw_cm_listener *l)
{
	leave_lists(adm, req);
	req->state = state;
	req->listener = l;
	enter_lists(adm, req);
}

/* Notes that the REQ of an entry was repeated. @proven: the repetition is proven. */
static void see(struct usiw_cm_admission *adm, struct usiw_cm_req *req, int proven, __u64 now_us)
{
	struct usiw_cm_list *seen;

	req->seen_us = now_us;
	if (proven && !req->proven) {
		leave_lists(adm, req);
		req->proven = 1;
		enter_lists(adm, req);
	} else if (req->state == USIW_CM_R_QUEUED) {
		seen = &req->listener->seen[req->proven];
		usiw_cm_list_remove(seen, &req->seen);
		usiw_cm_list_append(seen, &req->seen);
	}
}

/*
 * Gives back the slot or the waiting entry that @req has taken, and changes to @state, in which an
 * entry has neither.
 */
static void retire(struct usiw_cm_admission *adm, struct usiw_cm_req *req, __u8 state)
{
	struct usiw_cm_listener *l = req->listener;

	if (req->state == USIW_CM_R_QUEUED)
		give(&l->net->queued, &l->queued);
	else if (req->state == USIW_CM_R_OFFERED)
		give(&l->net->half_open, &l->open);
	enter(adm, req, state, NULL);
}

static void remove_entry(struct usiw_cm_admission *adm, struct usiw_cm_req *req)
{
	retire(adm, req, USIW_CM_R_NEW);
	usiw_cm_tree_remove(&adm->tree, &req->node);
	usiw_cm_list_remove(&adm->all, &req->all);
	req->busy = 0;
}

/* Adds @req to the entries of the admission, in @state; see enter(). */
static void keep(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
		 struct usiw_cm_req *req, __u8 state, struct usiw_cm_listener *l)
{
	req->order = ++adm->arrivals;
	usiw_cm_list_append(&adm->all, &req->all);
	usiw_cm_tree_add(&adm->tree, &req->node, hash_of(adm, &req->tuple));
	enter(adm, req, state, l);
	v->kind = USIW_CM_ADM_KEPT;
}

/* Removes @req, and adds it to the chain *@out of entries that the host has to free. */
static void put_out(struct usiw_cm_admission *adm, struct usiw_cm_req *req,
		    struct usiw_cm_req **out)
{
	remove_entry(adm, req);
	req->next = *out;
	*out = req;
}

/* ---- Slots ------------------------------------------------------------- */

/*
 * Takes a slot of @l, or returns false. A REQ that is not proven gets a slot only if the slots
 * taken are fewer than half of the backlog, rounded up.
 */
static int take_slot(struct usiw_cm_listener *l, int proven)
{
	__u32 limit = proven ? l->backlog : (l->backlog + 1) / 2;

	return take(&l->net->half_open, &l->open, limit);
}

/*
 * Gives a free slot to the first entry that waits for @l and is not stale; proven ones come first.
 * Returns true if an entry got one.
 */
static int offer(struct usiw_cm_listener *l, __u64 now_us)
{
	struct usiw_cm_link *link;
	struct usiw_cm_req *req;
	int proven;

	if (!l->admission || !l->queued)
		return 0;
	for (proven = 1; proven >= 0; proven--) {
		for (link = l->waiting[proven].first; link; link = link->next) {
			req = req_of(link, wait);
			l->admission->entries_read++;
			if (is_stale(req, now_us))
				continue;
			if (!take_slot(l, proven))
				return 0;
			give(&l->net->queued, &l->queued);
			enter(l->admission, req, USIW_CM_R_OFFERED, l);
			return 1;
		}
	}
	return 0;
}

int usiw_cm_admission_return(struct usiw_cm_listener *l, __u64 now_us)
{
	give(&l->net->half_open, &l->open);
	return offer(l, now_us);
}

/* ---- Waiting entries --------------------------------------------------- */

/*
 * Returns the QUEUED entry of @l that a new REQ replaces, or NULL. Chooses the entry that was not
 * repeated for the longest time among those that are not proven. If all are proven, chooses it
 * among all, but returns NULL unless the new REQ is proven or the chosen entry is stale.
 */
static struct usiw_cm_req *victim(const struct usiw_cm_listener *l, int proven, __u64 now_us)
{
	struct usiw_cm_link *link = l->seen[0].first ? l->seen[0].first : l->seen[1].first;
	struct usiw_cm_req *found = link ? req_of(link, seen) : NULL;

	l->admission->entries_read++;
	if (found && found->proven && !proven && !is_stale(found, now_us))
		return NULL;
	return found;
}

/*
 * Makes @req wait for @l. If take() grants @l no further waiting entry, @req replaces the one that
 * victim() chooses. Drops @req if it may replace none, or if take() still grants none, because
 * other listeners have taken too many.
 */
static void queue(struct usiw_cm_admission_verdict *v, struct usiw_cm_listener *l,
		  struct usiw_cm_req *req, __u64 now_us)
{
	if (!take(&l->net->queued, &l->queued, USIW_CM_MAX_QUEUED)) {
		struct usiw_cm_req *other = victim(l, req->proven, now_us);

		if (!other)
			return;
		put_out(l->admission, other, &v->out);
		if (!take(&l->net->queued, &l->queued, USIW_CM_MAX_QUEUED))
			return;
	}
	keep(v, l->admission, req, USIW_CM_R_QUEUED, l);
	if (!l->admission->sweep_us)
		l->admission->sweep_us = now_us + USIW_CM_STALE_US;
}

/*
 * Holds a REQ for the next listener, if a listener has left a moment ago and fewer than
 * USIW_CM_MAX_HELD REQs are held. Otherwise refuses it.
 * Some programs close their listener after a first connection and listen again. They rely on the
 * order of the requests that arrive in between (perftest -R does). If such a request were refused,
 * its peer would repeat it after later requests.
 */
static void hold(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
		 struct usiw_cm_req *req, __u64 now_us)
{
	if (now_us >= adm->hold_until_us || adm->held.count >= USIW_CM_MAX_HELD) {
		v->kind = USIW_CM_ADM_REFUSE;
		return;
	}
	keep(v, adm, req, USIW_CM_R_HELD, NULL);
}

/* ---- Listeners --------------------------------------------------------- */

void usiw_cm_admission_net_init(struct usiw_cm_admission_net *net, const __u64 key[2])
{
	memset(net, 0, sizeof(*net));
	net->half_open.limit = USIW_CM_NET_HALF_OPEN;
	net->queued.limit = USIW_CM_NET_QUEUED;
	net->key[0] = key[0];
	net->key[1] = key[1];
}

static void retry_held(struct usiw_cm_admission *adm)
{
	while (adm->held.first)
		enter(adm, req_of(adm->held.first, wait), USIW_CM_R_RETRY, NULL);
}

void usiw_cm_admission_join(struct usiw_cm_admission *adm, struct usiw_cm_listener *l,
			    __u32 backlog)
{
	l->admission = adm;
	l->net = adm->net;
	l->backlog = backlog ? backlog : 1;
	retry_held(adm);
}

struct usiw_cm_req *usiw_cm_admission_leave(struct usiw_cm_listener *l, __u64 now_us)
{
	struct usiw_cm_admission *adm = l->admission;
	struct usiw_cm_req *req, *out = NULL;
	struct usiw_cm_link *link, *next;

	if (!adm)
		return NULL;
	adm->hold_until_us = now_us + USIW_CM_HOLD_US;
	for (link = adm->all.first; link; link = next) {
		next = link->next;
		req = req_of(link, all);
		if (req->listener != l)
			continue;
		if (req->busy)
			retire(adm, req, USIW_CM_R_RETRY);
		else if (adm->held.count < USIW_CM_MAX_HELD && !is_stale(req, now_us))
			retire(adm, req, USIW_CM_R_HELD);
		else
			put_out(adm, req, &out);
	}
	l->admission = NULL;
	return out;
}

/* ---- Requests ---------------------------------------------------------- */

/* Fills in @req from a new REQ. */
static void read_request(struct usiw_cm_req *req, const __u64 key[2],
			 const struct usiw_cm_packet *pkt, __u64 now_us)
{
	req->isn = usiw_cm_cookie_isn(key, &req->tuple, pkt->psn, pkt->ack_psn, now_us,
				      &req->proven);
	req->peer_isn = pkt->psn;
	req->seen_us = now_us;
}

/* Handles @req, which repeats the REQ of the entry @known. */
static void repeated(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
		     struct usiw_cm_req *known, const struct usiw_cm_req *req, __u64 now_us)
{
	see(adm, known, req->proven, now_us);
	if (req->proven)
		known->isn = req->isn;
	/*
	 * A slot may be free for the entry: one that only a proven entry may have, one that the
	 * entry did not get while it was stale, or one that another listener has returned.
	 */
	if (known->state == USIW_CM_R_QUEUED)
		offer(known->listener, now_us);
	v->isn = known->isn;
	v->pending = known->state == USIW_CM_R_QUEUED;
}

/* True if another attempt from the same address and port may replace @known. */
static int gives_way(const struct usiw_cm_req *known, int proven, __u64 now_us)
{
	return !known->busy && known->state != USIW_CM_R_OFFERED &&
	       (proven || !known->proven || is_stale(known, now_us));
}

/*
 * Handles the known entry with the tuple of the new @req, if there is one. Returns true if the
 * known entry stays, so that @req is not needed.
 */
static int meets_known(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
		       struct usiw_cm_req *req, __u64 now_us)
{
	struct usiw_cm_req *known = find(adm, &req->tuple);

	if (!known)
		return 0;
	if (known->peer_isn == req->peer_isn) {
		repeated(v, adm, known, req, now_us);
		return 1;
	}
	if (!gives_way(known, req->proven, now_us)) {
		v->pending = 1;
		return 1;
	}
	put_out(adm, known, &v->out);
	return 0;
}

/* Decides about a REQ that has no entry. */
static void decide(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
		   struct usiw_cm_listener *l, struct usiw_cm_req *req, __u64 now_us)
{
	if (!l) {
		hold(v, adm, req, now_us);
	} else if (take_slot(l, req->proven)) {
		v->kind = USIW_CM_ADM_ADMIT;
	} else {
		v->pending = 1;
		queue(v, l, req, now_us);
	}
}

/*
 * Decides anew about an entry that was due. The entry keeps its ISN, and remains proven or not
 * proven. If it has a slot of @l, its connection gets that slot.
 */
static void decide_anew(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
			struct usiw_cm_listener *l, struct usiw_cm_req *req, __u64 now_us)
{
	if (req->state == USIW_CM_R_OFFERED && req->listener == l) {
		enter(adm, req, USIW_CM_R_NEW, NULL);
		remove_entry(adm, req);
		v->kind = USIW_CM_ADM_ADMIT;
		return;
	}
	usiw_cm_admission_discard(adm, req, now_us);
	decide(v, adm, l, req, now_us);
}

void usiw_cm_admission_request(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
			       struct usiw_cm_listener *l, struct usiw_cm_req *req,
			       const struct usiw_cm_packet *pkt, __u64 now_us)
{
	v->kind = USIW_CM_ADM_DROP;
	v->pending = 0;
	v->out = NULL;
	if (req->busy) {
		v->isn = req->isn;
		decide_anew(v, adm, l, req, now_us);
		return;
	}
	read_request(req, adm->net->key, pkt, now_us);
	v->isn = req->isn;
	if (meets_known(v, adm, req, now_us))
		return;
	/* A new REQ must not overtake those that were held for a listener and are due now. */
	if (adm->retry)
		keep(v, adm, req, USIW_CM_R_RETRY, NULL);
	else
		decide(v, adm, l, req, now_us);
}

struct usiw_cm_req *usiw_cm_admission_next(struct usiw_cm_admission *adm, __u64 now_us)
{
	struct usiw_cm_req *req;

	if (adm->held.first && now_us >= adm->hold_until_us)
		retry_held(adm);
	if (!adm->due.first)
		return NULL;
	req = req_of(adm->due.first, wait);
	leave_lists(adm, req);
	req->busy = 1;
	return req;
}

int usiw_cm_admission_discard(struct usiw_cm_admission *adm, struct usiw_cm_req *req, __u64 now_us)
{
	struct usiw_cm_listener *l = req->state == USIW_CM_R_OFFERED ? req->listener : NULL;

	remove_entry(adm, req);
	return l ? offer(l, now_us) : 0;
}

struct usiw_cm_req *usiw_cm_admission_expire(struct usiw_cm_admission *adm, __u64 now_us)
{
	struct usiw_cm_req *req, *out = NULL;
	struct usiw_cm_link *link, *next;

	if (!adm->sweep_us || now_us < adm->sweep_us)
		return NULL;
	adm->sweep_us = 0;
	for (link = adm->all.first; link; link = next) {
		next = link->next;
		req = req_of(link, all);
		if (req->state != USIW_CM_R_QUEUED)
			continue;
		if (is_stale(req, now_us))
			put_out(adm, req, &out);
		else
			adm->sweep_us = now_us + USIW_CM_STALE_US;
	}
	return out;
}

struct usiw_cm_req *usiw_cm_admission_purge(struct usiw_cm_admission *adm)
{
	struct usiw_cm_req *out = NULL;

	while (adm->all.first)
		put_out(adm, req_of(adm->all.first, all), &out);
	return out;
}

__u64 usiw_cm_admission_deadline(const struct usiw_cm_admission *adm)
{
	__u64 at = adm->sweep_us;

	if (adm->due.first)
		return 1;
	if (adm->held.first && (!at || adm->hold_until_us < at))
		at = adm->hold_until_us;
	return at;
}

struct usiw_cm_req *usiw_cm_admission_withdraw(struct usiw_cm_admission *adm,
					       const struct usiw_cm_tuple *tuple,
					       const struct usiw_cm_packet *pkt)
{
	struct usiw_cm_req *req = find(adm, tuple);

	if (!req || req->busy || req->state == USIW_CM_R_OFFERED || req->peer_isn != pkt->psn ||
	    req->isn != pkt->ack_psn)
		return NULL;
	remove_entry(adm, req);
	return req;
}
