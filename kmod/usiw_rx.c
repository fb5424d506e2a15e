// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Receives the datagrams that reach the module's socket of a port. Softirq queues copies of
 * handshakes for a worker, and a few copies of datagrams that belong to no established connection.
 * Datagrams of the data path are for the engine. If the process receives by a data socket, softirq
 * passes them to the data socket of their connection (usiw_data.c). If not, softirq frees them. As
 * a rule the engine has then received a copy from its raw port.
 */
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <net/icmp.h>
#include <net/ipv6.h>
#include <net/sock.h>

#include "usiw_rx.h"

#include "../cm/usiw_cm_hint.h"
#include "usiw_addr.h"
#include "usiw_conn.h"
#include "usiw_conn_run.h"
#include "usiw_data.h"
#include "usiw_device.h"
#include "usiw_admission.h"
#include "usiw_listen.h"
#include "usiw_netdev.h"

/* ---- Softirq ----------------------------------------------------------- */

/* Sets @tuple to the 4-tuple of a received skb. */
static void usiw_rx_tuple(const struct sk_buff *skb, struct usiw_tuple *tuple)
{
	const struct udphdr *uh = udp_hdr(skb);

	if (ip_hdr(skb)->version == 4) {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &tuple->local);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, &tuple->remote);
	} else {
		tuple->local = ipv6_hdr(skb)->daddr;
		tuple->remote = ipv6_hdr(skb)->saddr;
	}
	tuple->local_port = uh->dest;
	tuple->remote_port = uh->source;
	tuple->scope = usiw_tuple_is_link_local(tuple) ? inet6_iif(skb) : 0;
}

/*
 * Queues a copy of the @len bytes of payload at @at for the worker, charged to the cgroup of the
 * process that opened the port (us->memcg). Drops the datagram if there is no memory, the queue is
 * full or the port is closed.
 */
static void usiw_rx_queue(struct usiw_sock *us, const struct sk_buff *skb, u32 at,
			  const struct usiw_tuple *tuple, u32 len)
{
	struct usiw_rx *rx;

	if (READ_ONCE(us->rx_len) >= USIW_MAX_RX_QUEUE)
		return;
	rx = usiw_rx_alloc(us->memcg, len);
	if (!rx)
		return;
	rx->req.tuple = *usiw_cm_tuple(tuple);
	rx->ifindex = skb->dev->ifindex;
	if (skb_copy_bits(skb, at, rx->data, len)) {
		kfree(rx);
		return;
	}

	spin_lock(&us->lock);
	if (us->closed || us->rx_len >= USIW_MAX_RX_QUEUE) {
		kfree(rx);
	} else {
		list_add_tail(&rx->node, &us->rxq);
		us->rx_len++;
		queue_work(usiw_wq, &us->rx_work);
	}
	spin_unlock(&us->lock);
}

/**
 * struct usiw_rx_flow - flow of a received skb, looked up at most once, when it is needed
 * @tuple:	4-tuple; valid if @known is set
 * @conn:	connection of @tuple, NULL if there is none; valid if @known is set
 * @known:	the flow has been looked up
 */
struct usiw_rx_flow {
	struct usiw_tuple tuple;
	struct usiw_conn *conn;
	bool known;
};

/*
 * Looks up @flow if that has not happened yet. The caller is in an RCU read-side critical section,
 * which keeps flow->conn in memory.
 */
static void usiw_rx_look_up(struct usiw_sock *us, const struct sk_buff *skb,
			    struct usiw_rx_flow *flow)
{
	if (flow->known)
		return;
	usiw_rx_tuple(skb, &flow->tuple);
	flow->conn = usiw_conn_lookup_rcu(us->net, &flow->tuple);
	flow->known = true;
}

/*
 * Rate limit: returns true if the port may handle one more possibly stray datagram now. If so,
 * starts the next interval of USIW_CM_STRAY_US.
 */
static bool usiw_rx_stray_due(struct usiw_sock *us)
{
	__u64 next_us = READ_ONCE(us->stray_next_us);

	if (!usiw_cm_stray_due(&next_us, ktime_to_us(ktime_get_coarse())))
		return false;
	WRITE_ONCE(us->stray_next_us, next_us);
	return true;
}

/*
 * Handles the datagram of the data path at @at, as far as it concerns the kernel. The datagram
 * counts as CONFIRM, which may have been lost. So a connection that waits for CONFIRM is kicked. A
 * stray datagram has no connection, or one that still waits for the answer to its REQ. At most one
 * stray datagram per interval is queued for the worker (usiw_rx_stray_due()).
 */
static void usiw_rx_data(struct usiw_sock *us, const struct sk_buff *skb, u32 at,
			 const struct usiw_trp_hdr *hdr, struct usiw_rx_flow *flow)
{
	bool stray = usiw_rx_stray_due(us);
	struct usiw_conn *conn;

	if (!stray && !atomic_read(&us->confirm_waiters))
		return;
	usiw_rx_look_up(us, skb, flow);
	conn = flow->conn;
	if (conn && READ_ONCE(conn->waits_confirm) && usiw_cm_confirms(&conn->end.cm, hdr))
		usiw_conn_kick(conn, USIW_CONN_DATA_SEEN);
	if (stray && (!conn || READ_ONCE(conn->end.cm.state) == USIW_CM_REQ_SENT))
		usiw_rx_queue(us, skb, at, &flow->tuple, sizeof(*hdr));
}

/*
 * Handles the @len bytes at @at, which no usiw sends. If a connection waits for an answer to its
 * REQ from that sender, queues the bytes for the worker, at most once per interval. usiw_cm_hint()
 * can then report that the server is not usiw.
 */
static void usiw_rx_alien(struct usiw_sock *us, const struct sk_buff *skb, u32 at, u32 len,
			  struct usiw_rx_flow *flow)
{
	if (!usiw_rx_stray_due(us))
		return;
	usiw_rx_look_up(us, skb, flow);
	if (flow->conn && READ_ONCE(flow->conn->end.cm.state) == USIW_CM_REQ_SENT)
		usiw_rx_queue(us, skb, at, &flow->tuple, min_t(u32, len, USIW_CM_MAX_DATAGRAM));
}

/*
 * Returns true for an IPv4 datagram without a UDP checksum; over IPv6 the kernel drops such
 * datagrams itself. A sender on this host may leave the checksum to a NIC (CHECKSUM_PARTIAL). The
 * field then has any value, and the datagram counts as one with a checksum.
 */
static bool usiw_rx_has_no_checksum(const struct sk_buff *skb)
{
	return ip_hdr(skb)->version == 4 && !udp_hdr(skb)->check &&
	       skb->ip_summed != CHECKSUM_PARTIAL;
}

/* Queues the handshake of @len bytes at @at for the worker. Drops it if it has no UDP checksum. */
static void usiw_rx_handshake(struct usiw_sock *us, const struct sk_buff *skb, u32 at, u32 len)
{
	struct usiw_tuple tuple;

	if (usiw_rx_has_no_checksum(skb)) {
		usiw_netdev_count(skb->dev, USIW_KCNT_CM_NO_CHECKSUM);
		return;
	}
	usiw_rx_tuple(skb, &tuple);
	usiw_rx_queue(us, skb, at, &tuple, len);
}

/*
 * Classifies and handles the datagram of @len bytes at @at. Returns true if it is for the engine.
 * The caller is in an RCU read-side critical section.
 */
static bool usiw_rx_datagram(struct usiw_sock *us, const struct sk_buff *skb, u32 at, u32 len,
			     struct usiw_rx_flow *flow)
{
	const struct usiw_trp_hdr *hdr;
	struct usiw_trp_hdr buf;

	hdr = len < sizeof(*hdr) ? NULL : skb_header_pointer(skb, at, sizeof(buf), &buf);
	switch (hdr ? usiw_cm_look(hdr, len) : USIW_CM_LOOK_DROP) {
	case USIW_CM_LOOK_DATA:
		usiw_rx_data(us, skb, at, hdr, flow);
		return true;
	case USIW_CM_LOOK_ENGINE:
		return true;
	case USIW_CM_LOOK_HANDSHAKE:
		usiw_rx_handshake(us, skb, at, len);
		return false;
	default:
		usiw_rx_alien(us, skb, at, len, flow);
		return false;
	}
}

/*
 * Returns the data socket that gets @skb, with a reference. Returns NULL if the datagrams belong to
 * no connection, or if no process receives them by a data socket. The caller is in an RCU read-side
 * critical section.
 */
static struct sock *usiw_rx_receiver(struct usiw_sock *us, const struct sk_buff *skb,
				     struct usiw_rx_flow *flow)
{
	if (!atomic_read(&us->data_sockets))
		return NULL;
	usiw_rx_look_up(us, skb, flow);
	return flow->conn ? usiw_data_receiver(flow->conn, skb) : NULL;
}

/*
 * Returns the value of encap_rcv that makes IP deliver @skb to UDP a second time, now with @sk as
 * its socket. UDP looks up no socket for an skb that has one, as with transparent proxies. UDP then
 * does filtering, memory accounting, queuing and waking for @sk. Takes over the caller's reference
 * to @sk.
 */
static int usiw_rx_hand_over(struct sk_buff *skb, struct sock *sk)
{
	/*
	 * UDP has verified the checksum. This call keeps UDP from computing it again at the second
	 * delivery.
	 */
	if (skb->csum_valid && skb->ip_summed == CHECKSUM_NONE)
		__skb_incr_checksum_unnecessary(skb);
	skb_orphan(skb);
	skb->sk = sk;
	skb->destructor = sock_efree;
	return -IPPROTO_UDP;
}

/*
 * The encap_rcv of a port: handles each datagram of @skb, and passes @skb to a data socket if it is
 * for one. UDP has verified the checksum, if there is one. skb->data is at the UDP header. The skb
 * may be a GRO aggregate: several datagrams of one flow, all of one length except the last. A
 * handshake in an aggregate may be handled before the data that precedes it. The engine receives
 * that handshake as well and ignores it. Frees the skb and returns 0, or returns the negative value
 * of usiw_rx_hand_over().
 */
static int usiw_encap_rcv(struct sock *port, struct sk_buff *skb)
{
	struct usiw_sock *us = rcu_dereference_sk_user_data(port);
	struct usiw_rx_flow flow = { .known = false };
	struct sock *sk = NULL;
	bool engines = false;
	u32 at, size;

	if (!us) {
		kfree_skb(skb);
		return 0;
	}
	size = skb->len - sizeof(struct udphdr);
	if (skb_is_gso(skb) && skb_shinfo(skb)->gso_size)
		size = skb_shinfo(skb)->gso_size;
	rcu_read_lock();
	for (at = sizeof(struct udphdr); at < skb->len; at += size)
		if (usiw_rx_datagram(us, skb, at, min(size, skb->len - at), &flow))
			engines = true;
	if (engines)
		sk = usiw_rx_receiver(us, skb, &flow);
	rcu_read_unlock();
	if (sk)
		return usiw_rx_hand_over(skb, sk);
	consume_skb(skb);
	return 0;
}

/*
 * Returns true if an ICMP message is "fragmentation needed". Sets @mtu to its MTU field, and
 * @answer to its meaning as an answer to a REQ.
 */
static bool usiw_icmp4(const struct sk_buff *skb, u32 *mtu, enum usiw_cm_answer *answer)
{
	const struct icmphdr *icmph = icmp_hdr(skb);

	*mtu = be16_to_cpu(icmph->un.frag.mtu);
	*answer = usiw_cm_icmp4_answer(icmph->type, icmph->code);
	return icmph->type == ICMP_DEST_UNREACH && icmph->code == ICMP_FRAG_NEEDED;
}

/* Does the same as usiw_icmp4() for "packet too big" of ICMPv6. */
static bool usiw_icmp6(const struct sk_buff *skb, u32 *mtu, enum usiw_cm_answer *answer)
{
	const struct icmp6hdr *icmph = icmp6_hdr(skb);

	*mtu = be32_to_cpu(icmph->icmp6_mtu);
	*answer = usiw_cm_icmp6_answer(icmph->icmp6_type, icmph->icmp6_code);
	return icmph->icmp6_type == ICMPV6_PKT_TOOBIG;
}

/*
 * Handles an ICMP message that reports the path MTU @mtu. Updates the data socket. If the MTU of
 * the connection is larger, has the connection look up its route, at most once per USIW_ICMP_MS. A
 * forged ICMP message gains little here: for any UDP socket, the kernel stores the reported MTU for
 * the route, and has done so before this call.
 */
static void usiw_rx_too_big(struct usiw_conn *conn, u32 mtu)
{
	usiw_data_too_big(conn, mtu);
	if (mtu >= READ_ONCE(conn->end.info.mtu) ||
	    time_before(jiffies, READ_ONCE(conn->icmp_next)))
		return;
	WRITE_ONCE(conn->icmp_next, jiffies + msecs_to_jiffies(USIW_ICMP_MS));
	usiw_conn_kick(conn, USIW_CONN_FOLLOW);
}

/*
 * Handles an ICMP message about a datagram that this socket or an engine has sent. A "too big"
 * message reports a path MTU. An "unreachable" message counts only as an answer to a REQ, and only
 * if it quotes the PSN of the REQ.
 */
static void usiw_rx_icmp(struct sock *sk, struct usiw_sock *us, struct sk_buff *skb)
{
	struct {
		struct udphdr uh;
		__be32 psn;
	} buf;
	const struct udphdr *uh;
	const __be32 *psn;
	struct usiw_tuple tuple;
	struct usiw_conn *conn;
	enum usiw_cm_answer answer;
	bool too_big;
	u32 at, mtu;

	if (sk->sk_family == AF_INET) {
		const struct iphdr *iph = (const struct iphdr *)skb->data;

		too_big = usiw_icmp4(skb, &mtu, &answer);
		ipv6_addr_set_v4mapped(iph->saddr, &tuple.local);
		ipv6_addr_set_v4mapped(iph->daddr, &tuple.remote);
		at = iph->ihl * 4;
	} else {
		const struct ipv6hdr *ip6h = (const struct ipv6hdr *)skb->data;

		too_big = usiw_icmp6(skb, &mtu, &answer);
		/* usiw sends no extension headers. */
		if (ip6h->nexthdr != IPPROTO_UDP)
			return;
		tuple.local = ip6h->saddr;
		tuple.remote = ip6h->daddr;
		at = sizeof(*ip6h);
	}
	if (!too_big && answer == USIW_CM_ANSWER_NOTHING)
		return;
	uh = skb_header_pointer(skb, at, sizeof(buf.uh), &buf.uh);
	if (!uh)
		return;
	tuple.local_port = uh->source;
	tuple.remote_port = uh->dest;
	tuple.scope = usiw_tuple_is_link_local(&tuple) ? inet6_iif(skb) : 0;
	psn = skb_header_pointer(skb, at + sizeof(*uh), sizeof(buf.psn), &buf.psn);

	rcu_read_lock();
	conn = usiw_conn_lookup_rcu(us->net, &tuple);
	if (conn && too_big) {
		usiw_rx_too_big(conn, mtu);
	} else if (conn && psn && usiw_cm_quotes(&conn->end.cm, psn, sizeof(*psn))) {
		WRITE_ONCE(conn->icmp_answer, answer);
		usiw_conn_kick(conn, USIW_CONN_ICMP);
	}
	rcu_read_unlock();
}

/* ---- Worker ------------------------------------------------------------ */

/* Handles the datagram @rx. Frees @rx or passes it to the admission. */
static void usiw_rx_one(struct usiw_sock *us, struct usiw_rx *rx)
{
	u8 answer[USIW_CM_MAX_DATAGRAM];
	struct usiw_cm_verdict verdict;
	struct usiw_conn *conn;
	u8 tos = 0;

	conn = usiw_conn_lookup(us->net, usiw_rx_ends(rx));
	if (conn) {
		usiw_conn_input(conn, &verdict, rx->data, rx->len, answer);
		tos = READ_ONCE(conn->end.tos);
		usiw_conn_put(conn);
	} else {
		usiw_cm_input(&verdict, NULL, rx->data, rx->len, usiw_now_us(), answer);
	}
	switch (verdict.kind) {
	case USIW_CM_V_ADMIT:
		usiw_listener_request(us, rx, &verdict.pkt, answer);
		return;
	case USIW_CM_V_WITHDRAW:
		usiw_admission_withdraw(us, usiw_rx_ends(rx), &verdict.pkt);
		break;
	case USIW_CM_V_ANSWER:
		usiw_sock_send(us, usiw_rx_ends(rx), tos, answer, verdict.len);
		break;
	default:
		break;
	}
	usiw_admission_discard(us, rx);
}

/* Returns the next datagram to handle, or NULL: first the REQs that are due, then the queue. */
static struct usiw_rx *usiw_rx_next(struct usiw_sock *us)
{
	struct usiw_rx *rx = usiw_admission_next(us);

	if (rx)
		return rx;
	spin_lock_bh(&us->lock);
	rx = list_first_entry_or_null(&us->rxq, struct usiw_rx, node);
	if (rx) {
		list_del(&rx->node);
		us->rx_len--;
	}
	spin_unlock_bh(&us->lock);
	return rx;
}

/* Schedules the worker for the next deadline of the admission, because nothing is due now. */
static void usiw_rx_rest(struct usiw_sock *us)
{
	u64 now = usiw_now_us(), at = usiw_admission_deadline(us);

	if (!at)
		return;
	spin_lock_bh(&us->lock);
	if (!us->closed)
		mod_delayed_work(usiw_wq, &us->admission_work,
				 at > now ? usecs_to_jiffies(at - now) + 1 : 1);
	spin_unlock_bh(&us->lock);
}

static void usiw_rx_work(struct work_struct *work)
{
	struct usiw_sock *us = container_of(work, struct usiw_sock, rx_work);
	struct usiw_rx *rx;
	int i;

	for (i = 0; i < USIW_RX_BURST; i++) {
		rx = usiw_rx_next(us);
		if (!rx) {
			usiw_rx_rest(us);
			return;
		}
		usiw_rx_one(us, rx);
	}
	queue_work(usiw_wq, &us->rx_work);
}

/*
 * Ends the worker and frees all datagrams that wait for it, because the last user of the port is
 * gone. The worker itself must not call this, because it would wait for its own end. The worker may
 * drop the last reference to a connection, but then conn->free_work drops the port.
 */
static void usiw_rx_purge(struct usiw_sock *us)
{
	struct usiw_rx *rx, *next;
	LIST_HEAD(dropped);

	spin_lock_bh(&us->lock);
	us->closed = true;
	list_splice_init(&us->rxq, &dropped);
	us->rx_len = 0;
	spin_unlock_bh(&us->lock);
	cancel_delayed_work_sync(&us->admission_work);
	cancel_work_sync(&us->rx_work);
	list_for_each_entry_safe(rx, next, &dropped, node)
		kfree(rx);
	usiw_admission_purge(us);
}

const struct usiw_sock_ops usiw_rx_ops = {
	.rcv = usiw_encap_rcv,
	.err_rcv = usiw_rx_icmp,
	.work = usiw_rx_work,
	.purge = usiw_rx_purge,
};
