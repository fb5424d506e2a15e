// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Data sockets. A connection has a data socket if its provider can use one (USIW_CAP_DATA_SOCKET).
 * A process that may not send raw packets uses the socket in place of them. Another process may use
 * the socket at times, for example in bulk mode. The module makes the socket when the process reads
 * the CONNECT record, in the context of that process. So the socket's memory, cgroup and user are
 * those of the process.
 *
 * A data socket is a connected UDP socket that is in none of UDP's hash tables. It has the local
 * address and port of the connection. Nobody else can bind these, because the module's own socket
 * of the port has them (usiw_sock.c). So UDP finds one socket at the port, whatever the number of
 * connections. usiw_rx.c looks up the connection of a datagram and passes the datagram on to the
 * data socket. The process sends by udp_sendmsg(), which needs no hash table. The kernel treats the
 * datagrams as it treats other UDP: routes, neighbours, firewall, IPsec, path MTU and accounting
 * apply.
 *
 * The process can only exchange datagrams with the peer of the connection. It cannot bind or
 * connect the socket, nor send to another address. docs/security.md describes what it may send.
 *
 * The process owns the file: it may close the file, pass it on, or let children inherit it. The
 * connection only holds the struct sock, and drops it when the connection ends, even if a process
 * still has the file. From then on the socket neither sends nor receives. Its memory is freed an
 * RCU grace period after the last reference (SOCK_RCU_FREE), so softirq can take a reference
 * without a lock.
 *
 * usiw_data_close() does not take the lock of the socket. The process can hold that lock for any
 * time, because the kernel copies options of SOL_SOCKET from user memory under it.
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
 * Operations of data sockets: [1] IPv4, [0] IPv6. The first socket of a family fills its entry,
 * which is constant afterwards.
 */
static struct proto_ops usiw_data_ops[2];
static DEFINE_MUTEX(usiw_data_ops_mutex);

/*
 * The sk_user_data of a data socket points to its connection, and to this variable once the
 * connection has ended or has another data socket. sk_user_data must not be NULL, because L2TP and
 * sockmap use a socket without sk_user_data and store their own pointer there.
 */
static u8 usiw_data_ended __aligned(8);

/*
 * True if the caller holds conn->lock or has dropped the last reference, so that it may change the
 * data socket.
 */
#define usiw_data_is_ours(conn)	(lockdep_is_held(&(conn)->lock) || !kref_read(&(conn)->kref))

/*
 * Sets whether the connection counts as a merger and as a tapper of its port. The data socket of a
 * merger takes aggregates, and a tapper receives by raw packets. usiw_sock_merge() starts or stops
 * GRO for the port by the two counts.
 */
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

/*
 * Returns true if @msg has no ancillary data except UDP_SEGMENT, the length of the datagrams into
 * which the kernel cuts a message.
 */
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
 * Sends @msg. Returns -EPERM if an option would make the socket ignore the routes. Before 6.8 the
 * kernel sets options of SOL_SOCKET without calling the module, SO_BINDTODEVICE and SO_DONTROUTE
 * among them. The kernel sets them under the socket's lock. So this function checks and sends under
 * that lock. A link-local socket may be bound to an interface, and only CAP_NET_RAW can bind it to
 * another one. So that the lock is not held for long, a send that would wait for space returns
 * -EAGAIN.
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

/*
 * Sends @msg by a data socket. Refuses a message with an address, or with flags or ancillary data
 * that the process may not use. Calls sendmsg of UDP directly, because inet_sendmsg() would bind a
 * socket without a port to a new port.
 */
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
 * Returns true for the options that the process needs for ECN (RFC 3168): to read the ECN bits of
 * datagrams that it receives, and to set those of datagrams that it sends. The options contain the
 * whole traffic class, whose other bits the user of rdma_cm sets.
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

/*
 * Sets an option of usiw_data_option_is_ecn(). Returns -EPERM if other bits of the traffic class
 * than those of ECN would change.
 */
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
 * Starts or stops GRO for the connection's data socket, and counts the change at the port. The
 * port's own socket needs the count, because UDP builds aggregates before it knows the connection.
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
 * Sets an option of a data socket. The process may set buffer sizes, GRO, GSO and ECN bits, and may
 * request the number of datagrams that did not fit (SO_RXQ_OVFL). Returns -EPERM for other options.
 * Before 6.8 the kernel sets options of SOL_SOCKET without calling this function, so
 * usiw_data_send() checks two of them.
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

/*
 * Fills @ops with UDP's own operations, but with this file's sendmsg, setsockopt and getsockopt.
 * The other operations by which the process could change the socket, such as bind and connect,
 * fail.
 */
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
 * Gives the socket the operations of a data socket, and a reference to the module. So the module
 * cannot be unloaded while a process has the file. May sleep.
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

/* Returns true if IP has reassembled the datagram. The raw port has received only the fragments. */
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
 * port does not receive datagrams that arrived by another interface or came out of IPsec. The raw
 * port cannot use fragments or aggregates.
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
 * Returns the data socket of the connection with a reference. Returns NULL if there is none, if no
 * process has its file any more, or if the raw port receives the datagrams of @skb. Softirq, under
 * RCU.
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
 * Stores @mtu for the route of the data socket, after ICMP has reported a smaller path MTU. UDP has
 * stored the MTU for the route of the port's socket. The data socket may have another route,
 * because routes may depend on the user. After this call the next send of the data socket looks the
 * route up again. The data socket may have no cached route at the moment, because the route was
 * dropped, maybe by an earlier call, and nothing was sent since. Then the next ICMP reports the MTU
 * again. Softirq, under RCU.
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
 * Binds @sock to the local address and port of the connection. The module's own socket has that
 * port in UDP's hash table. So this call binds to the address only, which needs no hash table, and
 * then sets the port itself. No other thread knows the socket yet.
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
 * Returns true if the socket has the addresses and ports of the connection. BPF programs of the
 * process's cgroup run at bind and connect, and may have changed them.
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

/* Binds and connects @sock. UDP's connect() adds no socket to its hash tables that was in none. */
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

/* Makes a UDP socket as if the process had called socket(2) in the connection's namespace. */
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

/* Makes the data socket and its file. Returns the file or an error pointer. */
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
 * sends nor receives any more, but the process can still read datagrams that are in its queue. The
 * caller holds conn->lock or has dropped the last reference.
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

/*
 * Sets whether the connection counts as a tapper of its port, if it is still in the table. It
 * counts if the process sends by raw packets, because the process then also receives by raw
 * packets.
 */
void usiw_data_by_packets(struct usiw_conn *conn, bool yes)
{
	lockdep_assert_held(&conn->lock);
	if (conn->table == USIW_CONN_HASHED)
		usiw_data_count(conn, conn->merging, yes);
}

/*
 * Returns true if a process still has the file. A process that can change its port keeps it. Any
 * other process closes it if the connection uses raw packets.
 */
bool usiw_data_is_open(const struct usiw_conn *conn)
{
	const struct sock *sk = rcu_dereference_protected(conn->data_sk,
							  lockdep_is_held(&conn->lock));

	return sk && !sock_flag(sk, SOCK_DEAD);
}

/*
 * Makes @conn's data socket, and reserves a descriptor for the reader of the CONNECT record.
 * Returns the descriptor or -errno. The caller installs the descriptor with *@file, or drops both.
 * Only the process that made the QP gets a socket. Other processes may read the events, such as a
 * child of fork() or a process that was sent the event file. They get -EPERM.
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
