/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Admission of REQs, before there is a connection: places in backlogs, REQs that wait for one
 * or for a listener, and who goes first under a flood of forged ones.
 *
 * One admission per (network namespace, port), one struct usiw_cm_admission_net per namespace. The host
 * serialises all calls on one admission and its listeners, owns the memory of the entries and keeps the
 * datagram with each. It hands in random keys and the time. Admissions of a namespace may be called at
 * the same time.
 *
 * The cost of a REQ does not depend on the number of listeners of the port, and grows with the
 * logarithm of the number of waiting REQs: @looked counts the entries that are looked at for it.
 *
 * Life of a REQ without a connection:
 *
 *   no listener                 HELD for a moment behind one that has left, else refused
 *   listener, place             admitted
 *   listener, no place          QUEUED, answered PENDING, until a place is returned
 *
 * A REQ is *proven* when it brings back the ISN that PENDING has told (its ACK PSN): that is a
 * keyed hash of the 4-tuple and of the peer's ISN, of which nothing is kept, so whoever
 * brings it back does receive at its address. Half of a backlog, all of the waiting room and the
 * first turn are the proven ones' when these come: forged addresses cannot fill that.
 *
 * Room that listeners share is divided so that each has its reserved share, and none takes
 * more of the rest than it leaves free.
 */
#ifndef USIW_CM_ADMISSION_H
#define USIW_CM_ADMISSION_H

#include "usiw_cm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define USIW_CM_NET_HALF_OPEN	4096u	/* places of all listeners of a namespace that they share */
#define USIW_CM_NET_QUEUED	4096u	/* REQs that wait, likewise */
#define USIW_CM_RESERVED	16u	/* of either: each listener has these by itself */
#define USIW_CM_MAX_QUEUED	256u	/* REQs that wait for one listener */
#define USIW_CM_MAX_HELD	64u	/* REQs per port that wait for the next listener ... */
#define USIW_CM_HOLD_US		300000u	/* ... for so long after the last one has left */
/* Time without a REQ after which a waiting peer counts as gone. It repeats its REQ every second. */
#define USIW_CM_STALE_US	5000000u

/* Room shared by the listeners of a namespace. @used is changed by atomic operations. */
struct usiw_cm_pool {
	__u32 limit;
	__u32 used;
};

/**
 * struct usiw_cm_admission_net - a network namespace; set up by usiw_cm_admission_net_init()
 */
struct usiw_cm_admission_net {
	struct usiw_cm_pool half_open;
	struct usiw_cm_pool queued;
	__u64 key[2];
};

/* A list of entries by one of their links. Zeroed it is empty. */
struct usiw_cm_link {
	struct usiw_cm_link *next, *prev;
};

struct usiw_cm_list {
	struct usiw_cm_link *first, *last;
};

/**
 * struct usiw_cm_listener - a listener's places; zeroed, then usiw_cm_admission_join()
 * @admission:	NULL once it has left
 * @backlog:	at least 1
 * @open:	places taken: REQs admitted whose peer has not sent CONFIRM, and those OFFERED
 * @queued:	REQs that wait
 * @waiting:	these by their @wait, [1] the proven ones, in the order in which they get places
 * @seen:	likewise by their @seen, in the order of their latest datagrams
 *
 * It must live until the last of its places has been returned.
 */
struct usiw_cm_listener {
	struct usiw_cm_admission *admission;
	struct usiw_cm_admission_net *net;
	__u32 backlog;
	__u32 open;
	__u32 queued;
	struct usiw_cm_list waiting[2];
	struct usiw_cm_list seen[2];
};

enum usiw_cm_req_state {
	USIW_CM_R_NEW,		/* not known to the admission */
	USIW_CM_R_QUEUED,	/* waits for a place */
	USIW_CM_R_OFFERED,	/* has one: due */
	USIW_CM_R_HELD,		/* waits for a listener */
	USIW_CM_R_RETRY,	/* a listener has come, or none: due */
};

/**
 * struct usiw_cm_req - a REQ at the admission, part of the host's copy of the datagram
 * @tuple:	set by the host, which zeroes the rest
 * @next:	in the list of all entries, as @prev
 * @parent:	in the tree of them, as @child
 * @wait:	in the list of those in its state: the listener's, or the admission's
 * @seen:	QUEUED: in the listener's second list
 * @listener:	QUEUED and OFFERED: whose
 * @order:	of its arrival
 * @hash:	of @tuple
 * @busy:	the host has it from usiw_cm_admission_next(); still in the list of all
 */
struct usiw_cm_req {
	struct usiw_cm_tuple tuple;
	struct usiw_cm_req *next, *prev;
	struct usiw_cm_req *parent, *child[2];
	struct usiw_cm_link wait, seen;
	struct usiw_cm_listener *listener;
	__u64 seen_us;
	__u64 order;
	__u32 hash;
	__u32 peer_isn;
	__u32 isn;
	__u8 state;
	__u8 proven;
	__u8 busy;
};

/**
 * struct usiw_cm_admission - a port; zeroed, then @net set
 * @first:	entries, in the order of their arrival
 * @last:	the other end of these
 * @root:	the same entries, by their tuples
 * @held_list:	entries in state HELD
 * @due_list:	entries in state OFFERED or RETRY that the host does not have yet
 * @arrivals:	how many entries there have been
 * @looked:	entries looked at so far, for tests
 * @held:	entries in state HELD
 * @due:	entries in state OFFERED or RETRY
 * @retry:	entries in state RETRY that the host does not have yet
 * @hold_until_us: until then a REQ without a listener is held
 * @sweep_us:	when to look for stale ones; 0: nobody waits
 */
struct usiw_cm_admission {
	struct usiw_cm_admission_net *net;
	struct usiw_cm_req *first, *last;
	struct usiw_cm_req *root;
	struct usiw_cm_list held_list;
	struct usiw_cm_list due_list;
	__u64 arrivals;
	__u64 looked;
	__u32 held;
	__u32 due;
	__u32 retry;
	__u64 hold_until_us;
	__u64 sweep_us;
};

enum usiw_cm_admission_kind {
	USIW_CM_G_DROP,		/* nothing to do */
	USIW_CM_G_ADMIT,	/* open a connection with @isn; a place of the listener is taken */
	USIW_CM_G_KEPT,		/* the entry is the admission's until usiw_cm_admission_next() */
	USIW_CM_G_REFUSE,	/* REJECT: nobody listens */
};

struct usiw_cm_admission_verdict {
	__u32 kind;		/* enum usiw_cm_admission_kind */
	__u32 isn;		/* own, of the connection to come */
	int pending;		/* beside KEPT or DROP: answer by usiw_cm_build_pending(req, @isn) */
	struct usiw_cm_req *out; /* entries that had to make room, to be freed: a chain by ->next */
};

/* @key: random and secret. */
void usiw_cm_admission_net_init(struct usiw_cm_admission_net *net, const __u64 key[2]);

/* @l listens at the port from now on. What is held is due. */
void usiw_cm_admission_join(struct usiw_cm_admission *adm, struct usiw_cm_listener *l,
			    __u32 backlog);

/*
 * @l does not listen any more. What waits for it is held for the next one. Returns entries to
 * be freed, a chain by ->next.
 */
struct usiw_cm_req *usiw_cm_admission_leave(struct usiw_cm_listener *l, __u64 now_us);

/**
 * usiw_cm_admission_request - a REQ that asks for a connection
 * @l:		who listens for it, or NULL
 * @req:	a new entry, or one that usiw_cm_admission_next() has returned
 * @pkt:	the REQ
 *
 * Unless the verdict is KEPT, @req is the host's again.
 */
void usiw_cm_admission_request(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
			       struct usiw_cm_listener *l, struct usiw_cm_req *req,
			       const struct usiw_cm_packet *pkt, __u64 now_us);

/*
 * An admitted REQ's place is free: its peer has sent CONFIRM, or it has ended. 1: somebody is
 * due, see usiw_cm_admission_next(); 0: nobody.
 */
int usiw_cm_admission_return(struct usiw_cm_listener *l, __u64 now_us);

/*
 * The next entry that is due, or NULL; to be called until it is NULL before a new datagram is
 * worked off, after usiw_cm_admission_join(), and when a place was returned. It is to be treated as if its
 * datagram had come just now and goes to usiw_cm_admission_request(), or to usiw_cm_admission_discard().
 */
struct usiw_cm_req *usiw_cm_admission_next(struct usiw_cm_admission *adm, __u64 now_us);

/* @req leaves the admission and is the host's. 1: its place goes to another, who is due. */
int usiw_cm_admission_discard(struct usiw_cm_admission *adm, struct usiw_cm_req *req, __u64 now_us);

/* Entries whose peers have gone without a word, to be freed: a chain by ->next. */
struct usiw_cm_req *usiw_cm_admission_expire(struct usiw_cm_admission *adm, __u64 now_us);

/*
 * When to call usiw_cm_admission_expire() and usiw_cm_admission_next() without another cause, or 0: never.
 * In the past while somebody is due.
 */
__u64 usiw_cm_admission_deadline(const struct usiw_cm_admission *adm);

/*
 * A RESET (@pkt) for no connection: the peer of an entry has given up, if both ISNs match.
 * Returns the entry, out of the admission, or NULL.
 */
struct usiw_cm_req *usiw_cm_admission_withdraw(struct usiw_cm_admission *adm,
					       const struct usiw_cm_tuple *tuple,
					       const struct usiw_cm_packet *pkt);

/* ACCEPT with PENDING to @req. Returns the length. */
__u32 usiw_cm_build_pending(const struct usiw_cm_packet *req, __u32 isn, void *buf);

/* The ISN that answers a REQ: a keyed hash, never 0. @epoch: changes every minute or so. */
__u32 usiw_cm_cookie(const __u64 key[2], const struct usiw_cm_tuple *tuple, __u32 peer_isn,
		     __u32 epoch);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_ADMISSION_H */
