/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Admission of REQs, before there is a connection.
 *
 * A listener has a backlog with a limited number of slots. Anybody can send REQs from false
 * addresses, so a flood of them could take all slots. The admission decides which REQ gets a slot,
 * which waits for a slot or for the next listener, and which is dropped or refused.
 *
 *   no listener                 HELD for a moment after a listener has left, else refused
 *   listener, free slot         admitted
 *   listener, no free slot      answered by PENDING, and QUEUED until a slot is returned; dropped
 *                               if it gets no waiting entry
 *
 * A REQ is *proven* if its sender receives at the address that it claims. PENDING carries an ISN
 * that is a keyed hash of the 4-tuple, the peer's ISN and the time, so the host need not remember
 * the ISN. A REQ that has this ISN as its ACK PSN is proven. Half of each backlog, rounded down, is
 * for proven REQs only. Proven REQs also get slots first, and they replace waiting entries that are
 * not proven. So REQs from forged addresses cannot take all slots of a backlog of 2 or more.
 *
 * The listeners of a namespace share slots and waiting entries. Each listener also has a reserved
 * number of both. A listener that has used up its reserve may take one more only while more are
 * left than it has already taken beyond its reserve.
 *
 * There is one admission for each (network namespace, port), and one struct usiw_cm_admission_net
 * for each namespace. The host serialises all calls on an admission and its listeners. It owns the
 * memory of the entries, keeps the datagram with each, and passes random keys and the time. It may
 * call several admissions of a namespace at the same time.
 *
 * The cost of a REQ does not depend on the number of listeners at the port. As a rule it grows with
 * the logarithm of the number of waiting REQs. Tests verify this by the member @entries_read.
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
#define USIW_CM_NET_QUEUED	4096u	/* waiting REQs that the listeners share */
#define USIW_CM_RESERVED	16u	/* slots, and waiting REQs, of each listener alone */
#define USIW_CM_MAX_QUEUED	256u	/* REQs that wait for one listener */
#define USIW_CM_MAX_HELD	64u	/* REQs of a port that wait for the next listener */
#define USIW_CM_HOLD_US		300000u	/* us for which such REQs wait, after a listener left */
/*
 * Time without a REQ, in microseconds, after which a waiting peer counts as gone. A waiting peer
 * repeats its REQ every second.
 */
#define USIW_CM_STALE_US	5000000u

/* Slots or waiting entries that the listeners of a namespace share. @used is changed atomically. */
struct usiw_cm_pool {
	__u32 limit;
	__u32 used;
};

/**
 * struct usiw_cm_admission_net - pools and secret key that a network namespace has
 *
 * usiw_cm_admission_net_init() sets it up.
 */
struct usiw_cm_admission_net {
	struct usiw_cm_pool half_open;
	struct usiw_cm_pool queued;
	__u64 key[2];
};

/**
 * struct usiw_cm_listener - a listener with its slots and the REQs that wait for it
 * @admission:	NULL after the listener has left
 * @net:	namespace of the admission
 * @backlog:	number of slots, at least 1
 * @open:	number of slots taken: by OFFERED entries, and by admitted REQs until CONFIRM or the
 *		end of the connection
 * @queued:	number of QUEUED entries
 * @waiting:	QUEUED entries in the order of arrival. [0]: those not proven, [1]: proven ones
 * @seen:	the same entries in the order of their latest datagrams
 *
 * The host zeroes it, then calls usiw_cm_admission_join(). It must stay in memory until its last
 * slot has been returned.
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

/* States of an entry. An entry is "due" if usiw_cm_admission_next() is to return it. */
enum usiw_cm_req_state {
	USIW_CM_R_NEW,		/* not known to the admission */
	USIW_CM_R_QUEUED,	/* waits for a slot */
	USIW_CM_R_OFFERED,	/* has a slot, and is due */
	USIW_CM_R_HELD,		/* waits for a listener */
	USIW_CM_R_RETRY,	/* due: the host asks about it again, with or without a listener */
};

/**
 * struct usiw_cm_req - an entry: a REQ that waits. Part of the host's copy of the datagram
 * @tuple:	4-tuple. The host sets it, and zeroes the other members
 * @next:	next entry of a chain of entries to be freed, else NULL
 * @all:	link in the list of all entries
 * @node:	node in the tree of all entries
 * @wait:	link in the list of its state: @waiting of the listener, @held or @due
 * @seen:	QUEUED: link in the list @seen of the listener
 * @listener:	QUEUED, OFFERED: the listener that it waits for or has a slot of
 * @seen_us:	time of its latest datagram
 * @order:	number of the entry in the order of arrival
 * @peer_isn:	PSN of the REQ
 * @isn:	ISN in the PENDING that answers it
 * @state:	enum usiw_cm_req_state
 * @proven:	a REQ had @isn as its ACK PSN
 * @busy:	usiw_cm_admission_next() has returned it to the host. It is still in @all and @tree
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
	USIW_CM_ADM_DROP,		/* make no connection, and keep no entry */
	USIW_CM_ADM_ADMIT,	/* make a connection with @isn. It has a slot of the listener */
	/*
	 * The admission has the entry now. The host frees it when a later call returns it as one to
	 * be freed, after usiw_cm_admission_discard(), or when a later verdict about it is another.
	 */
	USIW_CM_ADM_KEPT,
	USIW_CM_ADM_REFUSE,	/* answer by a REJECT: nobody listens */
};

/* The decision about one REQ. */
struct usiw_cm_admission_verdict {
	__u32 kind;		/* enum usiw_cm_admission_kind */
	__u32 isn;		/* ISN of this end, for the connection or for PENDING */
	int pending;		/* KEPT, DROP: true if usiw_cm_build_pending() is the answer */
	struct usiw_cm_req *out; /* replaced entries, which the host frees: a chain by ->next */
};

/* Sets up @net. @key: random and secret. */
void usiw_cm_admission_net_init(struct usiw_cm_admission_net *net, const __u64 key[2]);

/* Adds @l to the listeners of the port. The HELD entries of the port become due. */
void usiw_cm_admission_join(struct usiw_cm_admission *adm, struct usiw_cm_listener *l,
			    __u32 backlog);

/*
 * Removes @l from the listeners of its port. Its QUEUED and OFFERED entries are held for the next
 * listener, except for those that the host has at the moment. Returns the entries that are stale or
 * too many, which the host frees: a chain by ->next.
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
 * Returns the next entry that is due, or NULL if there is none. The host fetches all due entries in
 * this way after usiw_cm_admission_join(), after a slot was returned, and at
 * usiw_cm_admission_deadline(). The module also does so before it handles a new datagram. The host
 * handles an entry as if its datagram had arrived just now, and passes the entry to
 * usiw_cm_admission_request() or to usiw_cm_admission_discard().
 */
struct usiw_cm_req *usiw_cm_admission_next(struct usiw_cm_admission *adm, __u64 now_us);

/*
 * Removes @req, which belongs to the host from then on. Returns true if @req had a slot and another
 * entry, which is due now, got that slot.
 */
int usiw_cm_admission_discard(struct usiw_cm_admission *adm, struct usiw_cm_req *req, __u64 now_us);

/*
 * Removes the QUEUED entries that are stale, if adm->sweep_us has come. Returns them for the host
 * to free: a chain by ->next.
 */
struct usiw_cm_req *usiw_cm_admission_expire(struct usiw_cm_admission *adm, __u64 now_us);

/*
 * Removes all entries, because the port is gone. Returns them for the host to free: a chain by
 * ->next.
 */
struct usiw_cm_req *usiw_cm_admission_purge(struct usiw_cm_admission *adm);

/*
 * Returns the time at which the host has to call usiw_cm_admission_expire() and
 * usiw_cm_admission_next(), even if no event calls for it; 0: never. While an entry is due, the
 * time is in the past.
 */
__u64 usiw_cm_admission_deadline(const struct usiw_cm_admission *adm);

/*
 * Handles a RESET (@pkt) for which there is no connection. If its ISNs are those of a waiting
 * entry, the peer has given up: removes the entry and returns it. Returns NULL otherwise. An entry
 * that is OFFERED, or that usiw_cm_admission_next() has returned, does not wait and stays.
 */
struct usiw_cm_req *usiw_cm_admission_withdraw(struct usiw_cm_admission *adm,
					       const struct usiw_cm_tuple *tuple,
					       const struct usiw_cm_packet *pkt);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_ADMISSION_H */
