// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Listeners, and the requests that reach them.
 */
#include <linux/if_arp.h>
#include <linux/jhash.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "usiw_conn.h"
#include "usiw_iwcm_quirks.h"

static void usiw_listener_release(struct kref *kref)
{
	struct usiw_listener *listener = container_of(kref, struct usiw_listener, kref);

	listener->cm_id->rem_ref(listener->cm_id);
	usiw_device_release(listener->dev);
	kfree(listener);
}

void usiw_listener_put(struct usiw_listener *listener)
{
	kref_put(&listener->kref, usiw_listener_release);
}

/* ---- Backlog ----------------------------------------------------------- */

static atomic_t *usiw_listener_shared(const struct usiw_listener *listener)
{
	return &usiw_net(read_pnet(&listener->dev->net))->half_open;
}

/* Take one more of what the listeners of the netns share, beside the @has that it has of it. */
static bool usiw_listener_take_shared(const struct usiw_listener *listener, unsigned int has)
{
	atomic_t *shared = usiw_listener_shared(listener);

	if (atomic_inc_return(shared) + has < USIW_MAX_HALF_OPEN)
		return true;
	atomic_dec(shared);
	return false;
}

static bool usiw_listener_take_slot(struct usiw_listener *listener)
{
	bool taken;

	spin_lock(&listener->park_lock);
	taken = listener->waiting < listener->backlog &&
		(listener->waiting < USIW_OWN_HALF_OPEN ||
		 usiw_listener_take_shared(listener, listener->waiting - USIW_OWN_HALF_OPEN));
	listener->waiting += taken;
	spin_unlock(&listener->park_lock);
	return taken;
}

static void usiw_listener_unpark(struct usiw_listener *listener, struct usiw_rx *rx)
{
	list_del(&rx->node);
	listener->nr_parked--;
	listener->nr_repeated -= rx->repeated;
}

static bool usiw_listener_is_stale(const struct usiw_rx *rx)
{
	return !time_before(jiffies, rx->parked_at + msecs_to_jiffies(USIW_PARKED_MS));
}

/* Give the place in the backlog to a REQ that found none, through the worker. */
static bool usiw_listener_pass_slot(struct usiw_listener *listener)
{
	struct usiw_rx *rx;

	lockdep_assert_held(&listener->park_lock);
	while ((rx = list_first_entry_or_null(&listener->parked, struct usiw_rx, node)) != NULL) {
		usiw_listener_unpark(listener, rx);
		if (!usiw_listener_is_stale(rx)) {
			kref_get(&listener->kref);
			rx->slot_of = listener;
			if (usiw_rx_requeue(rx->us, rx))
				return true;
			usiw_listener_put(listener);
		}
		kfree(rx);
	}
	return false;
}

/*
 * There is room: for a parked REQ, if there is one. It takes the place with it, because what
 * waits for the worker in front of it would take it otherwise: in a flood, forged REQs.
 */
void usiw_listener_return_slot(struct usiw_listener *listener)
{
	spin_lock(&listener->park_lock);
	if (!usiw_listener_pass_slot(listener) && listener->waiting-- > USIW_OWN_HALF_OPEN)
		atomic_dec(usiw_listener_shared(listener));
	spin_unlock(&listener->park_lock);
}

/*
 * Has this REQ found no room before? A flood drives what is parked out long before a peer
 * repeats its REQ; of this memory it needs many times as much. A wrong answer does no harm.
 */
static bool usiw_listener_seen(const struct usiw_rx *rx, const struct usiw_cm_packet *req)
{
	static u32 seen[1 << USIW_SEEN_BITS];
	u32 hash = jhash2((const u32 *)&rx->tuple, sizeof(rx->tuple) / sizeof(u32), req->psn);
	u32 *at = &seen[hash >> (32 - USIW_SEEN_BITS)];
	bool found = READ_ONCE(*at) == hash;

	WRITE_ONCE(*at, hash);
	return found;
}

/*
 * Make room for another one, which was @repeated or not: a peer that means it comes again, so
 * any one that was not repeated goes first, then what has not been repeated for longest. That
 * one stays when the new one was not repeated, unless it is stale.
 */
static bool usiw_listener_evict_parked(struct usiw_listener *listener, bool repeated)
{
	unsigned int others = listener->nr_parked - listener->nr_repeated;
	unsigned int victim = others ? get_random_u32() % others : 0;
	struct usiw_rx *rx;

	list_for_each_entry_reverse(rx, &listener->parked, node) {
		if (victim--)
			continue;
		if (!others && !repeated && !usiw_listener_is_stale(rx))
			break;
		usiw_listener_unpark(listener, rx);
		kfree(rx);
		return true;
	}
	return false;
}

/* "I have your REQ": to one that is repeated while it is parked. There is no ISN yet. */
static void usiw_listener_send_pending(struct usiw_sock *us, const struct usiw_rx *rx,
				       const struct usiw_cm_packet *req)
{
	struct usiw_trp_hdr hdr = {
		.ack_psn = cpu_to_be32(req->psn),
		.opflags = cpu_to_be16(USIW_TRP_ACCEPT << USIW_TRP_OPCODE_SHIFT |
				       USIW_TRP_F_PENDING),
	};

	usiw_sock_send(us, &rx->tuple, &hdr, sizeof(hdr));
}

/*
 * No room in the backlog: keep the REQ. Without that the repetitions of many peers, who all
 * back off in step, would find the backlog full again and again until they give up.
 */
static void usiw_listener_park(struct usiw_listener *listener, struct usiw_sock *us,
			       const struct usiw_rx *rx, const struct usiw_cm_packet *req)
{
	struct usiw_rx *copy = NULL, *known;
	bool repeated = usiw_listener_seen(rx, req);

	/* The listener has to hold the socket for as long as the REQ is parked. */
	if (us == listener->nodes[0].us || us == listener->nodes[1].us)
		copy = usiw_rx_copy(rx);
	spin_lock(&listener->park_lock);
	known = usiw_rx_find(&listener->parked, rx);
	if (known) {
		listener->nr_repeated += !known->repeated;
		known->repeated = true;
		known->parked_at = jiffies;
		list_move(&known->node, &listener->parked);
		repeated = true;
	} else if (copy && !listener->left &&
		   (listener->nr_parked < USIW_MAX_PARKED ||
		    usiw_listener_evict_parked(listener, repeated))) {
		copy->us = us;
		copy->parked_at = jiffies;
		copy->repeated = repeated;
		if (repeated)
			list_add(&copy->node, &listener->parked);
		else
			list_add_tail(&copy->node, &listener->parked);
		listener->nr_parked++;
		listener->nr_repeated += repeated;
		copy = NULL;
	} else {
		repeated = false;
	}
	spin_unlock(&listener->park_lock);
	kfree(copy);
	if (repeated)
		usiw_listener_send_pending(us, rx, req);
	if (!known)
		usiw_count(listener->dev, USIW_KCNT_CM_BACKLOG_FULL);
}

/* What is parked points to sockets: it goes before they do. */
static void usiw_listener_unpark_all(struct usiw_listener *listener)
{
	struct usiw_rx *rx, *next;

	spin_lock(&listener->park_lock);
	listener->left = true;
	list_for_each_entry_safe(rx, next, &listener->parked, node)
		kfree(rx);
	INIT_LIST_HEAD(&listener->parked);
	listener->nr_parked = 0;
	listener->nr_repeated = 0;
	spin_unlock(&listener->park_lock);
}

/* ---- Listening --------------------------------------------------------- */

static bool usiw_listeners_conflict(const struct usiw_listener *a, const struct usiw_listener *b)
{
	return a->dev == b->dev && (a->any || b->any || ipv6_addr_equal(&a->addr, &b->addr));
}

/* Enter the list of a socket of family @ipv4. */
static int usiw_listener_join(struct usiw_listener *listener, bool ipv4, __be16 port)
{
	struct usiw_listener_node *node, *other;
	struct usiw_sock *us;
	int ret = 0;

	us = usiw_sock_get(read_pnet(&listener->dev->net), ipv4, port);
	if (IS_ERR(us))
		return PTR_ERR(us);
	spin_lock_bh(&us->lock);
	list_for_each_entry(other, &us->listeners, node)
		if (usiw_listeners_conflict(other->listener, listener))
			ret = -EADDRINUSE;
	if (!ret) {
		node = &listener->nodes[listener->nr_nodes++];
		node->listener = listener;
		node->us = us;
		list_add_tail(&node->node, &us->listeners);
		usiw_rx_release(us);
	}
	spin_unlock_bh(&us->lock);
	if (ret)
		usiw_sock_put(us);
	return ret;
}

static bool usiw_listener_has(struct usiw_conn *conn, const void *listener)
{
	return READ_ONCE(conn->listener) == listener;
}

/* Afterwards no request finds the listener; one that has found it goes on with it. */
static void usiw_listener_leave(struct usiw_listener *listener)
{
	struct usiw_listener_node *node;

	usiw_listener_unpark_all(listener);
	while (listener->nr_nodes) {
		node = &listener->nodes[--listener->nr_nodes];
		spin_lock_bh(&node->us->lock);
		list_del(&node->node);
		node->us->hold_until = jiffies + msecs_to_jiffies(USIW_HOLD_MS);
		spin_unlock_bh(&node->us->lock);
		usiw_sock_put(node->us);
	}
	usiw_conn_kick_device(listener->dev, USIW_CONN_ORPHANED, usiw_listener_has, listener);
}

static int usiw_listener_join_all(struct usiw_listener *listener, bool ipv4, __be16 port)
{
	struct iw_cm_id *cm_id = listener->cm_id;
	int ret;

	/* rdma_cm listens on all devices of the host; a failure would take them all from it. */
	if (!usiw_iw_in_netns(cm_id))
		return 0;
	ret = usiw_listener_join(listener, ipv4, port);
	if (!ret && listener->any && !ipv4 && !cm_id->afonly)
		ret = usiw_listener_join(listener, true, port);
	return ret;
}

/*
 * An address of the device, or all of them; the IPv6 wildcard takes IPv4 as well unless
 * the user has said otherwise. A listener of another netns than the device's takes nothing and
 * hears nothing. Return -EADDRINUSE if the UDP port is taken.
 */
int usiw_iw_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	bool ipv4 = cm_id->local_addr.ss_family == AF_INET;
	struct usiw_listener *listener;
	__be16 port;
	int ret;

	listener = kzalloc(sizeof(*listener), GFP_KERNEL_ACCOUNT);
	if (!listener)
		return -ENOMEM;
	ret = usiw_addr_from_sockaddr(&listener->addr, &port, &cm_id->local_addr);
	if (!ret && !port)
		ret = -EINVAL;
	if (ret) {
		kfree(listener);
		return ret;
	}
	kref_init(&listener->kref);
	spin_lock_init(&listener->park_lock);
	INIT_LIST_HEAD(&listener->parked);
	listener->dev = to_usiw_dev(cm_id->device);
	listener->any = ipv4 ? !listener->addr.s6_addr32[3] : ipv6_addr_any(&listener->addr);
	listener->backlog = max(backlog, 1);
	listener->cm_id = cm_id;
	cm_id->add_ref(cm_id);
	usiw_device_hold(listener->dev);

	ret = usiw_listener_join_all(listener, ipv4, port);
	if (ret) {
		usiw_listener_leave(listener);
		usiw_listener_put(listener);
		return ret;
	}
	cm_id->provider_data = listener;
	return 0;
}

int usiw_iw_destroy_listen(struct iw_cm_id *cm_id)
{
	struct usiw_listener *listener = cm_id->provider_data;

	if (!listener)
		return 0;
	cm_id->provider_data = NULL;
	usiw_listener_leave(listener);
	usiw_listener_put(listener);
	return 0;
}

/* ---- Requests ---------------------------------------------------------- */

/* Did it come in by the device's netdev, or over lo from this host itself? */
static bool usiw_came_in_by(const struct usiw_device *dev, int ifindex)
{
	return ifindex == dev->netdev->ifindex || ifindex == dev->lo->ifindex;
}

/* Who listens for @local, by the device whose address that is most; with a reference. */
struct usiw_listener *usiw_listener_find(struct usiw_sock *us, const struct in6_addr *local,
					 int ifindex)
{
	enum usiw_addr_owner owner, best = USIW_ADDR_OTHERS;
	struct usiw_listener *found = NULL, *listener;
	struct usiw_listener_node *node;

	spin_lock_bh(&us->lock);
	list_for_each_entry(node, &us->listeners, node) {
		listener = node->listener;
		if ((!listener->any && !ipv6_addr_equal(&listener->addr, local)) ||
		    !usiw_came_in_by(listener->dev, ifindex))
			continue;
		owner = usiw_addr_owner(listener->dev, local);
		if (owner > best) {
			best = owner;
			found = listener;
		}
	}
	if (found)
		kref_get(&found->kref);
	spin_unlock_bh(&us->lock);
	return found;
}

/* With conn->lock held. What cannot be told to the application is dropped without a word:
 * the peer repeats its REQ, and there may be room by then. */
static void usiw_listener_open(struct usiw_listener *listener, struct usiw_conn *conn)
{
	bool left;

	kref_get(&listener->kref);
	WRITE_ONCE(conn->listener, listener);
	conn->half_open = true;
	if (!usiw_conn_insert(conn) && !usiw_conn_tell_request(conn)) {
		usiw_count(conn->dev, USIW_KCNT_CM_REQUEST);
		/* It has left meanwhile, and looked for its requests before this one was. */
		spin_lock(&listener->park_lock);
		left = listener->left;
		spin_unlock(&listener->park_lock);
		if (left)
			usiw_conn_kick(conn, USIW_CONN_ORPHANED);
		usiw_conn_arm(conn);
		return;
	}
	usiw_count(conn->dev, USIW_KCNT_CM_BACKLOG_FULL);
	conn->cm.state = USIW_CM_DEAD;
	conn->cm.deadline_us = 0;
	usiw_conn_no_longer_half_open(conn);
	usiw_conn_unhash(conn);
}

/*
 * A REQ for @listener without a connection: make one and tell the application. Returns 0,
 * or the enum usiw_reject_reason to refuse it with.
 */
int usiw_listener_request(struct usiw_listener *listener, struct usiw_sock *us,
			  struct usiw_rx *rx, const struct usiw_cm_packet *req)
{
	const struct usiw_tuple *tuple = &rx->tuple;
	struct usiw_device *dev = listener->dev;
	struct usiw_conn *conn;
	int reason = 0;
	u16 mtu;

	usiw_count(dev, USIW_KCNT_CM_RX);
	/* Where raw packets are not possible, accept() says so to who takes no data socket. */
	if (usiw_route_check(dev, tuple, 0, true, &mtu))
		return 0;
	if (rx->slot_of == listener) {
		rx->slot_of = NULL;
		usiw_listener_put(listener);	/* the caller has one */
	} else if (!usiw_listener_take_slot(listener)) {
		usiw_listener_park(listener, us, rx, req);
		return 0;
	}
	conn = usiw_conn_alloc(dev, tuple);
	if (IS_ERR(conn))
		goto return_slot;
	if (!usiw_sock_tryget(us))
		goto put_conn;
	conn->sock = us;
	reason = usiw_cm_init_passive(&conn->cm, req, get_random_u32(), mtu,
				      USIW_TRP_MAX_WINDOW, usiw_now_us());
	if (reason) {
		usiw_count(dev, USIW_KCNT_CM_REFUSED);
		goto put_conn;
	}
	mutex_lock(&conn->lock);
	usiw_listener_open(listener, conn);
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
	return 0;

put_conn:
	usiw_conn_put(conn);
return_slot:
	usiw_listener_return_slot(listener);
	return reason;
}
