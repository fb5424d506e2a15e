// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * UDP ports that the module owns. Each port of a netns has one struct usiw_sock, with one socket
 * for each family that is in use, bound to all addresses. Many listeners and connections share the
 * port; they are found by their addresses. While a family is in use, nobody else can bind the port
 * in that family. The kernel also receives the datagrams that the engine receives from its raw
 * port. Because the port is bound, they cause no ICMP error.
 */
#include <linux/hashtable.h>
#include <linux/in.h>
#include <linux/jhash.h>
#include <linux/memcontrol.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/hash.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "usiw_sock.h"

#include "usiw_addr.h"
#include "usiw_compat.h"
#include "usiw_device.h"

#define USIW_SOCK_HASH_BITS	10

/*
 * Table of ports, guarded by usiw_socks_mutex. The mutex is held to look up a port, and to open or
 * close the socket of one of its families.
 */
static DEFINE_HASHTABLE(usiw_socks, USIW_SOCK_HASH_BITS);
static DEFINE_MUTEX(usiw_socks_mutex);

/*
 * Functions of the receiver, usiw_rx.c. They are pointers, because this file may not call a file of
 * a higher floor.
 */
static const struct usiw_sock_ops *usiw_sock_ops;

void usiw_sock_init(const struct usiw_sock_ops *ops)
{
	usiw_sock_ops = ops;
}

/*
 * Queues the worker of the port, because the admission may have a REQ that is due or a new
 * deadline. May be called in any context but a hard interrupt.
 */
void usiw_sock_wake(struct usiw_sock *us)
{
	spin_lock_bh(&us->lock);
	if (!us->closed)
		queue_work(usiw_wq, &us->rx_work);
	spin_unlock_bh(&us->lock);
}

static void usiw_sock_admission_work(struct work_struct *work)
{
	usiw_sock_wake(container_of(to_delayed_work(work), struct usiw_sock, admission_work));
}

static u32 usiw_sock_hash(const struct net *net, __be16 port)
{
	return jhash_2words(net_hash_mix(net), (__force u16)port, 0);
}

/* Returns the port without a reference, or NULL. */
static struct usiw_sock *usiw_sock_find(const struct net *net, __be16 port)
{
	struct usiw_sock *us;

	lockdep_assert_held(&usiw_socks_mutex);
	hash_for_each_possible(usiw_socks, us, node, usiw_sock_hash(net, port))
		if (net_eq(us->net, net) && us->port == port)
			return us;
	return NULL;
}

/*
 * Binds @sock to @addr and @port, and to the interface @scope if @addr is link-local. An IPv4
 * address is mapped. Returns 0 or -errno. May sleep.
 */
int usiw_sock_bind(struct socket *sock, const struct in6_addr *addr, __be16 port, int scope)
{
	struct sockaddr_storage sa;
	int len = usiw_addr_to_sockaddr(&sa, addr, port, scope);
	int ret;

	if (sa.ss_family == AF_INET6) {
		ret = ip6_sock_set_v6only(sock->sk);
		if (ret)
			return ret;
	}
	/*
	 * Older kernels take a struct sockaddr *, newer ones a struct sockaddr_unsized *. A void *
	 * converts to both.
	 */
	return kernel_bind(sock, (void *)&sa, len);
}

/*
 * Returns true if @sk is bound to all addresses and to @port; @port 0: to any port. BPF programs of
 * the process's cgroup run at bind, and may have changed the address or the port.
 */
static bool usiw_sock_fits(const struct sock *sk, bool ipv4, __be16 port)
{
	const struct inet_sock *inet = inet_sk(sk);

	if (port && inet->inet_sport != port)
		return false;
	if (ipv4)
		return !inet->inet_rcv_saddr;
#if IS_ENABLED(CONFIG_IPV6)
	return ipv6_addr_any(&sk->sk_v6_rcv_saddr);
#else
	return false;
#endif
}

/*
 * Opens the socket of a port. @port 0: the kernel chooses a free one. Returns the socket or an
 * error pointer. A kernel socket has no reference to its netns; the device keeps the netns in
 * memory instead.
 */
static struct socket *usiw_sock_open(struct net *net, bool ipv4, __be16 port)
{
	struct in6_addr any = in6addr_any;
	struct socket *sock;
	int ret;

	if (ipv4)
		ipv6_addr_set_v4mapped(htonl(INADDR_ANY), &any);
	ret = sock_create_kern(net, ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM, IPPROTO_UDP, &sock);
	if (ret)
		return ERR_PTR(ret);
	ret = usiw_sock_bind(sock, &any, port, 0);
	if (!ret && !usiw_sock_fits(sock->sk, ipv4, port))
		ret = -EPERM;
	if (ret) {
		sock_release(sock);
		return ERR_PTR(ret);
	}
	/*
	 * If somebody aborts the socket (ss -K), the kernel would release a port that it chose
	 * itself. This flag makes the socket keep the port.
	 */
	sock->sk->sk_userlocks |= SOCK_BINDPORT_LOCK;
	return sock;
}

#if USIW_ENCAP_ERR_KNOWS_ALL
static void usiw_sock_err_rcv(struct sock *sk, struct sk_buff *skb, int err, __be16 port,
			      u32 info, u8 *payload)
#else
static void usiw_sock_err_rcv(struct sock *sk, struct sk_buff *skb, unsigned int udp_offset)
#endif
{
	struct usiw_sock *us = rcu_dereference_sk_user_data(sk);

	if (us)
		usiw_sock_ops->err_rcv(sk, us, skb);
}

/* Makes @sock the socket of a family, and the caller the first user of the family. */
static void usiw_sock_adopt(struct usiw_sock *us, bool ipv4, struct socket *sock)
{
	struct udp_tunnel_sock_cfg cfg = {
		.sk_user_data = us,
		.encap_type = 1,
		.encap_rcv = usiw_sock_ops->rcv,
		.encap_err_rcv = usiw_sock_err_rcv,
	};

	lockdep_assert_held(&usiw_socks_mutex);
	usiw_setup_udp_tunnel_sock(us->net, sock, &cfg);
	down_write(&us->sem);
	us->sock[ipv4] = sock;
	up_write(&us->sem);
	refcount_set(&us->users[ipv4], 1);
}

/*
 * Closes the socket of a family. encap_rcv may still run, so @us is freed only after a grace
 * period.
 */
static void usiw_sock_close(struct usiw_sock *us, bool ipv4)
{
	struct socket *sock;

	lockdep_assert_held(&usiw_socks_mutex);
	down_write(&us->sem);
	sock = us->sock[ipv4];
	us->sock[ipv4] = NULL;
	up_write(&us->sem);
	rcu_assign_sk_user_data(sock->sk, NULL);
	kernel_sock_shutdown(sock, SHUT_RDWR);
	sock_release(sock);
}

/*
 * Adds @mergers to the number of connections whose data socket takes aggregates, and @tappers to
 * the number of those that receive by raw packets. Then starts or stops GRO for the family, if that
 * has to change. UDP builds GRO aggregates for the port before any connection is looked up
 * (UDP_GRO), so it does so for all connections of a family or for none. It builds them while there
 * are mergers and no tappers, because a raw port cannot distinguish an aggregate from a datagram.
 * May sleep.
 */
void usiw_sock_merge(struct usiw_sock *us, bool ipv4, int mergers, int tappers)
{
	int merged, merges;

	down_write(&us->sem);
	merged = us->mergers[ipv4] && !us->tappers[ipv4];
	us->mergers[ipv4] += mergers;
	us->tappers[ipv4] += tappers;
	merges = us->mergers[ipv4] && !us->tappers[ipv4];
	if (merges != merged)
		sock_common_setsockopt(us->sock[ipv4], SOL_UDP, UDP_GRO, KERNEL_SOCKPTR(&merges),
				       sizeof(merges));
	up_write(&us->sem);
}

/*
 * Makes a port and adds it to the table. Charges the cgroup of the current process, which connects
 * or listens, or which adds a device for which rdma_cm repeats a listener. Returns NULL if there is
 * no memory.
 */
static struct usiw_sock *usiw_sock_create(struct net *net, __be16 port)
{
	struct usiw_sock *us;

	lockdep_assert_held(&usiw_socks_mutex);
	us = kzalloc(sizeof(*us), GFP_KERNEL_ACCOUNT);
	if (!us)
		return NULL;
	us->net = net;
	us->port = port;
	us->memcg = get_mem_cgroup_from_mm(current->mm);
	us->admission.net = usiw_net_admission(net);
	init_rwsem(&us->sem);
	spin_lock_init(&us->lock);
	spin_lock_init(&us->admission_lock);
	INIT_LIST_HEAD(&us->wildcards);
	us->by_addr = RB_ROOT;
	us->by_dev[0] = RB_ROOT;
	us->by_dev[1] = RB_ROOT;
	INIT_LIST_HEAD(&us->rxq);
	INIT_WORK(&us->rx_work, usiw_sock_ops->work);
	INIT_DELAYED_WORK(&us->admission_work, usiw_sock_admission_work);
	hash_add(usiw_socks, &us->node, usiw_sock_hash(net, port));
	return us;
}

/*
 * Returns the port with a reference for one family, and opens its socket if necessary. @port 0: a
 * new port that the kernel chooses. Returns an error pointer on failure: -EADDRINUSE if another
 * socket has the port. May sleep.
 */
struct usiw_sock *usiw_sock_get(struct net *net, bool ipv4, __be16 port)
{
	struct usiw_sock *us;
	struct socket *sock;

	mutex_lock(&usiw_socks_mutex);
	us = port ? usiw_sock_find(net, port) : NULL;
	if (us && refcount_inc_not_zero(&us->users[ipv4]))
		goto out;
	sock = usiw_sock_open(net, ipv4, port);
	if (IS_ERR(sock)) {
		us = ERR_CAST(sock);
		goto out;
	}
	port = inet_sk(sock->sk)->inet_sport;
	/* The port may exist already, for the other family. */
	us = usiw_sock_find(net, port) ?: usiw_sock_create(net, port);
	if (us) {
		usiw_sock_adopt(us, ipv4, sock);
	} else {
		sock_release(sock);
		us = ERR_PTR(-ENOMEM);
	}
out:
	mutex_unlock(&usiw_socks_mutex);
	return us;
}

/*
 * Returns a port for an initiator, as usiw_sock_get() does. Either the user has bound @port, or
 * rdma_cm has chosen it without checking UDP's ports. The module cannot see which. If another
 * socket has @port, and @port is in the range from which the kernel chooses, rdma_cm probably chose
 * it. So this function returns another port then.
 */
struct usiw_sock *usiw_sock_get_active(struct net *net, bool ipv4, __be16 port)
{
	struct usiw_sock *us = usiw_sock_get(net, ipv4, port);
	int low, high;

	if (us != ERR_PTR(-EADDRINUSE))
		return us;
	inet_get_local_port_range(net, &low, &high);
	if (be16_to_cpu(port) < low || be16_to_cpu(port) > high)
		return us;
	return usiw_sock_get(net, ipv4, 0);
}

/* Frees the port after a grace period, when no encap_rcv uses it any more. */
static void usiw_sock_free_rcu(struct rcu_head *rcu)
{
	struct usiw_sock *us = container_of(rcu, struct usiw_sock, rcu);

	mem_cgroup_put(us->memcg);
	kfree(us);
}

/*
 * Drops a reference to the port for one family. The last reference for a family closes its socket,
 * and the last one for both families frees the port. May sleep. The port's own worker must not call
 * this, because the last call waits for the worker.
 */
void usiw_sock_put(struct usiw_sock *us, bool ipv4)
{
	bool last;

	if (!refcount_dec_and_mutex_lock(&us->users[ipv4], &usiw_socks_mutex))
		return;
	/* The mutex is still held, so the next usiw_sock_get() can bind the port again. */
	usiw_sock_close(us, ipv4);
	last = !us->sock[!ipv4];
	if (last)
		hash_del(&us->node);
	mutex_unlock(&usiw_socks_mutex);
	if (!last)
		return;
	usiw_sock_ops->purge(us);
	call_rcu(&us->rcu, usiw_sock_free_rcu);
}

/* ---- Sending ----------------------------------------------------------- */

/* Space for the ancillary data of a datagram: its source address and its traffic class. */
struct usiw_send_control {
	u8 space[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(int))];
} __aligned(__alignof__(struct cmsghdr));

/* Appends one item of ancillary data to @msg. */
static void usiw_send_put(struct msghdr *msg, int level, int type, const void *data, size_t len)
{
	struct cmsghdr *cmsg = msg->msg_control + msg->msg_controllen;

	cmsg->cmsg_level = level;
	cmsg->cmsg_type = type;
	cmsg->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(cmsg), data, len);
	msg->msg_controllen += CMSG_SPACE(len);
}

/* Adds the local address of @tuple and the traffic class @tos to @msg. */
static void usiw_send_control(struct msghdr *msg, const struct usiw_tuple *tuple, int tos)
{
	const struct in_pktinfo from4 = { .ipi_spec_dst.s_addr = tuple->local.s6_addr32[3] };
	const struct in6_pktinfo from6 = { .ipi6_addr = tuple->local };

	if (usiw_tuple_is_ipv4(tuple)) {
		usiw_send_put(msg, SOL_IP, IP_PKTINFO, &from4, sizeof(from4));
		usiw_send_put(msg, SOL_IP, IP_TOS, &tos, sizeof(tos));
	} else {
		usiw_send_put(msg, SOL_IPV6, IPV6_PKTINFO, &from6, sizeof(from6));
		usiw_send_put(msg, SOL_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
	}
}

/*
 * Sends one datagram from the local address of @tuple. Returns 0 or -errno. The caller may ignore
 * an error: it equals the loss of the datagram, from which the handshake recovers. May sleep.
 */
int usiw_sock_send(struct usiw_sock *us, const struct usiw_tuple *tuple, u8 tos,
		   const void *data, u32 len)
{
	struct kvec vec = { .iov_base = (void *)data, .iov_len = len };
	bool ipv4 = usiw_tuple_is_ipv4(tuple);
	struct usiw_send_control control = {};
	struct sockaddr_storage to;
	struct msghdr msg = {
		.msg_name = &to,
		.msg_control = &control,
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	int ret = -ENETDOWN;

	msg.msg_namelen = usiw_addr_to_sockaddr(&to, &tuple->remote, tuple->remote_port,
						tuple->scope);
	usiw_send_control(&msg, tuple, tos);
	down_read(&us->sem);
	if (us->sock[ipv4])
		ret = kernel_sendmsg(us->sock[ipv4], &msg, &vec, 1, len);
	up_read(&us->sem);
	return ret < 0 ? ret : 0;
}
