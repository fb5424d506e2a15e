/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Network: namespaces, interfaces, sockets, datagrams, routes, neighbours, notifiers. Headers of
 * the wire (IP, UDP, ICMP) are those of the host's C library.
 */
#ifndef MOCK_NET_H
#define MOCK_NET_H

#include "sync.h"

#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAX_ADDR_LEN		32
#define IFNAMSIZ		16
#undef IFF_LOOPBACK
#define IFF_LOOPBACK		0x8
#undef IFF_UP
#define IFF_UP			0x1

/* ---- Namespaces ---- */
struct net_device;

struct net {
	u32 hash_mix;
	struct net_device *loopback_dev;
	int genid_ipv4, genid_ipv6;
	unsigned char generic[8192] __attribute__((aligned(8)));	/* one module's */
};

static inline void *net_generic(const struct net *net, unsigned int id)
{
	(void)id;
	return (void *)net->generic;
}

typedef struct {
	struct net *net;
} possible_net_t;

static inline struct net *read_pnet(const possible_net_t *p)
{
	return p->net;
}

static inline void write_pnet(possible_net_t *p, struct net *net)
{
	p->net = net;
}

static inline bool net_eq(const struct net *a, const struct net *b)
{
	return a == b;
}

static inline u32 net_hash_mix(const struct net *net)
{
	return net->hash_mix;
}

static inline int rt_genid_ipv4(const struct net *net)
{
	return net->genid_ipv4;
}

static inline int rt_genid_ipv6(const struct net *net)
{
	return net->genid_ipv6;
}

typedef struct {
	u32 val;
} kuid_t;

kuid_t current_fsuid(void);

static inline u32 __kuid_val(kuid_t uid)
{
	return uid.val;
}

static inline bool uid_eq(kuid_t a, kuid_t b)
{
	return a.val == b.val;
}

struct pernet_operations {
	int (*init)(struct net *net);
	void (*exit)(struct net *net);
	unsigned int *id;
	size_t size;
};

int register_pernet_subsys(struct pernet_operations *ops);
void unregister_pernet_subsys(struct pernet_operations *ops);

/* ---- Interfaces ---- */
enum mock_reg_state {
	NETREG_REGISTERED = 1,
	NETREG_UNREGISTERING,
};

struct net_device {
	char name[IFNAMSIZ];
	int ifindex;
	unsigned short type;
	unsigned int flags;
	unsigned int mtu;
	unsigned char addr_len;
	u8 dev_addr[MAX_ADDR_LEN];
	int reg_state;
	bool carrier;
	bool vrf;			/* it is one */
	bool in_vrf;
	int refs;
	struct net *net;
	u32 speed;
	struct in6_addr addrs[4];	/* mapped IPv4 or IPv6 */
	struct net_device *vlan_of;
};

typedef struct {
	int held;
} netdevice_tracker;

struct net_device *dev_get_by_name(struct net *net, const char *name);
void netdev_hold(struct net_device *dev, netdevice_tracker *tracker, gfp_t flags);
void netdev_put(struct net_device *dev, netdevice_tracker *tracker);
void dev_put(struct net_device *dev);
void eth_hw_addr_set(struct net_device *dev, const u8 *addr);
int call_netdevice_notifiers(unsigned long event, struct net_device *dev);

static inline struct net *dev_net(const struct net_device *dev)
{
	return dev->net;
}

static inline bool is_vlan_dev(const struct net_device *dev)
{
	return dev->vlan_of;
}

static inline struct net_device *vlan_dev_real_dev(const struct net_device *dev)
{
	return dev->vlan_of;
}

static inline bool netif_is_l3_master(const struct net_device *dev)
{
	return dev->vrf;
}

static inline bool netif_is_l3_slave(const struct net_device *dev)
{
	return dev->in_vrf;
}

static inline bool netif_running(const struct net_device *dev)
{
	return dev->flags & IFF_UP;
}

static inline bool netif_carrier_ok(const struct net_device *dev)
{
	return dev->carrier;
}

void rtnl_lock(void);
void rtnl_unlock(void);
void mock_assert_rtnl(void);
#define ASSERT_RTNL() mock_assert_rtnl()

#define SPEED_UNKNOWN (-1)
struct ethtool_link_ksettings {
	struct {
		u32 speed;
	} base;
};
int __ethtool_get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *settings);

static inline void ether_addr_copy(u8 *to, const u8 *from)
{
	memcpy(to, from, ETH_ALEN);
}

static inline void eth_zero_addr(u8 *addr)
{
	memset(addr, 0, ETH_ALEN);
}

static inline bool is_zero_ether_addr(const u8 *addr)
{
	static const u8 zero[ETH_ALEN] = { 0 };

	return !memcmp(addr, zero, ETH_ALEN);
}

static inline bool ether_addr_equal(const u8 *a, const u8 *b)
{
	return !memcmp(a, b, ETH_ALEN);
}

void eth_random_addr(u8 *addr);
void addrconf_addr_eui48(u8 *eui, const u8 *mac);

/* ---- Notifiers ---- */
#define NOTIFY_DONE 0
enum mock_net_event {
	NETDEV_UP = 1,
	NETDEV_DOWN,
	NETDEV_CHANGE,
	NETDEV_CHANGEADDR,
	NETDEV_CHANGEMTU,
	NETDEV_CHANGENAME,
	NETDEV_UNREGISTER,
	NETEVENT_NEIGH_UPDATE,
};

struct notifier_block {
	int (*notifier_call)(struct notifier_block *nb, unsigned long event, void *ptr);
};

#define netdev_notifier_info_to_dev(ptr) ((struct net_device *)(ptr))
int register_netdevice_notifier(struct notifier_block *nb);
void unregister_netdevice_notifier(struct notifier_block *nb);
int register_inetaddr_notifier(struct notifier_block *nb);
void unregister_inetaddr_notifier(struct notifier_block *nb);
int register_inet6addr_notifier(struct notifier_block *nb);
void unregister_inet6addr_notifier(struct notifier_block *nb);
int register_netevent_notifier(struct notifier_block *nb);
void unregister_netevent_notifier(struct notifier_block *nb);

struct in_device {
	struct net_device *dev;
};

struct in_ifaddr {
	struct in_device *ifa_dev;
	__be32 ifa_local;
};

struct inet6_dev {
	struct net_device *dev;
};

struct inet6_ifaddr {
	struct inet6_dev *idev;
	struct in6_addr addr;
};

/* ---- Addresses ---- */
#define IPV6_ADDR_LINKLOCAL 0x20
static inline bool ipv6_addr_v4mapped(const struct in6_addr *a)
{
	return !a->s6_addr32[0] && !a->s6_addr32[1] && a->s6_addr32[2] == cpu_to_be32(0xffff);
}

static inline void ipv6_addr_set_v4mapped(__be32 ipv4, struct in6_addr *a)
{
	a->s6_addr32[0] = a->s6_addr32[1] = 0;
	a->s6_addr32[2] = cpu_to_be32(0xffff);
	a->s6_addr32[3] = ipv4;
}

static inline bool ipv6_addr_equal(const struct in6_addr *a, const struct in6_addr *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static inline bool ipv6_addr_any(const struct in6_addr *a)
{
	return ipv6_addr_equal(a, &in6addr_any);
}

static inline bool ipv6_addr_is_multicast(const struct in6_addr *a)
{
	return a->s6_addr[0] == 0xff;
}

static inline int ipv6_addr_type(const struct in6_addr *a)
{
	return a->s6_addr[0] == 0xfe && (a->s6_addr[1] & 0xc0) == 0x80 ? IPV6_ADDR_LINKLOCAL : 0;
}

static inline bool ipv4_is_zeronet(__be32 a)
{
	return !(be32_to_cpu(a) >> 24);
}

static inline bool ipv4_is_multicast(__be32 a)
{
	return be32_to_cpu(a) >> 28 == 0xe;
}

static inline bool ipv4_is_lbcast(__be32 a)
{
	return a == 0xffffffffu;
}

struct net_device *__ip_dev_find(struct net *net, __be32 addr, bool hold);
struct net_device *dev_get_by_index_rcu(struct net *net, int ifindex);
struct net_device *ipv6_dev_find(struct net *net, const struct in6_addr *addr, struct net_device *dev);
int ipv6_chk_addr(struct net *net, const struct in6_addr *addr, const struct net_device *dev,
		  int strict);

/* ---- Routes and neighbours ---- */
struct xfrm_state {
	int unused;
};

struct dst_entry;
struct sk_buff;
struct sock;
struct dst_ops {
	void (*update_pmtu)(struct dst_entry *dst, struct sock *sk, struct sk_buff *skb, u32 mtu,
			    bool confirm_neigh);
};

struct dst_entry {
	struct net_device *dev;
	const struct dst_ops *ops;
	int refs;
	short error;
	const struct xfrm_state *xfrm;
	const void *lwtstate;
};

#define RTN_UNICAST		1
#define RTN_LOCAL		2
#define RTN_BLACKHOLE		6
struct rtable {
	struct dst_entry dst;
	u8 rt_type;
};

struct flowi4 {
	__be32 saddr, daddr;
	u8 flowi4_tos, flowi4_proto;
	kuid_t flowi4_uid;
	int flowi4_oif;
	__be16 fl4_sport, fl4_dport;
};

struct flowi6 {
	struct in6_addr saddr, daddr;
	__be32 flowlabel;
	u8 flowi6_proto;
	kuid_t flowi6_uid;
	int flowi6_oif;
	__be16 fl6_sport, fl6_dport;
};

#undef IPTOS_TOS_MASK
#define IPTOS_TOS_MASK		0x1e
#define INET_ECN_MASK		3
#define ip6_make_flowinfo(tclass, label) cpu_to_be32((u32)(tclass) << 20 | (label))
struct sock;
struct flowi;
struct rtable *__ip_route_output_key(struct net *net, struct flowi4 *fl4);
struct dst_entry *ip6_route_output(struct net *net, const struct sock *sk, struct flowi6 *fl6);
#define flowi4_to_flowi(fl4)	((const struct flowi *)(fl4))
#define flowi6_to_flowi(fl6)	((const struct flowi *)(fl6))
/* Takes the reference of the caller. Returns one to the same or another route, or an error. */
struct dst_entry *xfrm_lookup(struct net *net, struct dst_entry *dst, const struct flowi *fl,
			      const struct sock *sk, int flags);
void dst_hold(struct dst_entry *dst);
void ip_rt_put(struct rtable *rt);
void dst_release(struct dst_entry *dst);
u32 dst_mtu(const struct dst_entry *dst);
#define ip4_dst_hoplimit(dst)	((void)(dst), 64)
#define ip6_dst_hoplimit(dst)	((void)(dst), 64)

#define NUD_VALID 0xde
struct neigh_table {
	u32 key_len;
};

struct neighbour {
	u8 nud_state;
	struct net_device *dev;
	struct neigh_table *tbl;
	u8 ha[MAX_ADDR_LEN];
	int refs;
	u8 primary_key[16];
};

struct neighbour *dst_neigh_lookup(const struct dst_entry *dst, const void *addr);
void neigh_ha_snapshot(u8 *ha, const struct neighbour *n, const struct net_device *dev);
void neigh_event_send(struct neighbour *n, void *skb);
void neigh_release(struct neighbour *n);

#define CHECKSUM_NONE		0
#define CHECKSUM_UNNECESSARY	1
#define CHECKSUM_PARTIAL	3

/* ---- Datagrams: a head of exactly head_len bytes, and a page with the rest ---- */
struct sk_buff {
	struct net_device *dev;
	u8 *data;		/* the head; its first byte is at the UDP header, or ICMP's IP header */
	unsigned int len;	/* from data on, with the page */
	unsigned int head_len;
	u8 *page;
	u8 *network, *transport;	/* apart from data, each with its own length */
	unsigned int network_len, transport_len;
	u8 ip_summed, csum_valid;
	struct sock *sk;
	void (*destructor)(struct sk_buff *skb);
	unsigned int gso_size;
	struct { unsigned int frag_max_size; } cb;	/* IPv4 and IPv6 */
	bool secpath;
};
#define IPCB(skb)		(&(skb)->cb)
#define IP6CB(skb)		(&(skb)->cb)
#define secpath_exists(skb)	((skb)->secpath)
#define skb_shinfo(skb)		(skb)
#define skb_is_gso(skb)		((skb)->gso_size != 0)

static inline int inet6_iif(const struct sk_buff *skb)
{
	return skb->dev->ifindex;
}

void *mock_header(const struct sk_buff *skb, bool network, unsigned int size);
#define ip_hdr(skb)		((struct iphdr *)mock_header(skb, true, sizeof(struct iphdr)))
#define ipv6_hdr(skb)		((struct ipv6hdr *)mock_header(skb, true, sizeof(struct ipv6hdr)))
#define udp_hdr(skb)		((struct udphdr *)mock_header(skb, false, sizeof(struct udphdr)))
#define icmp_hdr(skb)		((struct icmphdr *)mock_header(skb, false, sizeof(struct icmphdr)))
#define icmp6_hdr(skb)		((struct icmp6hdr *)mock_header(skb, false, sizeof(struct icmp6hdr)))
void *skb_header_pointer(const struct sk_buff *skb, int at, int len, void *buffer);
int skb_copy_bits(const struct sk_buff *skb, int at, void *to, int len);
void consume_skb(struct sk_buff *skb);
void kfree_skb(struct sk_buff *skb);
void skb_orphan(struct sk_buff *skb);
void sock_efree(struct sk_buff *skb);

static inline void __skb_incr_checksum_unnecessary(struct sk_buff *skb)
{
	skb->ip_summed = CHECKSUM_UNNECESSARY;
}

/* ---- Sockets ---- */
#define PF_INET			2
#define PF_INET6		10
#define TCP_ESTABLISHED		1
#define TCP_CLOSE		7
struct sock;
struct proto {
	int (*sendmsg)(struct sock *sk, struct msghdr *msg, size_t len);
};

#define SOCK_BINDPORT_LOCK	8
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT	24
#endif
struct sock {
	refcount_t sk_refcnt;
	int sk_reuse;
	int sk_reuseport;
	int sk_state;
	int sk_family;
	int sk_bound_dev_if;
	unsigned int sk_userlocks;
	unsigned long sk_flags;
	void *sk_user_data;
	const struct proto *sk_prot;
	struct in6_addr sk_v6_rcv_saddr, sk_v6_daddr;
	struct inet_sock {
		__be16 inet_sport, inet_dport;
		__be32 inet_saddr, inet_rcv_saddr, inet_daddr;
		u16 inet_num;
		__u8 tos;
		bool bind_address_no_port;
	} inet;
	struct ipv6_pinfo {
		struct in6_addr saddr;
		__u8 tclass;
	} inet6;
	int gro;
	u32 path_mtu;	/* the latest that ICMP has reported; 0: none */
};

#define inet_sk(sk)	(&(sk)->inet)
#define inet6_sk(sk)	(&(sk)->inet6)

struct inode {
	unsigned short i_mode;
	loff_t i_size;
};

typedef struct {
	void *kernel, *user;
} sockptr_t;
#define KERNEL_SOCKPTR(p)	((sockptr_t){ (p), NULL })

/* Kernel memory only, because no test passes user memory. */
static inline int copy_from_sockptr(void *to, sockptr_t from, size_t size)
{
	if (!from.kernel)
		return -EFAULT;
	memcpy(to, from.kernel, size);
	return 0;
}

struct socket;
struct file;
struct poll_table_struct;
struct proto_ops {
	int family;
	struct module *owner;
	int (*release)(struct socket *sock);
	int (*bind)(struct socket *sock, struct sockaddr *addr, int len);
	int (*connect)(struct socket *sock, struct sockaddr *addr, int len, int flags);
	int (*socketpair)(struct socket *one, struct socket *other);
	int (*accept)(struct socket *sock);
	int (*getname)(struct socket *sock, struct sockaddr *addr, int peer);
	__poll_t (*poll)(struct file *file, struct socket *sock, struct poll_table_struct *wait);
	int (*ioctl)(struct socket *sock, unsigned int cmd, unsigned long arg);
	int (*gettstamp)(struct socket *sock, void *stamp, bool timeval, bool time32);
	int (*listen)(struct socket *sock, int len);
	int (*shutdown)(struct socket *sock, int how);
	int (*setsockopt)(struct socket *sock, int level, int name, sockptr_t value, unsigned int len);
	int (*getsockopt)(struct socket *sock, int level, int name, char *value, int *len);
	int (*sendmsg)(struct socket *sock, struct msghdr *msg, size_t len);
	int (*recvmsg)(struct socket *sock, struct msghdr *msg, size_t len, int flags);
	int (*mmap)(struct file *file, struct socket *sock, void *vma);
#if USIW_MOCK_KERNEL < 605
	long (*sendpage)(struct socket *sock, void *page, int offset, size_t size, int flags);
#endif
};

struct socket {
	struct sock *sk;
	const struct proto_ops *ops;
	unsigned long flags;
};

#if USIW_MOCK_KERNEL >= 608
#define SOCK_CUSTOM_SOCKOPT	6
#endif
#ifndef SOL_UDP
#define SOL_UDP			17
#endif

/* The range from which a port is chosen for a socket that names none. */
static inline void inet_get_local_port_range(const struct net *net, int *low, int *high)
{
	(void)net;
	*low = 32768;
	*high = 60999;
}

struct kvec {
	void *iov_base;
	size_t iov_len;
};

#undef CMSG_DATA
#define CMSG_DATA(cmsg) ((void *)((struct cmsghdr *)(cmsg) + 1))

struct udp_tunnel_sock_cfg {
	void *sk_user_data;
	u8 encap_type;
	int (*encap_rcv)(struct sock *sk, struct sk_buff *skb);
#if USIW_MOCK_KERNEL >= 603
	void (*encap_err_rcv)(struct sock *sk, struct sk_buff *skb, int err, __be16 port, u32 info,
			      u8 *payload);
#else
	void (*encap_err_rcv)(struct sock *sk, struct sk_buff *skb, unsigned int udp_offset);
#endif
};

int __sock_create(struct net *net, int family, int type, int protocol, struct socket **sock, int kern);
struct file *sock_alloc_file(struct socket *sock, int flags, const char *name);
int kernel_connect(struct socket *sock, struct sockaddr *addr, int len, int flags);
int sock_no_bind(struct socket *sock, struct sockaddr *addr, int len);
int sock_no_connect(struct socket *sock, struct sockaddr *addr, int len, int flags);
int sock_no_socketpair(struct socket *one, struct socket *other);
int sock_no_accept(struct socket *sock);
int sock_no_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg);
int sock_no_listen(struct socket *sock, int len);
int sock_no_shutdown(struct socket *sock, int how);
int sock_common_setsockopt(struct socket *sock, int level, int name, sockptr_t value, unsigned int len);
int sock_common_getsockopt(struct socket *sock, int level, int name, char *value, int *len);
int sock_no_mmap(struct file *file, struct socket *sock, void *vma);
void sock_hold(struct sock *sk);
void sock_put(struct sock *sk);
void lock_sock(struct sock *sk);
void release_sock(struct sock *sk);
#define SOCK_DEAD		0
#define SOCK_LOCALROUTE		1
#define SOCK_RCU_FREE		2
bool sock_flag(const struct sock *sk, int flag);
void sock_set_flag(struct sock *sk, int flag);
/* Returns true if the socket is in none of the tables by which UDP finds sockets. */
bool sk_unhashed(const struct sock *sk);
void sk_dst_reset(struct sock *sk);
struct dst_entry *sk_dst_get(const struct sock *sk);
struct net *maybe_get_net(struct net *net);
void put_net(struct net *net);
#define CMSG_OK(msg, cmsg) \
	((cmsg)->cmsg_len >= sizeof(struct cmsghdr) && \
	 (cmsg)->cmsg_len <= (size_t)((char *)(msg)->msg_control + (msg)->msg_controllen - (char *)(cmsg)))
#define for_each_cmsghdr(cmsg, msg) \
	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg))

int sock_create_kern(struct net *net, int family, int type, int protocol, struct socket **sock);
void sock_release(struct socket *sock);
int kernel_bind(struct socket *sock, struct sockaddr *addr, int len);
int ip6_sock_set_v6only(struct sock *sk);
int kernel_sendmsg(struct socket *sock, struct msghdr *msg, struct kvec *vec, size_t n, size_t len);
int kernel_sock_shutdown(struct socket *sock, int how);
void setup_udp_tunnel_sock(struct net *net, struct socket *sock, struct udp_tunnel_sock_cfg *cfg);
#define rcu_dereference(p)	(mock_check_rcu(#p), (p))
#define rcu_access_pointer(p)	(p)
#define rcu_dereference_protected(p, cond) (lockdep_assert(cond), (p))
#define rcu_assign_pointer(p, v) ((void)((p) = (v)))
#define rcu_replace_pointer(p, v, cond) ({	\
	__typeof__(p) old_ = (p);		\
	lockdep_assert(cond);			\
	(p) = (v);				\
	old_;					\
})
#define rcu_dereference_sk_user_data(sk) (mock_check_rcu("sk_user_data"), (sk)->sk_user_data)
#define rcu_assign_sk_user_data(sk, p) ((void)((sk)->sk_user_data = (p)))

#ifdef __cplusplus
}
#endif

#endif /* MOCK_NET_H */
