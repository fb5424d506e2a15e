/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Admission of REQs, before there is a connection.
 *
 * A listener has a backlog with a limited number of slots. Anybody can send REQs from false
 * addresses, so a flood of them could take all slots. The admission decides which REQ gets a slot,
 * which waits for one or for the next listener, and which has to go.
 *
 *   no listener                 HELD for a moment after a listener has left, else refused
 *   listener, free slot         admitted
 *   listener, no free slot      QUEUED and answered by PENDING, until a slot is returned
 *
 * A REQ is *proven* if its sender receives at the address that it claims. PENDING carries an ISN
 * that is a keyed hash of the 4-tuple and of the peer's ISN, so nothing has to be remembered for
 * it. A REQ that has this ISN as its ACK PSN is proven. Half of each backlog is for proven REQs
 * only. Proven REQs also get slots first, and they replace entries that are not proven. So forged
 * addresses cannot keep them out.
 *
 * Listeners of a namespace share slots and waiting entries. Each has a reserved share by itself. A
 * listener takes a further one only if more are left than it has taken beyond its share.
 *
 * There is one admission for each (network namespace, port), and one struct usiw_cm_admission_net
 * for each namespace. The host serialises all calls on an admission and its listeners. It owns the
 * memory of the entries, keeps the datagram with each, and passes random keys and the time. It may
 * call several admissions of a namespace at the same time.
 *
 * The cost of a REQ does not depend on the number of listeners at the port, and grows with the
 * logarithm of the number of waiting REQs. @entries_read counts the entries that are read for it.
 */
#ifndef USIW_CM_ADMISSION_H
#define USIW_CM_ADMISSION_H

#include "usiw_cm_list.h"
#include "usiw_cm_tree.h"
#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define USIW_CM_NET_HALF_OPEN	4096u	/* slots that the listeners of a namespace share */
#define USIW_CM_NET_QUEUED	4096u	/* waiting REQs that they share */
#define USIW_CM_RESERVED	16u	/* slots, and waiting REQs, of each listener alone */
#define USIW_CM_MAX_QUEUED	256u	/* REQs that wait for one listener */
#define USIW_CM_MAX_HELD	64u	/* REQs of a port that wait for the next listener */
#define USIW_CM_HOLD_US		300000u	/* time for which they wait after a listener has left */
/* A waiting peer repeats its REQ every second. After this time without a REQ it counts as gone. */
#define USIW_CM_STALE_US	5000000u

/* Slots or waiting entries that the listeners of a namespace share. @used is changed atomically. */
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

/**
 * struct usiw_cm_listener - a listener's slots; zeroed, then usiw_cm_admission_join()
 * @admission:	NULL after the listener has left
 * @net:	namespace of the admission
 * @backlog:	number of slots, at least 1
 * @open:	slots taken: by admitted REQs before CONFIRM, and by OFFERED entries
 * @queued:	number of QUEUED entries
 * @waiting:	QUEUED entries by their @wait, in the order of their arrival; [1]: proven ones
 * @seen:	QUEUED entries by their @seen, in the order of latest datagrams; [1]: proven ones
 *
 * It must live until the last of its slots has been returned.
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
	USIW_CM_R_QUEUED,	/* waits for a slot */
	USIW_CM_R_OFFERED,	/* due: has a slot */
	USIW_CM_R_HELD,		/* waits for a listener */
	USIW_CM_R_RETRY,	/* due: to be decided anew, with a listener or without */
};

/**
 * struct usiw_cm_req - a REQ at the admission, part of the host's copy of the datagram
 * @tuple:	set by the host, which zeroes the rest
 * @next:	next entry of a chain of entries to be freed, else NULL
 * @all:	link in the list of all entries
 * @node:	node in the tree of all entries
 * @wait:	link in the list for its state, of the listener or of the admission
 * @seen:	QUEUED: link in the list @seen of the listener
 * @listener:	QUEUED, OFFERED: the listener that it waits for or has a slot of
 * @seen_us:	time of its latest datagram
 * @order:	number of its arrival
 * @peer_isn:	PSN of the REQ
 * @isn:	ISN in the PENDING that answers it
 * @state:	enum usiw_cm_req_state
 * @proven:	a REQ has brought @isn back
 * @busy:	the host has it from usiw_cm_admission_next(); the list of all entries still has it
 */
struct usiw_cm_req {
	struct usiw_cm_tuple tuple;
	struct usiw_cm_req *next;
	struct usiw_cm_node node;
	struct usiw_cm_link all, wait, seen;
	struct usiw_cm_listener *listener;
	__u64 seen_us;
	__u64 order;
	__u32 peer_isn;
	__u32 isn;
	__u8 state;
	__u8 proven;
	__u8 busy;
};

/**
 * struct usiw_cm_admission - the admission of a port; zeroed, then @net set
 * @net:	namespace of the port
 * @all:	all entries, in the order of their arrival
 * @tree:	all entries, by a keyed hash of their tuples
 * @held:	entries in state HELD
 * @due:	entries in state OFFERED or RETRY that the host does not have yet
 * @retry:	number of RETRY entries in @due
 * @arrivals:	number of all entries so far
 * @entries_read:	number of entries read so far, for tests
 * @hold_until_us: until then a REQ without a listener is held
 * @sweep_us:	time of the next search for stale entries; 0: no entry is QUEUED
 */
struct usiw_cm_admission {
	struct usiw_cm_admission_net *net;
	struct usiw_cm_list all;
	struct usiw_cm_tree tree;
	struct usiw_cm_list held;
	struct usiw_cm_list due;
	__u32 retry;
	__u64 arrivals;
	__u64 entries_read;
	__u64 hold_until_us;
	__u64 sweep_us;
};

enum usiw_cm_admission_kind {
	USIW_CM_ADM_DROP,		/* nothing to do */
	USIW_CM_ADM_ADMIT,	/* open a connection with @isn; it has a slot of the listener */
	USIW_CM_ADM_KEPT,		/* the entry is the admission's until usiw_cm_admission_next() */
	USIW_CM_ADM_REFUSE,	/* answer by a REJECT: nobody listens */
};

struct usiw_cm_admission_verdict {
	__u32 kind;		/* enum usiw_cm_admission_kind */
	__u32 isn;		/* ISN of this end, for the connection or for PENDING */
	int pending;		/* KEPT, DROP: answer by usiw_cm_build_pending(req, @isn) */
	struct usiw_cm_req *out; /* entries that were replaced, to be freed: a chain by ->next */
};

/* @key: random and secret. */
void usiw_cm_admission_net_init(struct usiw_cm_admission_net *net, const __u64 key[2]);

/* @l listens at the port from now on. The HELD entries of the port become due. */
void usiw_cm_admission_join(struct usiw_cm_admission *adm, struct usiw_cm_listener *l,
			    __u32 backlog);

/*
 * @l does not listen any more. The entries that wait for it are held for the next listener. Returns
 * those that cannot be held, to be freed: a chain by ->next.
 */
struct usiw_cm_req *usiw_cm_admission_leave(struct usiw_cm_listener *l, __u64 now_us);

/**
 * usiw_cm_admission_request - decide about a REQ that asks for a connection
 * @v:		the decision
 * @adm:	admission of its port
 * @l:		the listener for it, or NULL
 * @req:	a new entry, or one that usiw_cm_admission_next() has returned
 * @pkt:	the REQ
 * @now_us:	time
 *
 * Unless the verdict is KEPT, @req belongs to the host again.
 */
void usiw_cm_admission_request(struct usiw_cm_admission_verdict *v, struct usiw_cm_admission *adm,
			       struct usiw_cm_listener *l, struct usiw_cm_req *req,
			       const struct usiw_cm_packet *pkt, __u64 now_us);

/*
 * Returns the slot of an admitted REQ, because its peer has sent CONFIRM or the connection has
 * ended. Returns true if an entry became due; see usiw_cm_admission_next().
 */
int usiw_cm_admission_return(struct usiw_cm_listener *l, __u64 now_us);

/*
 * Returns the next entry that is due, or NULL. The host calls it until it returns NULL: before it
 * handles a new datagram, after usiw_cm_admission_join(), and after a slot was returned. It handles
 * the entry as if its datagram had arrived just now, and passes it to usiw_cm_admission_request()
 * or to usiw_cm_admission_discard().
 */
struct usiw_cm_req *usiw_cm_admission_next(struct usiw_cm_admission *adm, __u64 now_us);

/*
 * Removes @req, which belongs to the host from then on. Returns true if another entry got its slot
 * and became due.
 */
int usiw_cm_admission_discard(struct usiw_cm_admission *adm, struct usiw_cm_req *req, __u64 now_us);

/* Returns the QUEUED entries that are stale, to be freed: a chain by ->next. */
struct usiw_cm_req *usiw_cm_admission_expire(struct usiw_cm_admission *adm, __u64 now_us);

/* The port is gone. Returns all of its entries, to be freed: a chain by ->next. */
struct usiw_cm_req *usiw_cm_admission_purge(struct usiw_cm_admission *adm);

/*
 * Returns the time at which to call usiw_cm_admission_expire() and usiw_cm_admission_next() without
 * another cause; 0: never. The time is in the past while an entry is due that the host does not
 * have.
 */
__u64 usiw_cm_admission_deadline(const struct usiw_cm_admission *adm);

/*
 * Handles a RESET (@pkt) for which there is no connection. If both ISNs are those of a waiting
 * entry, its peer has given up. Returns that entry, which is removed, or NULL.
 */
struct usiw_cm_req *usiw_cm_admission_withdraw(struct usiw_cm_admission *adm,
					       const struct usiw_cm_tuple *tuple,
					       const struct usiw_cm_packet *pkt);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_ADMISSION_H */
