// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * REQs before they are connections: cm/usiw_cm_gate.c decides, and this is its host. Each UDP
 * port has a gate, whose entries are worked off by the port's worker only.
 */
#include <linux/slab.h>

#include "usiw_conn.h"

/*
 * Listeners of other ports do not wait for this one, but for one port in 256. The lock is the netns',
 * so that it is there for places that are returned when the listener, and its port, have gone.
 */
static spinlock_t *usiw_gate_port_lock(struct net *net, __be16 port)
{
	return &usiw_net(net)->gate_locks[be16_to_cpu(port) % USIW_GATE_LOCKS];
}

static spinlock_t *usiw_gate_lock(const struct usiw_sock *us)
{
	return usiw_gate_port_lock(us->net, us->port);
}

static spinlock_t *usiw_listener_lock(const struct usiw_listener *listener)
{
	return usiw_gate_port_lock(read_pnet(&listener->dev->net), listener->port);
}

static struct usiw_rx *usiw_gate_rx(struct usiw_cm_req *req)
{
	return container_of(req, struct usiw_rx, req);
}

static void usiw_gate_free(struct usiw_cm_req *chain)
{
	struct usiw_cm_req *req;

	while ((req = chain) != NULL) {
		chain = req->next;
		kfree(usiw_gate_rx(req));
	}
}

/* ---- Listeners --------------------------------------------------------- */

static void usiw_listener_release(struct kref *kref)
{
	struct usiw_listener *listener = container_of(kref, struct usiw_listener, kref);

	listener->cm_id->rem_ref(listener->cm_id);
	usiw_user_put(listener->user);
	usiw_charge_put(listener->memcg);
	usiw_device_release(listener->dev);
	kfree(listener);
}

void usiw_listener_put(struct usiw_listener *listener)
{
	kref_put(&listener->kref, usiw_listener_release);
}

/* Two listeners of one device that would hear the same. */
static bool usiw_listeners_conflict(const struct usiw_listener *a, const struct usiw_listener *b)
{
	return a->dev == b->dev && a->families & b->families &&
	       (a->any || b->any ||
		(a->scope == b->scope && ipv6_addr_equal(&a->addr, &b->addr)));
}

/* @listener hears what comes to its port from now on; what was held for it goes first. */
int usiw_gate_join(struct usiw_listener *listener, unsigned int backlog)
{
	struct usiw_sock *us = listener->us;
	struct usiw_listener *other;
	int ret = 0;

	spin_lock(usiw_gate_lock(us));
	list_for_each_entry(other, &us->listeners, node)
		if (usiw_listeners_conflict(other, listener))
			ret = -EADDRINUSE;
	if (!ret) {
		list_add_tail(&listener->node, &us->listeners);
		usiw_cm_gate_join(&us->gate, &listener->places, backlog);
	}
	spin_unlock(usiw_gate_lock(us));
	if (!ret)
		usiw_sock_wake(us);
	return ret;
}

/* Afterwards no request finds @listener; one that has found it goes on with it. */
void usiw_gate_leave(struct usiw_listener *listener)
{
	struct usiw_sock *us = listener->us;
	struct usiw_cm_req *out;

	spin_lock(usiw_gate_lock(us));
	list_del_init(&listener->node);
	out = usiw_cm_gate_leave(&listener->places, usiw_now_us());
	spin_unlock(usiw_gate_lock(us));
	usiw_gate_free(out);
	/* What is held has its time, which the worker keeps. */
	usiw_sock_wake(us);
}

/* Does it listen no more? */
bool usiw_gate_has_left(const struct usiw_listener *listener)
{
	bool left;

	spin_lock(usiw_listener_lock(listener));
	left = !listener->places.gate;
	spin_unlock(usiw_listener_lock(listener));
	return left;
}

/* One of its places is free, also behind its leaving. */
void usiw_gate_return_place(struct usiw_listener *listener)
{
	spin_lock(usiw_listener_lock(listener));
	/* Somebody is due only while it listens, and has its socket. */
	if (usiw_cm_gate_return(&listener->places, usiw_now_us()))
		usiw_sock_wake(listener->us);
	spin_unlock(usiw_listener_lock(listener));
}

static bool usiw_listens_at(const struct usiw_listener *listener, const struct usiw_tuple *tuple)
{
	return listener->any || (ipv6_addr_equal(&listener->addr, &tuple->local) &&
				 (!listener->scope || listener->scope == tuple->scope));
}

/*
 * Who listens for @rx, by the device whose address that is most; with a reference. Of several such
 * devices rdma_cm takes the one that it knows longest for a request to a listener on all addresses,
 * whichever the request came by, and lets nobody accept what another one has brought.
 */
static struct usiw_listener *usiw_gate_find(struct usiw_sock *us, const struct usiw_rx *rx)
{
	const struct usiw_tuple *tuple = usiw_rx_ends(rx);
	unsigned int family = BIT(usiw_tuple_is_ipv4(tuple));
	enum usiw_addr_owner owner, best = USIW_ADDR_OTHERS;
	struct usiw_listener *found = NULL, *listener;

	lockdep_assert_held(usiw_gate_lock(us));
	list_for_each_entry(listener, &us->listeners, node) {
		if (!(listener->families & family) || !usiw_listens_at(listener, tuple) ||
		    !usiw_addr_comes_by(listener->dev, rx->ifindex))
			continue;
		owner = usiw_addr_owner(listener->dev, tuple);
		if (owner > best || (owner == best && found &&
				     usiw_device_is_before(listener->dev, found->dev))) {
			best = owner;
			found = listener;
		}
	}
	if (found)
		kref_get(&found->kref);
	return found;
}

/* ---- Requests ---------------------------------------------------------- */

/*
 * Returns what the gate may keep of @rx: a copy that the listener pays for, or @rx itself if nobody
 * listens or the gate had it before. So no listener has another one of its port pay. NULL: there is
 * no memory.
 */
static struct usiw_rx *usiw_gate_entry(const struct usiw_listener *listener, struct usiw_rx *rx)
{
	size_t size = struct_size(rx, data, rx->len);
	struct usiw_rx *copy;

	if (!listener || rx->req.busy)
		return rx;
	copy = usiw_charge_kmalloc(listener->memcg, size, GFP_ATOMIC | __GFP_NOWARN);
	return copy ? memcpy(copy, rx, size) : NULL;
}

/*
 * Asks the gate about *@rx, a REQ, which @req decodes. If the gate keeps it *@rx is NULL
 * then; else it is the caller's. @answer: gets PENDING, if that is due. Returns its length;
 * *@listener has a reference.
 */
u32 usiw_gate_request(struct usiw_cm_gate_verdict *v, struct usiw_listener **listener,
		      struct usiw_sock *us, struct usiw_rx **rx, const struct usiw_cm_packet *req,
		      void *answer)
{
	struct usiw_rx *entry;
	struct usiw_listener *l;
	u32 len = 0;

	*v = (struct usiw_cm_gate_verdict){ .kind = USIW_CM_G_DROP };
	spin_lock(usiw_gate_lock(us));
	l = usiw_gate_find(us, *rx);
	entry = usiw_gate_entry(l, *rx);
	if (entry)
		usiw_cm_gate_request(v, &us->gate, l ? &l->places : NULL, &entry->req, req,
				     usiw_now_us());
	/* What is kept may be freed from here on by a listener that leaves. */
	if (v->pending)
		len = usiw_cm_build_pending(req, v->isn, answer);
	spin_unlock(usiw_gate_lock(us));
	usiw_gate_free(v->out);
	if (v->kind != USIW_CM_G_KEPT && entry != *rx)
		kfree(entry);
	if (v->kind == USIW_CM_G_KEPT && entry == *rx)
		*rx = NULL;
	*listener = l;
	return len;
}

/* The peer of a REQ that waits has given up. */
void usiw_gate_withdraw(struct usiw_sock *us, const struct usiw_tuple *tuple,
			const struct usiw_cm_packet *reset)
{
	struct usiw_cm_req *req;

	spin_lock(usiw_gate_lock(us));
	req = usiw_cm_gate_withdraw(&us->gate, usiw_cm_tuple(tuple), reset);
	spin_unlock(usiw_gate_lock(us));
	if (req)
		kfree(usiw_gate_rx(req));
}

/* @rx, which usiw_gate_next() may have returned, turned out to be no request any more. Takes it. */
void usiw_gate_discard(struct usiw_sock *us, struct usiw_rx *rx)
{
	if (rx->req.busy) {
		spin_lock(usiw_gate_lock(us));
		usiw_cm_gate_discard(&us->gate, &rx->req, usiw_now_us());
		spin_unlock(usiw_gate_lock(us));
	}
	kfree(rx);
}

/* ---- The worker -------------------------------------------------------- */

/* What is due, ahead of newer datagrams; or NULL. */
struct usiw_rx *usiw_gate_next(struct usiw_sock *us)
{
	struct usiw_cm_req *req, *out;
	u64 now = usiw_now_us();

	spin_lock(usiw_gate_lock(us));
	out = usiw_cm_gate_expire(&us->gate, now);
	req = usiw_cm_gate_next(&us->gate, now);
	spin_unlock(usiw_gate_lock(us));
	usiw_gate_free(out);
	return req ? usiw_gate_rx(req) : NULL;
}

/* When to look again without another cause, us; 0: no need. */
u64 usiw_gate_deadline(struct usiw_sock *us)
{
	u64 at;

	spin_lock(usiw_gate_lock(us));
	at = usiw_cm_gate_deadline(&us->gate);
	spin_unlock(usiw_gate_lock(us));
	return at;
}

/* The port's last user and its worker are gone. */
void usiw_gate_purge(struct usiw_sock *us)
{
	struct usiw_cm_req *req;

	spin_lock(usiw_gate_lock(us));
	while ((req = us->gate.first) != NULL) {
		usiw_cm_gate_discard(&us->gate, req, usiw_now_us());
		kfree(usiw_gate_rx(req));
	}
	spin_unlock(usiw_gate_lock(us));
}
