// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * UDP sockets of the handshake, one per netns, family and port, for all addresses: listeners
 * and connections are found by address in it. While one uses the port it belongs to the kernel:
 * nobody else gets it, and data for the engine, which the kernel sees as well, draws no ICMP
 * error.
 */
#include <linux/hashtable.h>
#include <linux/in.h>
#include <linux/jhash.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "usiw_conn.h"

#define USIW_SOCK_HASH_BITS	10

/* Guarded by the mutex; a socket is found, and rises from the table, under it only. */
static DEFINE_HASHTABLE(usiw_socks, USIW_SOCK_HASH_BITS);
static DEFINE_MUTEX(usiw_socks_mutex);

static u32 usiw_sock_hash(const struct net *net, __be16 port)
{
	return jhash_2words(net_hash_mix(net), (__force u16)port, 0);
}

static struct usiw_sock *usiw_sock_find(const struct net *net, bool ipv4, __be16 port)
{
	struct usiw_sock *us;

	hash_for_each_possible(usiw_socks, us, node, usiw_sock_hash(net, port))
		if (net_eq(us->net, net) && us->ipv4 == ipv4 && us->port == port)
			return us;
	return NULL;
}

/*
 * UDP lets sockets with SO_REUSEPORT share a port if their inodes have one owner. Nobody's
 * socket has this one (a process has no such user, and fchown() does not take it), so that the
 * module's sockets can share a port with each other and with nobody else.
 */
static void usiw_sock_set_owner(struct socket *sock)
{
	SOCK_INODE(sock)->i_uid = INVALID_UID;
}

static int usiw_sock_bind(struct socket *sock, bool ipv4, const struct in6_addr *addr,
			  __be16 port, int scope)
{
	struct sockaddr_in6 sin6 = {
		.sin6_family = AF_INET6,
		.sin6_addr = *addr,
		.sin6_port = port,
		.sin6_scope_id = scope,
	};
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = port,
	};
	int ret;

	if (ipv4) {
		if (!ipv6_addr_any(addr))
			sin.sin_addr.s_addr = addr->s6_addr32[3];
		return kernel_bind(sock, (struct sockaddr *)&sin, sizeof(sin));
	}
	ret = ip6_sock_set_v6only(sock->sk);
	if (ret)
		return ret;
	return kernel_bind(sock, (struct sockaddr *)&sin6, sizeof(sin6));
}

/*
 * Bind another socket of the module's to a local address of @us's family, at the port that @us
 * owns. UDP prefers it to @us for datagrams to that address from then on, so @sock has to have
 * its encap_rcv before; once it is connected it gets its own peer's only. May sleep.
 */
int usiw_sock_bind_beside(const struct usiw_sock *us, struct socket *sock,
			  const struct in6_addr *local, int scope)
{
	usiw_sock_set_owner(sock);
	sock->sk->sk_reuseport = 1;
	return usiw_sock_bind(sock, us->ipv4, local, us->port, scope);
}

/*
 * A kernel socket holds no reference to its netns, which waits for the device instead. It is
 * bound alone (sharing is a matter for usiw_sock_bind_beside), so port 0 finds a free one.
 */
static int usiw_sock_open(struct usiw_sock *us)
{
	struct udp_tunnel_sock_cfg cfg = {
		.sk_user_data = us,
		.encap_type = 1,
		.encap_rcv = usiw_encap_rcv,
		.encap_err_rcv = usiw_encap_err_rcv,
	};
	struct socket *sock;
	int ret;

	ret = sock_create_kern(us->net, us->ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM, IPPROTO_UDP,
			       &sock);
	if (ret)
		return ret;
	usiw_sock_set_owner(sock);
	ret = usiw_sock_bind(sock, us->ipv4, &in6addr_any, us->port, 0);
	if (ret) {
		sock_release(sock);
		return ret;
	}
	sock->sk->sk_reuseport = 1;
	us->port = inet_sk(sock->sk)->inet_sport;
	setup_udp_tunnel_sock(us->net, sock, &cfg);
	us->sock = sock;
	return 0;
}

/* After this encap_rcv may still be running, with @us that lives until a grace period later. */
static void usiw_sock_close(struct usiw_sock *us)
{
	struct socket *sock;

	down_write(&us->sem);
	sock = us->sock;
	us->sock = NULL;
	up_write(&us->sem);
	if (!sock)
		return;
	rcu_assign_sk_user_data(sock->sk, NULL);
	kernel_sock_shutdown(sock, SHUT_RDWR);
	sock_release(sock);
}

static struct usiw_sock *usiw_sock_create(struct net *net, bool ipv4, __be16 port)
{
	struct usiw_sock *us;
	int ret;

	us = kzalloc(sizeof(*us), GFP_KERNEL_ACCOUNT);
	if (!us)
		return ERR_PTR(-ENOMEM);
	refcount_set(&us->refs, 1);
	us->net = net;
	us->ipv4 = ipv4;
	us->port = port;
	init_rwsem(&us->sem);
	spin_lock_init(&us->lock);
	INIT_LIST_HEAD(&us->listeners);
	INIT_LIST_HEAD(&us->rxq);
	INIT_LIST_HEAD(&us->held);
	INIT_LIST_HEAD(&us->data);
	INIT_WORK(&us->rx_work, usiw_rx_work);
	INIT_DELAYED_WORK(&us->hold_work, usiw_rx_hold_work);
	us->hold_until = jiffies;

	ret = usiw_sock_open(us);
	if (ret) {
		kfree(us);
		return ERR_PTR(ret);
	}
	hash_add(usiw_socks, &us->node, usiw_sock_hash(net, us->port));
	return us;
}

/*
 * The socket of a port, a new one if need be; 0 is a new port of the kernel's choice. Return
 * -EADDRINUSE if somebody else has the port. May sleep.
 */
struct usiw_sock *usiw_sock_get(struct net *net, bool ipv4, __be16 port)
{
	struct usiw_sock *us;

	mutex_lock(&usiw_socks_mutex);
	us = port ? usiw_sock_find(net, ipv4, port) : NULL;
	if (us)
		refcount_inc(&us->refs);
	else
		us = usiw_sock_create(net, ipv4, port);
	mutex_unlock(&usiw_socks_mutex);
	return us;
}

/*
 * The socket of an initiator. rdma_cm has picked its port without a look at UDP's ports, unless
 * the user has bound one, which cannot be told here; so where the port is one of those that are
 * picked from and somebody else has it, another one is as good.
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

/*
 * For the socket's worker, which has no reference of its own: false once the last user has
 * gone, who waits for the worker to end.
 */
bool usiw_sock_tryget(struct usiw_sock *us)
{
	return refcount_inc_not_zero(&us->refs);
}

/* May sleep. Not for the socket's own worker, which it waits for. */
void usiw_sock_put(struct usiw_sock *us)
{
	if (!refcount_dec_and_mutex_lock(&us->refs, &usiw_socks_mutex))
		return;
	/* Under the mutex, so that whoever wants the port next finds it free. */
	hash_del(&us->node);
	usiw_sock_close(us);
	mutex_unlock(&usiw_socks_mutex);

	usiw_rx_purge(us);
	kfree_rcu(us, rcu);
}

/* ---- Sending ----------------------------------------------------------- */

static int usiw_send4(struct socket *sock, const struct usiw_tuple *tuple, struct kvec *vec)
{
	union {
		struct cmsghdr hdr;
		u8 space[CMSG_SPACE(sizeof(struct in_pktinfo))];
	} control = {};
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = tuple->remote.s6_addr32[3],
		.sin_port = tuple->remote_port,
	};
	struct msghdr msg = {
		.msg_name = &to,
		.msg_namelen = sizeof(to),
		.msg_control = &control,
		.msg_controllen = sizeof(control),
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	struct in_pktinfo *info = CMSG_DATA(&control.hdr);

	control.hdr.cmsg_level = SOL_IP;
	control.hdr.cmsg_type = IP_PKTINFO;
	control.hdr.cmsg_len = CMSG_LEN(sizeof(*info));
	info->ipi_spec_dst.s_addr = tuple->local.s6_addr32[3];
	return kernel_sendmsg(sock, &msg, vec, 1, vec->iov_len);
}

static int usiw_send6(struct socket *sock, const struct usiw_tuple *tuple, struct kvec *vec)
{
	union {
		struct cmsghdr hdr;
		u8 space[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control = {};
	struct sockaddr_in6 to = {
		.sin6_family = AF_INET6,
		.sin6_addr = tuple->remote,
		.sin6_port = tuple->remote_port,
	};
	struct msghdr msg = {
		.msg_name = &to,
		.msg_namelen = sizeof(to),
		.msg_control = &control,
		.msg_controllen = sizeof(control),
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	struct in6_pktinfo *info = CMSG_DATA(&control.hdr);

	if (ipv6_addr_type(&tuple->remote) & IPV6_ADDR_LINKLOCAL)
		to.sin6_scope_id = tuple->scope;
	control.hdr.cmsg_level = SOL_IPV6;
	control.hdr.cmsg_type = IPV6_PKTINFO;
	control.hdr.cmsg_len = CMSG_LEN(sizeof(*info));
	info->ipi6_addr = tuple->local;
	return kernel_sendmsg(sock, &msg, vec, 1, vec->iov_len);
}

/*
 * Send one datagram from exactly @tuple's local address. Return 0 or -errno; the caller goes
 * on either way, since what matters is repeated. May sleep.
 */
int usiw_sock_send(struct usiw_sock *us, const struct usiw_tuple *tuple, const void *data,
		   u32 len)
{
	struct kvec vec = { .iov_base = (void *)data, .iov_len = len };
	int ret = -ENETDOWN;

	down_read(&us->sem);
	if (us->sock) {
		if (us->ipv4)
			ret = usiw_send4(us->sock, tuple, &vec);
		else
			ret = usiw_send6(us->sock, tuple, &vec);
	}
	up_read(&us->sem);
	return ret < 0 ? ret : 0;
}
