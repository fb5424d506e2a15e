// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Data sockets. A process that may not send raw packets moves the data of a connection by a data
 * socket. The module makes the socket when the process reads the CONNECT record, in the context of
 * that process. So the socket has the memory, cgroup, namespace and user of the process.
 *
 * A data socket is a connected UDP socket that is in none of UDP's hash tables. It has the local
 * address and port of the connection. Nobody else can bind these, because the module's own socket
 * of the port has them (usiw_sock.c). So UDP finds one socket at the port, whatever the number of
 * connections. usiw_rx.c looks the connection up and passes its datagrams on to the data socket.
 * The process sends by udp_sendmsg(), which needs no hash table. The kernel treats the datagrams as
 * it treats other UDP: routes, neighbours, firewall, IPsec, path MTU and accounting apply.
 *
 * The process can only exchange datagrams with the peer of the connection. It cannot bind or
 * connect the socket, nor send to another address. docs/security.md describes what it may send.
 *
 * The process owns the file: it may close the file, pass it on, or let children inherit it. The
 * connection only holds the struct sock, and drops it when the connection ends, whoever has the
 * file. From then on the socket neither sends nor receives. Its memory lives until an RCU grace
 * period later (SOCK_RCU_FREE), so that softirq can take a reference without a lock.
 *
 * usiw_data_close() does not take the lock of the socket. The process can hold that lock for as
 * long as it likes, because options of SOL_SOCKET copy from user memory under it.
 */
#include <linux/file.h>
#include <linux/in.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/sched/task.h>
#include <linux/udp.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/xfrm.h>

#include "usiw_data.h"

#include "usiw_addr.h"
#include "usiw_compat.h"
#include "usiw_conn.h"
#include "usiw_device.h"
#include "usiw_qp_ref.h"
#include "usiw_sock.h"

/*
 * [1] IPv4, [0] IPv6. The first socket of a family fills its entry, which is constant afterwards.
 */
static struct proto_ops usiw_data_ops[2];
static DEFINE_MUTEX(usiw_data_ops_mutex);

/*
 * The sk_user_data of a data socket is its connection, and the address of this variable once the
 * connection has ended. NULL would mean that nobody uses the socket: L2TP and sockmap take such a
 * socket and store a pointer of their own.
 */
static u8 usiw_data_ended __aligned(8);

/* True if the caller holds conn->lock, or if the last reference is gone. */
#define usiw_data_is_ours(conn)	(lockdep_is_held(&(conn)->lock) || !kref_read(&(conn)->kref))

/* Counts the connection in its port's numbers: see usiw_sock_merge(). */
static void usiw_data_count(struct usiw_conn *conn, bool merging, bool by_packets)
{
	int mergers = merging - conn->merging, tappers = by_packets - conn->by_packets;

	lockdep_assert(usiw_data_is_ours(conn));
	if (!mergers && !tappers)
		return;
	conn->merging = merging;
	conn->by_packets = by_packets;
	usiw_sock_merge(conn->sock, usiw_tuple_is_ipv4(usiw_conn_tuple(conn)), mergers, tappers);
}

/* ---- Calls of the process ---------------------------------------------- */

/* The only ancillary data allowed is UDP_SEGMENT, the length into which a message is cut. */
static bool usiw_data_control_is_fine(struct msghdr *msg)
{
	struct cmsghdr *cmsg;

	if (!msg->msg_controllen)
		return true;
	for_each_cmsghdr(cmsg, msg)
		if (!CMSG_OK(msg, cmsg) || cmsg->cmsg_level != SOL_UDP ||
		    cmsg->cmsg_type != UDP_SEGMENT)
			return false;
	return true;
}

static bool usiw_data_is_link_local(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	return sk->sk_family == AF_INET6 &&
	       (ipv6_addr_type(&sk->sk_v6_rcv_saddr) | ipv6_addr_type(&sk->sk_v6_daddr)) &
	       IPV6_ADDR_LINKLOCAL;
#else
	return false;
#endif
}

/*
 * A kernel before 6.8 does not ask the module about options of SOL_SOCKET. Two of them would lead
 * the socket past the routes: SO_BINDTODEVICE and SO_DONTROUTE. The kernel sets both under the
 * socket's lock, so under that lock no thread can set one between the check and the sending. Only
 * CAP_NET_RAW takes a link-local socket to another interface. The lock is not held while waiting
 * for space: such a send returns -EAGAIN.
 */
static int usiw_data_send(struct sock *sk, struct msghdr *msg, size_t len)
{
	int ret = -EPERM;

	if (USIW_SOL_SOCKET_IS_ASKED)
		return sk->sk_prot->sendmsg(sk, msg, len);
	msg->msg_flags |= MSG_DONTWAIT;
	lock_sock(sk);
	if (!sock_flag(sk, SOCK_LOCALROUTE) &&
	    (!sk->sk_bound_dev_if || usiw_data_is_link_local(sk)))
		ret = sk->sk_prot->sendmsg(sk, msg, len);
	release_sock(sk);
	return ret;
}

/* Does not use inet_sendmsg(), which gives a socket without a port a new one. */
static int usiw_data_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	struct sock *sk = sock->sk;

	if (READ_ONCE(sk->sk_user_data) == &usiw_data_ended)
		return -ENOTCONN;
	if (msg->msg_name)
		return -EISCONN;
	if (msg->msg_flags & (MSG_MORE | MSG_OOB | MSG_DONTROUTE))
		return -EOPNOTSUPP;
	if (!usiw_data_control_is_fine(msg))
		return -EPERM;
	return usiw_data_send(sk, msg, len);
}

/*
 * The process may use ECN (RFC 3168): it may ask for the ECN bits of datagrams that it receives,
 * and set those of datagrams that it sends. The rest of the traffic class is the CM user's choice.
 */
static bool usiw_data_option_is_ecn(const struct socket *sock, int level, int optname)
{
	if (sock->sk->sk_family == AF_INET)
		return level == SOL_IP && (optname == IP_TOS || optname == IP_RECVTOS);
	return level == SOL_IPV6 && (optname == IPV6_TCLASS || optname == IPV6_RECVTCLASS);
}

static int usiw_data_read_int(int *value, sockptr_t optval, unsigned int optlen)
{
	if (optlen != sizeof(*value))
		return -EINVAL;
	return copy_from_sockptr(value, optval, sizeof(*value)) ? -EFAULT : 0;
}

static int usiw_data_set_option(struct socket *sock, int level, int optname, int value)
{
	return sock_common_setsockopt(sock, level, optname, KERNEL_SOCKPTR(&value), sizeof(value));
}

static int usiw_data_set_ecn(struct socket *sock, int level, int optname, sockptr_t optval,
			     unsigned int optlen)
{
	const struct sock *sk = sock->sk;
	int value, ret;

	ret = usiw_data_read_int(&value, optval, optlen);
	if (ret)
		return ret;
	if (level == SOL_IP && optname == IP_TOS && (value ^ inet_sk(sk)->tos) & ~INET_ECN_MASK)
		return -EPERM;
#if IS_ENABLED(CONFIG_IPV6)
	if (level == SOL_IPV6 && optname == IPV6_TCLASS &&
	    (value ^ inet6_sk(sk)->tclass) & ~INET_ECN_MASK)
		return -EPERM;
#endif
	return usiw_data_set_option(sock, level, optname, value);
}

/*
 * Starts or stops GRO for the connection's data socket. The port's own socket has to know this as
 * well, because UDP builds aggregates before it knows the connection.
 */
static int usiw_data_set_gro(struct socket *sock, sockptr_t optval, unsigned int optlen)
{
	struct sock *sk = sock->sk;
	struct usiw_conn *conn;
	int value, ret;

	ret = usiw_data_read_int(&value, optval, optlen);
	if (!ret)
		ret = usiw_data_set_option(sock, SOL_UDP, UDP_GRO, value);
	if (ret)
		return ret;
	rcu_read_lock();
	conn = rcu_dereference_sk_user_data(sk);
	if ((void *)conn == &usiw_data_ended || !kref_get_unless_zero(&conn->kref))
		conn = NULL;
	rcu_read_unlock();
	if (!conn)
		return 0;
	mutex_lock(&conn->lock);
	if (rcu_access_pointer(conn->data_sk) == sk)
		usiw_data_count(conn, value, conn->by_packets);
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
	return 0;
}

/*
 * The process may set the sizes of its buffers, GRO, GSO and ECN, and may ask for the number of
 * datagrams that did not fit. A kernel before 6.8 does not ask about SOL_SOCKET, so
 * usiw_data_send() checks the options that matter.
 */
static int usiw_data_setsockopt(struct socket *sock, int level, int optname, sockptr_t optval,
				unsigned int optlen)
{
	if (level == SOL_UDP && optname == UDP_GRO)
		return usiw_data_set_gro(sock, optval, optlen);
	if ((level == SOL_UDP && optname == UDP_SEGMENT) ||
	    (level == SOL_SOCKET &&
	     (optname == SO_RCVBUF || optname == SO_SNDBUF || optname == SO_RCVBUFFORCE ||
	      optname == SO_SNDBUFFORCE || optname == SO_RXQ_OVFL)))
		return sock_common_setsockopt(sock, level, optname, optval, optlen);
	if (usiw_data_option_is_ecn(sock, level, optname))
		return usiw_data_set_ecn(sock, level, optname, optval, optlen);
	return -EPERM;
}

static int usiw_data_getsockopt(struct socket *sock, int level, int optname, char __user *optval,
				int __user *optlen)
{
	if ((level == SOL_UDP && (optname == UDP_GRO || optname == UDP_SEGMENT)) ||
	    (level == SOL_IP && (optname == IP_MTU || optname == IP_TOS)) ||
	    (level == SOL_IPV6 && (optname == IPV6_MTU || optname == IPV6_TCLASS)))
		return sock_common_getsockopt(sock, level, optname, optval, optlen);
	return -EPERM;
}

/* UDP's own operations, without those that would turn the socket into something else. */
static void usiw_data_fill_ops(struct proto_ops *ops, const struct proto_ops *udp)
{
	struct proto_ops made = *udp;

	made.owner = THIS_MODULE;
	made.bind = sock_no_bind;
	made.connect = sock_no_connect;
	made.socketpair = sock_no_socketpair;
	made.accept = sock_no_accept;
	made.ioctl = sock_no_ioctl;
	made.listen = sock_no_listen;
	made.shutdown = sock_no_shutdown;
	made.setsockopt = usiw_data_setsockopt;
	made.getsockopt = usiw_data_getsockopt;
	made.sendmsg = usiw_data_sendmsg;
	made.mmap = sock_no_mmap;
	usiw_ops_clear(&made);
	*ops = made;
}

/*
 * Makes the module the owner of the socket: it may not be unloaded while a process has the file.
 * May sleep.
 */
static void usiw_data_restrict(struct socket *sock)
{
	struct proto_ops *ops = &usiw_data_ops[sock->sk->sk_family == AF_INET];
	struct module *before = sock->ops->owner;

	mutex_lock(&usiw_data_ops_mutex);
	if (!ops->release)
		usiw_data_fill_ops(ops, sock->ops);
	mutex_unlock(&usiw_data_ops_mutex);
	usiw_ask_sol_socket(sock);
	__module_get(THIS_MODULE);
	WRITE_ONCE(sock->ops, ops);
	module_put(before);
}

/* ---- Receiving --------------------------------------------------------- */

/* Returns true if IP has reassembled the datagram. A raw port has received the fragments. */
static bool usiw_data_was_fragmented(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (ip_hdr(skb)->version == 6)
		return IP6CB(skb)->frag_max_size;
#endif
	return IPCB(skb)->frag_max_size;
}

/*
 * Returns true if the connection's raw port has received the same datagram and can use it. The raw
 * port does not get datagrams that arrived by another interface or out of IPsec. It cannot use
 * fragments and aggregates.
 */
static bool usiw_data_is_beside(const struct usiw_conn *conn, const struct sk_buff *skb)
{
	const struct usiw_device *dev = conn->dev;
	bool local = READ_ONCE(conn->end.info.flags) & USIW_CONN_F_LOCAL;

	return READ_ONCE(conn->end.port) == 1 + USIW_PORT_PACKET &&
	       skb->dev == (local ? dev->lo : dev->netdev) && !secpath_exists(skb) &&
	       !skb_is_gso(skb) && !usiw_data_was_fragmented(skb);
}

/*
 * Returns the process's socket with a reference, NULL if the connection has none or the datagrams
 * in @skb are not for it. Softirq, under RCU.
 */
struct sock *usiw_data_receiver(struct usiw_conn *conn, const struct sk_buff *skb)
{
	struct sock *sk = rcu_dereference(conn->data_sk);

	if (!sk || sock_flag(sk, SOCK_DEAD))
		return NULL;
	if (usiw_data_is_beside(conn, skb)) {
		usiw_count(conn->dev, USIW_KCNT_RX_BESIDE);
		return NULL;
	}
	return refcount_inc_not_zero(&sk->sk_refcnt) ? sk : NULL;
}

/*
 * ICMP has reported a smaller path MTU. UDP has stored it for the route of the port's socket. The
 * data socket may have another route, because routes may depend on the user. So this call updates
 * the data socket's route, and the next send looks the route up again. A socket without a route at
 * the moment (removed, and nothing was sent since) learns the MTU from the next ICMP. Softirq,
 * under RCU.
 */
void usiw_data_too_big(struct usiw_conn *conn, u32 mtu)
{
	struct sock *sk = rcu_dereference(conn->data_sk);
	struct dst_entry *dst;

	if (!sk || !refcount_inc_not_zero(&sk->sk_refcnt))
		return;
	dst = sk_dst_get(sk);
	if (dst) {
		if (dst->ops->update_pmtu)
			dst->ops->update_pmtu(dst, sk, NULL, mtu, false);
		dst_release(dst);
		sk_dst_reset(sk);
	}
	sock_put(sk);
}

/* ---- Making a data socket ---------------------------------------------- */

/*
 * Binds to the address alone, for which UDP needs no hash table, then sets the port of the module's
 * own socket. No other thread knows the socket yet.
 */
static int usiw_data_bind(const struct usiw_conn *conn, struct socket *sock)
{
	const struct usiw_tuple *tuple = usiw_conn_tuple(conn);
	struct inet_sock *inet = inet_sk(sock->sk);
	int ret;

	ret = usiw_data_set_option(sock, SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	if (!ret)
		ret = usiw_sock_bind(sock, &tuple->local, 0, tuple->scope);
	if (ret)
		return ret;
	inet->inet_num = be16_to_cpu(tuple->local_port);
	inet->inet_sport = tuple->local_port;
	sock->sk->sk_userlocks |= SOCK_BINDPORT_LOCK;
	return 0;
}

/*
 * Returns true if the socket has the ends of the connection. BPF programs of the process's cgroup
 * run at bind and connect, and may have changed the ends.
 */
static bool usiw_data_fits(const struct usiw_conn *conn, const struct sock *sk)
{
	const struct usiw_tuple *tuple = usiw_conn_tuple(conn);
	const struct inet_sock *inet = inet_sk(sk);

	if (!sk_unhashed(sk) || inet->inet_sport != tuple->local_port ||
	    inet->inet_dport != tuple->remote_port)
		return false;
	if (usiw_tuple_is_ipv4(tuple))
		return inet->inet_saddr == tuple->local.s6_addr32[3] &&
		       inet->inet_daddr == tuple->remote.s6_addr32[3];
#if IS_ENABLED(CONFIG_IPV6)
	return ipv6_addr_equal(&inet6_sk(sk)->saddr, &tuple->local) &&
	       ipv6_addr_equal(&sk->sk_v6_daddr, &tuple->remote);
#else
	return false;
#endif
}

/* UDP's connect() leaves a socket out of its hash tables if the socket is in none of them. */
static int usiw_data_connect(const struct usiw_conn *conn, struct socket *sock)
{
	const struct usiw_tuple *tuple = usiw_conn_tuple(conn);
	bool ipv4 = usiw_tuple_is_ipv4(tuple);
	struct sockaddr_storage sa;
	int ret, len;

	ret = usiw_data_bind(conn, sock);
	if (!ret && conn->end.tos)
		ret = usiw_data_set_option(sock, ipv4 ? SOL_IP : SOL_IPV6,
					   ipv4 ? IP_TOS : IPV6_TCLASS, conn->end.tos);
	if (ret)
		return ret;
	len = usiw_addr_to_sockaddr(&sa, &tuple->remote, tuple->remote_port, tuple->scope);
	ret = kernel_connect(sock, (void *)&sa, len, 0);
	if (ret)
		return ret;
	return usiw_data_fits(conn, sock->sk) ? 0 : -EPERM;
}

/* Makes a socket of the process, as if it had called socket(2) in the connection's namespace. */
static int usiw_data_create(const struct usiw_conn *conn, struct socket **sock)
{
	int family = usiw_tuple_is_ipv4(usiw_conn_tuple(conn)) ? AF_INET : AF_INET6;
	struct net *net = maybe_get_net(conn->net);
	int ret;

	if (!net)
		return -ENETDOWN;
	ret = __sock_create(net, family, SOCK_DGRAM, IPPROTO_UDP, sock, 0);
	put_net(net);
	if (!ret)
		sock_set_flag((*sock)->sk, SOCK_RCU_FREE);
	return ret;
}

static struct file *usiw_data_make(struct usiw_conn *conn)
{
	struct socket *sock;
	struct file *file;
	int ret;

	lockdep_assert_held(&conn->lock);
	ret = usiw_data_create(conn, &sock);
	if (ret)
		return ERR_PTR(ret);
	ret = usiw_data_connect(conn, sock);
	if (ret) {
		sock_release(sock);
		return ERR_PTR(ret);
	}
	usiw_data_restrict(sock);
	rcu_assign_sk_user_data(sock->sk, conn);
	sock_hold(sock->sk);
	atomic_inc(&conn->sock->data_sockets);
	rcu_assign_pointer(conn->data_sk, sock->sk);
	file = sock_alloc_file(sock, O_NONBLOCK | O_CLOEXEC, NULL);
	if (IS_ERR(file))
		usiw_data_close(conn);	/* the socket has been released */
	return file;
}

/*
 * Ends the data socket, because the connection ends or gets another socket. The socket neither
 * sends nor receives any more, but the process can still read datagrams that it has received. The
 * caller holds conn->lock or the last reference.
 */
void usiw_data_close(struct usiw_conn *conn)
{
	struct sock *sk = rcu_replace_pointer(conn->data_sk, NULL, usiw_data_is_ours(conn));

	usiw_data_count(conn, false, false);
	if (!sk)
		return;
	atomic_dec(&conn->sock->data_sockets);
	/* usiw_data_sendmsg() sends nothing from here on. */
	rcu_assign_sk_user_data(sk, &usiw_data_ended);
	sk_dst_reset(sk);
	sock_put(sk);
}

/* Notes whether the process sends, and so receives, by raw packets. */
void usiw_data_by_packets(struct usiw_conn *conn, bool yes)
{
	lockdep_assert_held(&conn->lock);
	if (conn->table == USIW_CONN_HASHED)
		usiw_data_count(conn, conn->merging, yes);
}

/* Returns true if the process still has the file. It closes the file when it takes raw packets. */
bool usiw_data_is_open(const struct usiw_conn *conn)
{
	const struct sock *sk = rcu_dereference_protected(conn->data_sk,
							  lockdep_is_held(&conn->lock));

	return sk && !sock_flag(sk, SOCK_DEAD);
}

/*
 * Makes @conn's data socket and a descriptor for the reader of the CONNECT record. Only the process
 * that made the QP gets one: another reader of its events gets -EPERM, such as a child of fork() or
 * a process to which it passed the event file. Returns the descriptor, which the caller installs or
 * drops with *@file, or -errno.
 */
int usiw_data_open(struct usiw_conn *conn, struct file **file)
{
	int fd;

	*file = NULL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	mutex_lock(&conn->lock);
	if (!conn->qp || !usiw_cm_is_installed(&conn->end.cm) || conn->table == USIW_CONN_BARRED)
		*file = ERR_PTR(-ECONNRESET);
	else if (conn->qp->owner != task_tgid(current))
		*file = ERR_PTR(-EPERM);
	if (!*file) {
		usiw_data_close(conn);	/* a reader may have failed to copy the record */
		*file = usiw_data_make(conn);
	}
	mutex_unlock(&conn->lock);
	if (!IS_ERR(*file))
		return fd;
	put_unused_fd(fd);
	fd = PTR_ERR(*file);
	*file = NULL;
	return fd;
}
