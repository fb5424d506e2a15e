// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The module's host code for cm/usiw_cm_admission.c, which decides on REQs that have no connection
 * yet. Each UDP port has one struct usiw_cm_admission, and only the port's worker gives REQs to it
 * and gets due REQs from it.
 *
 * The admission and its lock are members of struct usiw_sock, so users of different ports never
 * contend for the lock. Code that takes the lock has to make sure that the struct usiw_sock stays
 * in memory. A listener that has not left, a connection of the port and the port's worker keep it.
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <rdma/iw_cm.h>

#include "usiw_admission.h"

#include "usiw_addr.h"
#include "usiw_device.h"
#include "usiw_sock.h"
#include "usiw_user.h"

static struct usiw_rx *usiw_admission_rx(struct usiw_cm_req *req)
{
	return container_of(req, struct usiw_rx, req);
}

static void usiw_admission_free(struct usiw_cm_req *chain)
{
	struct usiw_cm_req *req;

	while ((req = chain) != NULL) {
		chain = req->next;
		kfree(usiw_admission_rx(req));
	}
}

/*
 * Allocates a struct usiw_rx with space for a datagram of @len bytes, and charges @memcg. If @memcg
 * is NULL, no cgroup is charged. The kernel does not refuse an atomic allocation because of a
 * cgroup's limit. Returns NULL if there is no memory. Any context.
 *
 * By default the kernel charges memory to the cgroup of the current process. But REQs of peers
 * arrive in softirq and become connections in a worker, which belong to no process. So a listener
 * and a port remember the cgroup of the process that made them, and that cgroup is charged for
 * memory that peers occupy. The port's cgroup is charged for datagrams that wait for the worker,
 * and for REQs that arrive while nobody listens. The listener's cgroup is charged for other REQs
 * that wait, and for the connections that REQs become.
 *
 * A cgroup may be removed while the module has a reference to it. The kernel then charges its
 * parent.
 */
struct usiw_rx *usiw_rx_alloc(struct mem_cgroup *memcg, u32 len)
{
	gfp_t flags = GFP_ATOMIC | __GFP_NOWARN | (memcg ? __GFP_ACCOUNT : 0);
	struct mem_cgroup *before = set_active_memcg(memcg);
	struct usiw_rx *rx = kmalloc(struct_size(rx, data, len), flags);

	set_active_memcg(before);
	if (!rx)
		return NULL;
	memset(&rx->req, 0, sizeof(rx->req));
	rx->len = len;
	return rx;
}

/* ---- Listeners --------------------------------------------------------- */

static void usiw_listener_release(struct kref *kref)
{
	struct usiw_listener *listener = container_of(kref, struct usiw_listener, kref);

	listener->cm_id->rem_ref(listener->cm_id);
	usiw_user_put(listener->user);
	mem_cgroup_put(listener->memcg);
	usiw_device_release(listener->dev);
	kfree(listener);
}

void usiw_listener_put(struct usiw_listener *listener)
{
	kref_put(&listener->kref, usiw_listener_release);
}

/*
 * Returns true if both listeners are on one device, have a family in common, and have equal
 * addresses on the same link, or one of them is a wildcard listener. A listener that names no link
 * does not conflict with one that names a link.
 */
static bool usiw_listeners_conflict(const struct usiw_listener *a, const struct usiw_listener *b)
{
	return a->dev == b->dev && a->families & b->families &&
	       (a->any || b->any || (a->scope == b->scope && ipv6_addr_equal(&a->addr, &b->addr)));
}

/* ---- The listeners of a port ------------------------------------------- */

/*
 * A user may listen at very many addresses of one port: a device on lo has all of 127/8. That must
 * not make the REQs and listen calls of other users expensive. A REQ or a listen call examines only
 * the wildcard listeners and the listeners at its own address. There are at most two wildcard
 * listeners per device. At an address there is one listener per device. At a link-local address
 * there is one per link, and one that names no link. A search tree by address finds these. For a
 * wildcard listen call, a tree by device shows whether the device has another listener. The depth
 * of the trees grows with the logarithm of the number of listeners, and no choice of addresses
 * makes them deeper.
 */

static const struct usiw_listener *usiw_listener_by_addr(const struct rb_node *node)
{
	return rb_entry(node, struct usiw_listener, addr_node);
}

static const struct usiw_listener *usiw_listener_by_dev(const struct rb_node *node)
{
	return rb_entry(node, struct usiw_listener, dev_node);
}

/* Compares @addr, a struct in6_addr, with the address of @node's listener. Returns <0, 0 or >0. */
static int usiw_admission_cmp_addr(const void *addr, const struct rb_node *node)
{
	return memcmp(addr, &usiw_listener_by_addr(node)->addr, sizeof(struct in6_addr));
}

static bool usiw_admission_less_addr(struct rb_node *a, const struct rb_node *b)
{
	return usiw_admission_cmp_addr(&usiw_listener_by_addr(a)->addr, b) < 0;
}

static int usiw_admission_cmp_dev(const void *dev, const struct rb_node *node)
{
	const void *other = usiw_listener_by_dev(node)->dev;

	return dev < other ? -1 : dev > other;
}

static bool usiw_admission_less_dev(struct rb_node *a, const struct rb_node *b)
{
	return usiw_admission_cmp_dev(usiw_listener_by_dev(a)->dev, b) < 0;
}

/*
 * Returns the tree by device for the family of @listener. @listener is not a wildcard listener, so
 * it has one family.
 */
static struct rb_root *usiw_admission_by_dev(struct usiw_sock *us,
					     const struct usiw_listener *listener)
{
	return &us->by_dev[listener->families == BIT(1)];
}

/* Returns true if a listener of the port conflicts with @listener, which has not joined yet. */
static bool usiw_admission_is_taken(const struct usiw_sock *us,
				    const struct usiw_listener *listener)
{
	const struct usiw_listener *other;
	struct rb_node *node;
	int ipv4;

	list_for_each_entry(other, &us->wildcards, node)
		if (usiw_listeners_conflict(other, listener))
			return true;
	if (listener->any) {
		for (ipv4 = 0; ipv4 < 2; ipv4++)
			if (listener->families & BIT(ipv4) &&
			    rb_find(listener->dev, &us->by_dev[ipv4], usiw_admission_cmp_dev))
				return true;
		return false;
	}
	rb_for_each(node, &listener->addr, &us->by_addr, usiw_admission_cmp_addr)
		if (usiw_listeners_conflict(usiw_listener_by_addr(node), listener))
			return true;
	return false;
}

static void usiw_admission_add(struct usiw_sock *us, struct usiw_listener *listener)
{
	if (listener->any) {
		list_add_tail(&listener->node, &us->wildcards);
		return;
	}
	rb_add(&listener->addr_node, &us->by_addr, usiw_admission_less_addr);
	rb_add(&listener->dev_node, usiw_admission_by_dev(us, listener), usiw_admission_less_dev);
}

static void usiw_admission_remove(struct usiw_sock *us, struct usiw_listener *listener)
{
	if (listener->any) {
		list_del_init(&listener->node);
		return;
	}
	rb_erase(&listener->addr_node, &us->by_addr);
	rb_erase(&listener->dev_node, usiw_admission_by_dev(us, listener));
}

/*
 * Adds @listener to its port, so that it receives REQs, and wakes the worker. The worker then
 * handles the REQs that waited for a listener before newer datagrams. Returns -EADDRINUSE if
 * another listener of the port conflicts.
 */
int usiw_admission_join(struct usiw_listener *listener, unsigned int backlog)
{
	struct usiw_sock *us = listener->us;
	int ret = 0;

	spin_lock(&us->admission_lock);
	if (usiw_admission_is_taken(us, listener)) {
		ret = -EADDRINUSE;
	} else {
		usiw_admission_add(us, listener);
		usiw_cm_admission_join(&us->admission, &listener->places, backlog);
	}
	spin_unlock(&us->admission_lock);
	if (!ret)
		usiw_sock_wake(us);
	return ret;
}

/*
 * Removes @listener from its port, so that new REQs no longer find it. A REQ that has already found
 * it still uses it.
 */
void usiw_admission_leave(struct usiw_listener *listener)
{
	struct usiw_sock *us = listener->us;
	struct usiw_cm_req *out = NULL;

	spin_lock(&us->admission_lock);
	/* A listener that could not join leaves as well. */
	if (listener->places.admission) {
		usiw_admission_remove(us, listener);
		out = usiw_cm_admission_leave(&listener->places, usiw_now_us());
	}
	spin_unlock(&us->admission_lock);
	usiw_admission_free(out);
	/*
	 * The REQs of @listener now wait for the next listener, until a deadline that the worker
	 * has to know.
	 */
	usiw_sock_wake(us);
}

/*
 * Asserts that the caller holds the lock that guards listener->places: the admission_lock of @us,
 * the port that @listener joined.
 */
static void usiw_admission_check_port(struct usiw_sock *us, const struct usiw_listener *listener)
{
	lockdep_assert_held(&us->admission_lock);
	lockdep_assert(!listener->places.admission || listener->places.admission == &us->admission);
}

/*
 * Returns true if @listener, which joined @us earlier, has left it. The caller keeps @us in memory,
 * because a listener that has left does not.
 */
bool usiw_admission_has_left(struct usiw_sock *us, const struct usiw_listener *listener)
{
	bool left;

	spin_lock(&us->admission_lock);
	usiw_admission_check_port(us, listener);
	left = !listener->places.admission;
	spin_unlock(&us->admission_lock);
	return left;
}

/*
 * Returns a slot to the backlog of @listener, which joined @us earlier and may have left it. The
 * caller is a connection of the port or its worker, so it keeps @us in memory.
 */
void usiw_admission_return_place(struct usiw_sock *us, struct usiw_listener *listener)
{
	bool due;

	spin_lock(&us->admission_lock);
	usiw_admission_check_port(us, listener);
	due = usiw_cm_admission_return(&listener->places, usiw_now_us());
	spin_unlock(&us->admission_lock);
	if (due)
		usiw_sock_wake(us);
}

/* Returns true if @listener listens at the local address of @tuple. */
static bool usiw_listens_at(const struct usiw_listener *listener, const struct usiw_tuple *tuple)
{
	return listener->any || (ipv6_addr_equal(&listener->addr, &tuple->local) &&
				 (!listener->scope || listener->scope == tuple->scope));
}

/**
 * struct usiw_admission_choice - best listener for a REQ so far
 * @listener:	the listener; NULL if none of them is for the REQ
 * @owner:	relation of the local address to the device of @listener
 */
struct usiw_admission_choice {
	struct usiw_listener *listener;
	enum usiw_addr_owner owner;
};

/*
 * Stores @listener in @best if it suits @rx better than the listener there. Two listeners of one
 * device can suit equally if one of them names no link for its address. Then the first one stays,
 * so the caller passes the older one first.
 */
static void usiw_admission_consider(struct usiw_admission_choice *best,
				    struct usiw_listener *listener, const struct usiw_rx *rx)
{
	const struct usiw_tuple *tuple = usiw_rx_ends(rx);
	enum usiw_addr_owner owner;

	if (!(listener->families & BIT(usiw_tuple_is_ipv4(tuple))) ||
	    !usiw_listens_at(listener, tuple) || !usiw_addr_comes_by(listener->dev, rx->ifindex))
		return;
	owner = usiw_addr_owner(listener->dev, tuple);
	if (owner > best->owner || (owner == best->owner && best->listener &&
				    usiw_device_is_before(listener->dev, best->listener->dev))) {
		best->owner = owner;
		best->listener = listener;
	}
}

/*
 * Returns the listener for @rx with a reference, or NULL. The listener whose device has the highest
 * enum usiw_addr_owner for the local address wins. If several devices are equal, the device that
 * ib_core's clients have known longest wins, because rdma_cm chooses the same one. For a request to
 * a wildcard listener, rdma_cm uses the device that it has known longest, whichever netdev received
 * the request. rdma_cm lets no user accept a request that another device reports.
 */
static struct usiw_listener *usiw_admission_find(struct usiw_sock *us, const struct usiw_rx *rx)
{
	struct usiw_admission_choice best = { .owner = USIW_ADDR_OTHERS };
	struct usiw_listener *listener;
	struct rb_node *node;

	lockdep_assert_held(&us->admission_lock);
	list_for_each_entry(listener, &us->wildcards, node)
		usiw_admission_consider(&best, listener, rx);
	/* Listeners at equal addresses are in the order in which they joined. */
	rb_for_each(node, &usiw_rx_ends(rx)->local, &us->by_addr, usiw_admission_cmp_addr)
		usiw_admission_consider(&best, rb_entry(node, struct usiw_listener, addr_node), rx);
	if (best.listener)
		kref_get(&best.listener->kref);
	return best.listener;
}

/* ---- Requests ---------------------------------------------------------- */

/*
 * Returns the entry for @rx that the admission may keep: a copy that is charged to the listener's
 * cgroup, so that no listener's REQs are charged to the cgroup of another listener. Returns @rx
 * itself if there is no listener, or if the admission already has @rx. Returns NULL if there is no
 * memory for the copy.
 */
static struct usiw_rx *usiw_admission_entry(const struct usiw_listener *listener,
					    struct usiw_rx *rx)
{
	struct usiw_rx *copy;

	if (!listener || rx->req.busy)
		return rx;
	copy = usiw_rx_alloc(listener->memcg, rx->len);
	return copy ? memcpy(copy, rx, struct_size(rx, data, rx->len)) : NULL;
}

/*
 * Has the admission decide about the REQ in *@rx, and stores the decision in *@v. @req is the
 * decoded REQ. If the admission keeps *@rx itself, sets *@rx to NULL; otherwise the caller still
 * owns *@rx. If a PENDING is due, writes it to @answer. Returns the length of the PENDING, or 0.
 * Stores the listener with a reference in *@listener, or NULL.
 */
u32 usiw_admission_request(struct usiw_cm_admission_verdict *v, struct usiw_listener **listener,
			   struct usiw_sock *us, struct usiw_rx **rx,
			   const struct usiw_cm_packet *req, void *answer)
{
	struct usiw_rx *entry;
	struct usiw_listener *l;
	u32 len = 0;

	*v = (struct usiw_cm_admission_verdict){ .kind = USIW_CM_ADM_DROP };
	spin_lock(&us->admission_lock);
	l = usiw_admission_find(us, *rx);
	entry = usiw_admission_entry(l, *rx);
	if (entry)
		usiw_cm_admission_request(v, &us->admission, l ? &l->places : NULL, &entry->req,
					  req, usiw_now_us());
	if (v->pending)
		len = usiw_cm_build_pending(req, v->isn, answer);
	spin_unlock(&us->admission_lock);
	/* From here on a listener that leaves may free an entry that the admission owns. */
	usiw_admission_free(v->out);
	if (v->kind != USIW_CM_ADM_KEPT && entry != *rx)
		kfree(entry);
	if (v->kind == USIW_CM_ADM_KEPT && entry == *rx)
		*rx = NULL;
	*listener = l;
	return len;
}

/*
 * Removes and frees the waiting REQ of @tuple if @reset carries the ISNs of the REQ and of its
 * PENDING, because its peer has then given up.
 */
void usiw_admission_withdraw(struct usiw_sock *us, const struct usiw_tuple *tuple,
			     const struct usiw_cm_packet *reset)
{
	struct usiw_cm_req *req;

	spin_lock(&us->admission_lock);
	req = usiw_cm_admission_withdraw(&us->admission, usiw_cm_tuple(tuple), reset);
	spin_unlock(&us->admission_lock);
	if (req)
		kfree(usiw_admission_rx(req));
}

/*
 * Frees @rx, on which the admission need not decide. If usiw_admission_next() has returned @rx,
 * this call also removes it from the admission.
 */
void usiw_admission_discard(struct usiw_sock *us, struct usiw_rx *rx)
{
	if (rx->req.busy) {
		spin_lock(&us->admission_lock);
		usiw_cm_admission_discard(&us->admission, &rx->req, usiw_now_us());
		spin_unlock(&us->admission_lock);
	}
	kfree(rx);
}

/* ---- The worker -------------------------------------------------------- */

/*
 * Frees the REQs that have expired. Returns the next REQ that is due, or NULL. The worker handles
 * it before the datagrams in the port's queue.
 */
struct usiw_rx *usiw_admission_next(struct usiw_sock *us)
{
	struct usiw_cm_req *req, *out;
	u64 now = usiw_now_us();

	spin_lock(&us->admission_lock);
	out = usiw_cm_admission_expire(&us->admission, now);
	req = usiw_cm_admission_next(&us->admission, now);
	spin_unlock(&us->admission_lock);
	usiw_admission_free(out);
	return req ? usiw_admission_rx(req) : NULL;
}

/* Returns the time, us, at which the worker has to run even if no datagram arrives; 0 for never. */
u64 usiw_admission_deadline(struct usiw_sock *us)
{
	u64 at;

	spin_lock(&us->admission_lock);
	at = usiw_cm_admission_deadline(&us->admission);
	spin_unlock(&us->admission_lock);
	return at;
}

/* Frees all REQs of the port. The caller has ended the port's worker, and the port has no user. */
void usiw_admission_purge(struct usiw_sock *us)
{
	struct usiw_cm_req *out;

	spin_lock(&us->admission_lock);
	out = usiw_cm_admission_purge(&us->admission);
	spin_unlock(&us->admission_lock);
	usiw_admission_free(out);
}
