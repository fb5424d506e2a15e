// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Data sockets: what a process that may not send raw packets moves its data by. The module
 * makes one for a connection when the process reads its CONNECT record, in that process's
 * context: so the memory, the cgroup, the namespace and the user of the socket are its own.
 *
 * It is a UDP socket that shares the local port with the kernel's own socket of that port
 * and is connected to the peer, and it can do nothing but that: it cannot be bound, connected,
 * or made to send anywhere else. What the kernel does for UDP (routes, neighbours, firewall,
 * IPsec, path MTU, accounting) it does for this, too. Handshakes that come in by it go to the
 * module (usiw_rx.c); see docs/security.md for what the process may send. While the process
 * has told that it takes raw packets, what its raw port sees as well goes no further than here.
 *
 * The file is the process's, to be closed, passed on, or inherited. The connection only holds
 * the struct sock, and takes the socket off the network when it ends, whoever has the file.
 * It takes no lock that the process may hold for as long as it likes: options of SOL_SOCKET,
 * which before 6.8 or so nobody asks the module about, copy from user memory under the
 * socket's.
 */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/in.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/sched/task.h>
#include <linux/udp.h>
#include <net/inet_common.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>
#include <net/xfrm.h>

#include "usiw_conn.h"

/* So often a process can clear SO_REUSEPORT between two looks at it, and the next socket is made. */
#define USIW_DATA_BIND_TRIES	16

/* Who binds the sockets to the kernel's ports. */
static struct cred *usiw_kernel_cred;

int usiw_data_init(void)
{
	usiw_kernel_cred = prepare_kernel_cred(&init_task);
	return usiw_kernel_cred ? 0 : -ENOMEM;
}

void usiw_data_exit(void)
{
	put_cred(usiw_kernel_cred);
}

/* ---- What the process may do with it ----------------------------------- */

/* Of ancillary data, only the length of the datagrams that a message is to be cut into. */
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

/* Not by way of inet_sendmsg(), which gives a socket without a port a new one. */
static int usiw_data_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)
{
	struct sock *sk = sock->sk;

	if (!READ_ONCE(sk->sk_user_data))
		return -ENOTCONN;
	if (msg->msg_name)
		return -EISCONN;
	if (msg->msg_flags & (MSG_MORE | MSG_OOB | MSG_DONTROUTE))
		return -EOPNOTSUPP;
	if (!usiw_data_control_is_fine(msg))
		return -EPERM;
	return sk->sk_prot->sendmsg(sk, msg, len);
}

/*
 * Congestion marks (ECN, RFC 3168): the process may ask for those of what comes, and say that what
 * it sends can be marked. The rest of the traffic class is the CM user's word.
 */
static bool usiw_data_option_is_ecn(const struct socket *sock, int level, int optname)
{
	if (sock->sk->sk_family == AF_INET)
		return level == SOL_IP && (optname == IP_TOS || optname == IP_RECVTOS);
	return level == SOL_IPV6 && (optname == IPV6_TCLASS || optname == IPV6_RECVTCLASS);
}

static int usiw_data_set_ecn(struct socket *sock, int level, int optname, sockptr_t optval,
			     unsigned int optlen)
{
	const struct sock *sk = sock->sk;
	int value;

	if (optlen != sizeof(value))
		return -EINVAL;
	if (copy_from_sockptr(&value, optval, sizeof(value)))
		return -EFAULT;
	if (level == SOL_IP && optname == IP_TOS && (value ^ inet_sk(sk)->tos) & ~INET_ECN_MASK)
		return -EPERM;
#if IS_ENABLED(CONFIG_IPV6)
	if (level == SOL_IPV6 && optname == IPV6_TCLASS &&
	    (value ^ inet6_sk(sk)->tclass) & ~INET_ECN_MASK)
		return -EPERM;
#endif
	return sock_common_setsockopt(sock, level, optname, KERNEL_SOCKPTR(&value), sizeof(value));
}

/*
 * SOL_SOCKET does not come here before 6.8 or so. It has nothing that takes the socket to another
 * port or peer, nobody else binds to the port while it is there, and SO_REUSEPORT is mended when it
 * matters: see usiw_data_bind(). Where it comes here, the process may size its buffers and no more.
 */
static int usiw_data_setsockopt(struct socket *sock, int level, int optname, sockptr_t optval,
				unsigned int optlen)
{
	if ((level == SOL_UDP && (optname == UDP_GRO || optname == UDP_SEGMENT)) ||
	    (level == SOL_SOCKET &&
	     (optname == SO_RCVBUF || optname == SO_SNDBUF || optname == SO_RCVBUFFORCE ||
	      optname == SO_SNDBUFFORCE)))
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

static const struct proto_ops usiw_data_ops4 = {
	.family = PF_INET,
	.owner = THIS_MODULE,
	.release = inet_release,
	.bind = sock_no_bind,
	.connect = sock_no_connect,
	.socketpair = sock_no_socketpair,
	.accept = sock_no_accept,
	.getname = inet_getname,
	.poll = usiw_udp_poll,
	.ioctl = sock_no_ioctl,
	.gettstamp = sock_gettstamp,
	.listen = sock_no_listen,
	.shutdown = sock_no_shutdown,
	.setsockopt = usiw_data_setsockopt,
	.getsockopt = usiw_data_getsockopt,
	.sendmsg = usiw_data_sendmsg,
	.recvmsg = sock_common_recvmsg,
	.mmap = sock_no_mmap,
};

#if IS_ENABLED(CONFIG_IPV6)
static const struct proto_ops usiw_data_ops6 = {
	.family = PF_INET6,
	.owner = THIS_MODULE,
	.release = inet6_release,
	.bind = sock_no_bind,
	.connect = sock_no_connect,
	.socketpair = sock_no_socketpair,
	.accept = sock_no_accept,
	.getname = inet6_getname,
	.poll = usiw_udp_poll,
	.ioctl = sock_no_ioctl,
	.gettstamp = sock_gettstamp,
	.listen = sock_no_listen,
	.shutdown = sock_no_shutdown,
	.setsockopt = usiw_data_setsockopt,
	.getsockopt = usiw_data_getsockopt,
	.sendmsg = usiw_data_sendmsg,
	.recvmsg = sock_common_recvmsg,
	.mmap = sock_no_mmap,
};
#endif

/* The socket's owner is the module from here on: it may not go while a process has the file. */
static void usiw_data_restrict(struct socket *sock)
{
	struct module *before = sock->ops->owner;

	__module_get(THIS_MODULE);
	WRITE_ONCE(sock->ops, &usiw_data_ops4);
#if IS_ENABLED(CONFIG_IPV6)
	if (sock->sk->sk_family == PF_INET6)
		WRITE_ONCE(sock->ops, &usiw_data_ops6);
#endif
	module_put(before);
}

/* ---- What it receives -------------------------------------------------- */

/* Put together of fragments, which a raw port has seen one by one. */
static bool usiw_data_was_fragmented(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (ip_hdr(skb)->version == 6)
		return IP6CB(skb)->frag_max_size;
#endif
	return IPCB(skb)->frag_max_size;
}

/*
 * Has the connection's raw port seen the same, and can it use it? It has not if that came by
 * another interface, or out of IPsec; and it cannot if the datagram came in pieces, or several
 * as one.
 */
static bool usiw_data_is_beside(const struct usiw_conn *conn, const struct sk_buff *skb)
{
	const struct usiw_device *dev = conn->dev;
	bool local = READ_ONCE(conn->info.flags) & USIW_CONN_F_LOCAL;

	return READ_ONCE(conn->port) == 1 + USIW_PORT_PACKET &&
	       skb->dev == (local ? dev->lo : dev->netdev) &&
	       !secpath_exists(skb) && !skb_is_gso(skb) && !usiw_data_was_fragmented(skb);
}

/* Softirq. As the port's own socket, or 1 for what is to be put into the process's queue. */
static int usiw_data_encap_rcv(struct sock *sk, struct sk_buff *skb)
{
	struct usiw_conn *conn = rcu_dereference_sk_user_data(sk);
	int ret;

	if (!conn) {
		kfree_skb(skb);
		return 0;
	}
	ret = conn->sock->ops->data_rcv(sk, conn->sock, skb);
	if (ret <= 0 || !usiw_data_is_beside(conn, skb))
		return ret;
	usiw_count(conn->dev, USIW_KCNT_RX_BESIDE);
	consume_skb(skb);
	return 0;
}

/* ICMP about what the process has sent by it: the kernel has noted a smaller path MTU by now. */
#if USIW_ENCAP_ERR_KNOWS_ALL
static void usiw_data_err_rcv(struct sock *sk, struct sk_buff *skb, int err, __be16 port,
			      u32 info, u8 *payload)
#else
static void usiw_data_err_rcv(struct sock *sk, struct sk_buff *skb, unsigned int udp_offset)
#endif
{
	struct usiw_conn *conn = rcu_dereference_sk_user_data(sk);

	if (!conn || time_before(jiffies, READ_ONCE(conn->icmp_next)))
		return;
	WRITE_ONCE(conn->icmp_next, jiffies + msecs_to_jiffies(USIW_ICMP_MS));
	usiw_conn_kick(conn, USIW_CONN_FOLLOW);
}

/* ---- Making one -------------------------------------------------------- */

/*
 * Where the kernel does not ask the module, processes can clear SO_REUSEPORT of their sockets, next
 * to which no other can be bound then. Without the sockets' locks, which a process may hold for as
 * long as it likes by way of SOL_SOCKET: it can lose a change of its own to its SO_REUSEADDR, which
 * means nothing here, and nothing else is in that word that ever changes.
 */
static void usiw_data_share_again(struct usiw_sock *us)
{
	struct usiw_conn *conn;

	spin_lock_bh(&us->lock);
	list_for_each_entry(conn, &us->data, data_node)
		conn->data_sk->sk_reuseport = 1;
	spin_unlock_bh(&us->lock);
}

/*
 * The data socket's descriptor is the process's, its port is the kernel's: what could not be
 * bound by the process can be shared with it.
 */
static int usiw_data_bind(const struct usiw_conn *conn, struct socket *sock)
{
	const struct cred *own = override_creds(usiw_kernel_cred);
	int ret, tries;

	for (tries = 0; tries < USIW_DATA_BIND_TRIES; tries++) {
		ret = usiw_sock_bind_beside(conn->sock, sock, &conn->tuple.local,
					    conn->tuple.scope);
		if (ret != -EADDRINUSE)
			break;
		usiw_data_share_again(conn->sock);
	}
	revert_creds(own);
	return ret;
}

static int usiw_data_set_tos(struct socket *sock, bool ipv4, int tos)
{
	if (!tos)
		return 0;
	return sock_common_setsockopt(sock, ipv4 ? SOL_IP : SOL_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
				      KERNEL_SOCKPTR(&tos), sizeof(tos));
}

static int usiw_data_connect(const struct usiw_conn *conn, struct socket *sock)
{
	bool ipv4 = usiw_tuple_is_ipv4(&conn->tuple);
	struct sockaddr_storage sa;
	int ret, len;

	ret = usiw_data_bind(conn, sock);
	if (!ret)
		ret = usiw_data_set_tos(sock, ipv4, conn->sender.tos);
	if (ret)
		return ret;
	usiw_addr_to_sockaddr(&sa, &conn->tuple.remote, conn->tuple.remote_port, conn->tuple.scope);
	len = ipv4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	return kernel_connect(sock, (void *)&sa, len, 0);
}

/* A socket of the process's, as if it had called socket(2) in the connection's namespace. */
static int usiw_data_create(const struct usiw_conn *conn, struct socket **sock)
{
	int family = usiw_tuple_is_ipv4(&conn->tuple) ? AF_INET : AF_INET6;
	struct net *net = maybe_get_net(conn->net);
	int ret;

	if (!net)
		return -ENETDOWN;
	ret = __sock_create(net, family, SOCK_DGRAM, IPPROTO_UDP, sock, 0);
	put_net(net);
	return ret;
}

static struct file *usiw_data_make(struct usiw_conn *conn)
{
	struct udp_tunnel_sock_cfg cfg = {
		.sk_user_data = conn,	/* taken out again while the connection is there */
		.encap_type = 1,
		.encap_rcv = usiw_data_encap_rcv,
		.encap_err_rcv = usiw_data_err_rcv,
	};
	struct socket *sock;
	struct file *file;
	int ret;

	ret = usiw_data_create(conn, &sock);
	if (ret)
		return ERR_PTR(ret);
	/* First of all: nothing of a handshake may get into the process's queue. */
	usiw_setup_udp_tunnel_sock(conn->net, sock, &cfg);
	ret = usiw_data_connect(conn, sock);
	if (ret) {
		rcu_assign_sk_user_data(sock->sk, NULL);
		sock_release(sock);
		return ERR_PTR(ret);
	}
	usiw_data_restrict(sock);
	sock_hold(sock->sk);
	conn->data_sk = sock->sk;
	spin_lock_bh(&conn->sock->lock);
	list_add(&conn->data_node, &conn->sock->data);
	spin_unlock_bh(&conn->sock->lock);
	file = sock_alloc_file(sock, O_NONBLOCK | O_CLOEXEC, NULL);
	if (IS_ERR(file))
		usiw_data_close(conn);	/* the socket has been released */
	return file;
}

/*
 * The connection ends, or gets another socket: this one neither sends nor receives any more,
 * and its port is free. What it has received can be read. conn->lock held, or the last
 * reference.
 */
void usiw_data_close(struct usiw_conn *conn)
{
	struct sock *sk = conn->data_sk;

	if (!sk)
		return;
	spin_lock_bh(&conn->sock->lock);
	list_del(&conn->data_node);
	spin_unlock_bh(&conn->sock->lock);
	conn->data_sk = NULL;
	/* Nothing is sent from here on (usiw_data_sendmsg), and nothing found by what comes. */
	rcu_assign_sk_user_data(sk, NULL);
	/* Also where the last file is just being closed: it is done once, under the table's lock. */
	sk->sk_prot->unhash(sk);
	sk_dst_reset(sk);
	sock_put(sk);
}

/*
 * Does the process have the file still? It closes it when it takes raw packets. conn->lock held.
 */
bool usiw_data_is_open(const struct usiw_conn *conn)
{
	return conn->data_sk && !sock_flag(conn->data_sk, SOCK_DEAD);
}

/*
 * The reader of the CONNECT record is about to get @conn's data socket: make it, and a place
 * for its descriptor. Only the process that made the QP gets one; who reads another's events
 * (a child of fork, somebody it gave the event file to) is given -EPERM. Return the descriptor,
 * to which usiw_data_install() or usiw_data_drop() gives a meaning, or -errno.
 */
int usiw_data_open(struct usiw_conn *conn, struct file **file)
{
	int fd;

	*file = NULL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	mutex_lock(&conn->lock);
	if (!conn->qp || !conn->cm.installed || conn->flushed)
		*file = ERR_PTR(-ECONNRESET);
	else if (conn->qp->owner != task_tgid(current))
		*file = ERR_PTR(-EPERM);
	if (!*file) {
		usiw_data_close(conn);	/* of a reader that could not be told */
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

void usiw_data_install(int fd, struct file *file)
{
	if (file)
		fd_install(fd, file);
}

void usiw_data_drop(int fd, struct file *file)
{
	if (!file)
		return;
	put_unused_fd(fd);
	fput(file);
}
