// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One host with lo, eth0 and eth1. What eth0's address sends to eth1's leaves by eth0, as if they
// were two hosts: so both ends of a connection live in one module.
#include <algorithm>
#include <memory>

#include "state.h"

namespace {

struct Socket {
  struct socket sock{};
  ::sock sk{};
  net* where = nullptr;
  bool ipv4 = false;
  bool bound = false;
  bool down = false;
  bool connected = false;
  bool released = false;  ///< the struct sock goes with its last reference
  bool locked = false;
  int refs = 1;
  int queued = 0;
  in6_addr addr{}, peer{};
  __be16 port = 0, peer_port = 0;
  udp_tunnel_sock_cfg cfg{};
};

struct Neighbour {
  neighbour n;
  neigh_table table;
};

net_device netdevs[3];
std::vector<Socket*> sockets;
std::deque<mock_datagram> sent;
std::vector<pernet_operations*> pernet;
enum Chain { kNetdev, kInet, kInet6, kNetevent, kChains };
std::vector<notifier_block*> chains[kChains];
bool rtnl_held;

in6_addr mapped(u32 host_order) {
  in6_addr a;
  ipv6_addr_set_v4mapped(cpu_to_be32(host_order), &a);
  return a;
}

in6_addr global6(u8 last) {
  in6_addr a{};
  a.s6_addr[0] = 0x20;
  a.s6_addr[1] = 0x01;
  a.s6_addr[2] = 0x0d;
  a.s6_addr[3] = 0xb8;
  a.s6_addr[15] = last;
  return a;
}

in6_addr link_local(u8 last) {
  in6_addr a{};
  a.s6_addr[0] = 0xfe;
  a.s6_addr[1] = 0x80;
  a.s6_addr[15] = last;
  return a;
}

Socket* socket_of(const ::sock* sk) {
  for (Socket* s : sockets)
    if (&s->sk == sk) return s;
  mock_violation("use of a socket that was released");
  return nullptr;
}

bool has(const net_device& dev, const in6_addr& addr) {
  for (const in6_addr& own : dev.addrs)
    if (!ipv6_addr_any(&own) && ipv6_addr_equal(&own, &addr)) return true;
  return false;
}

net_device* owner_of(const in6_addr& addr) {
  for (net_device& dev : netdevs)
    if (has(dev, addr)) return &dev;
  return nullptr;
}

bool conflict(const Socket& a, const Socket& b) {
  return a.bound && b.bound && a.where == b.where && a.ipv4 == b.ipv4 && a.port == b.port &&
         (ipv6_addr_any(&a.addr) || ipv6_addr_any(&b.addr) || ipv6_addr_equal(&a.addr, &b.addr)) &&
         !(a.sk.sk_reuse && b.sk.sk_reuse) &&
         !(a.sk.sk_reuseport && b.sk.sk_reuseport && a.sock.inode.i_uid.val == b.sock.inode.i_uid.val);
}

/// The one that is connected to the sender, else as receiver().
Socket* receiver_from(const mock_datagram& d);

Socket* receiver(const in6_addr& addr, __be16 port) {
  Socket* found = nullptr;
  for (Socket* s : sockets) {
    if (!s->bound || s->connected || s->down || s->port != port || s->ipv4 != ipv6_addr_v4mapped(&addr)) continue;
    if (ipv6_addr_equal(&s->addr, &addr)) return s;
    if (ipv6_addr_any(&s->addr)) found = s;
  }
  return found;
}

Socket* receiver_from(const mock_datagram& d) {
  for (Socket* s : sockets)
    if (s->bound && s->connected && s->port == d.to_port && s->peer_port == d.from_port && ipv6_addr_equal(&s->addr, &d.to) &&
        ipv6_addr_equal(&s->peer, &d.from))
      return s;
  return receiver(d.to, d.to_port);
}

rtable* new_route(net_device* dev, u8 type) {
  auto* rt = new rtable{};
  rt->dst.dev = dev;
  rt->dst.refs = 1;
  rt->dst.lwtstate = mock_route_encap;
  rt->rt_type = type;
  mock_routes++;
  return rt;
}

/// The route from one address to another: by the interface that has the first one.
rtable* find_route(const in6_addr& from, const in6_addr& to, int oif = 0) {
  if (mock_on_route) mock_on_route();
  if (mock_fails(MOCK_NET, "route")) return static_cast<rtable*>(ERR_PTR(-ENETUNREACH));
  net_device* dev = owner_of(from);
  for (net_device& other : netdevs)
    if (other.ifindex == oif && has(other, from)) dev = &other;
  if (!dev) return static_cast<rtable*>(ERR_PTR(-EINVAL));
  if (owner_of(to) == dev) return new_route(&netdevs[0], RTN_LOCAL);
  if (mock_route_dev) dev = mock_route_dev;
  return new_route(dev, to.s6_addr[15] == 66 ? RTN_BLACKHOLE : RTN_UNICAST);
}

int add(Chain chain, notifier_block* nb) {
  mock_might_sleep("register_notifier");
  if (mock_fails(MOCK_CORE, "register_notifier")) return -ENOMEM;
  chains[chain].push_back(nb);
  return 0;
}

void remove(Chain chain, notifier_block* nb) {
  mock_might_sleep("unregister_notifier");
  if (!std::erase(chains[chain], nb)) mock_violation("notifier was not registered");
}

void call(Chain chain, unsigned long event, void* ptr) {
  for (notifier_block* nb : chains[chain]) nb->notifier_call(nb, event, ptr);
}

/// An skb whose head has exactly the size it says, so that ASan sees who reads beyond it.
class Skb {
 public:
  Skb(const mock_datagram& d, const void* head, unsigned head_len, unsigned linear) {
    const unsigned total = head_len + d.len;
    const unsigned in_head = std::min(std::max(linear, head_len), total);
    std::vector<u8> all(total);
    memcpy(all.data(), head, head_len);
    memcpy(all.data() + head_len, d.data, d.len);
    auto* copy = new sk_buff{};
    copy->data = static_cast<u8*>(malloc(in_head));
    memcpy(copy->data, all.data(), in_head);
    copy->page = static_cast<u8*>(malloc(total - in_head + 1));
    memcpy(copy->page, all.data() + in_head, total - in_head);
    copy->len = total;
    copy->head_len = in_head;
    skb = copy;
  }
  sk_buff* skb;
};

u8* header(sk_buff* skb, bool network, const void* data, unsigned size) {
  auto* copy = static_cast<u8*>(malloc(size));
  memcpy(copy, data, size);
  (network ? skb->network : skb->transport) = copy;
  (network ? skb->network_len : skb->transport_len) = size;
  return copy;
}

void ip_header(sk_buff* skb, const in6_addr& from, const in6_addr& to) {
  if (ipv6_addr_v4mapped(&from)) {
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.saddr = from.s6_addr32[3];
    ip.daddr = to.s6_addr32[3];
    header(skb, true, &ip, sizeof(ip));
  } else {
    ipv6hdr ip{};
    ip.version = 6;
    ip.nexthdr = IPPROTO_UDP;
    memcpy(&ip.saddr, &from, sizeof(from));
    memcpy(&ip.daddr, &to, sizeof(to));
    header(skb, true, &ip, sizeof(ip));
  }
}

void udp_unhash(::sock* sk) { socket_of(sk)->bound = false; }

int udp_sendmsg(::sock* sk, msghdr*, size_t len) {
  Socket* s = socket_of(sk);
  if (!s->connected) return -EDESTADDRREQ;
  mock_datagram d{};
  d.from = s->addr;
  d.to = s->peer;
  d.from_port = s->port;
  d.to_port = s->peer_port;
  d.len = len;
  sent.push_back(d);
  return len;
}

const proto udp_prot = {udp_unhash, udp_sendmsg};
const proto_ops inet_ops = [] {
  proto_ops ops{};
  ops.release = inet_release;
  return ops;
}();

}  // namespace

namespace mock {

void reset_net() {
  for (Socket* s : sockets) delete s;
  sockets.clear();
  sent.clear();
  pernet.clear();
  for (auto& chain : chains) chain.clear();
  init_net = {.hash_mix = 7, .loopback_dev = &netdevs[0]};
  for (int i = 0; i < 3; i++) {
    net_device& dev = netdevs[i];
    dev = {};
    snprintf(dev.name, sizeof(dev.name), i ? "eth%d" : "lo", i - 1);
    dev.ifindex = i + 1;
    dev.type = i ? ARPHRD_ETHER : ARPHRD_LOOPBACK;
    dev.flags = IFF_UP | (i ? 0 : IFF_LOOPBACK);
    dev.mtu = i ? 1500 : 65536;
    dev.addr_len = ETH_ALEN;
    dev.reg_state = NETREG_REGISTERED;
    dev.carrier = true;
    dev.net = &init_net;
    dev.speed = 10000;
    if (i) {
      dev.dev_addr[0] = 2;
      dev.dev_addr[5] = i;
      dev.addrs[0] = mapped(0xc0000200 + i);
      dev.addrs[1] = global6(i);
      dev.addrs[2] = link_local(i);
    } else {
      dev.addrs[0] = mapped(0x7f000001);
      dev.addrs[1] = in6addr_loopback;
    }
  }
  mock_neigh_known = true;
  mock_neigh_used = 0;
  const u8 mac[ETH_ALEN] = {2, 0, 0, 0, 0, 0x77};
  memcpy(mock_neigh_mac, mac, sizeof(mac));
  mock_foreign_port = 0;
  mock_on_route = mock_on_random = nullptr;
  mock_route_dev = nullptr;
  mock_route_encap = nullptr;
  mock_route_mtu = 0;
  mock_ipsec = 0;
  mock_routes = mock_neighbours = mock_sockets = 0;
}

}  // namespace mock

extern "C" {

struct net init_net;
net_device* mock_route_dev;
const void* mock_route_encap;
unsigned mock_route_mtu;
int mock_ipsec;
bool mock_neigh_known = true;
u8 mock_neigh_mac[ETH_ALEN];
unsigned mock_neigh_used;
int mock_routes, mock_neighbours, mock_sockets, mock_foreign_port;
void (*mock_on_route)(void);

// ---- Namespaces, interfaces ----

int register_pernet_subsys(struct pernet_operations* ops) {
  mock_might_sleep("register_pernet_subsys");
  if (mock_fails(MOCK_CORE, "register_pernet_subsys")) return -ENOMEM;
  *ops->id = 1;
  if (ops->size > sizeof init_net.generic) mock_violation("no room for what is kept for each netns");
  std::fill(std::begin(init_net.generic), std::end(init_net.generic), u8{0});
  pernet.push_back(ops);
  return 0;
}

void unregister_pernet_subsys(struct pernet_operations* ops) {
  mock_might_sleep("unregister_pernet_subsys");
  std::erase(pernet, ops);
}

void mock_net_exit(struct net* net) {
  for (pernet_operations* ops : pernet) ops->exit(net);
}

struct net_device* mock_netdev(const char* name) {
  for (net_device& dev : netdevs)
    if (!strcmp(dev.name, name)) return &dev;
  return nullptr;
}

struct net_device* dev_get_by_name(struct net*, const char* name) {
  net_device* dev = mock_netdev(name);
  if (dev) dev->refs++;
  return dev;
}

void netdev_hold(struct net_device* dev, netdevice_tracker* tracker, gfp_t) {
  dev->refs++;
  tracker->held++;
}

void netdev_put(struct net_device* dev, netdevice_tracker* tracker) {
  if (--dev->refs < 0 || --tracker->held < 0) mock_violation("netdev_put without hold");
}

void dev_put(struct net_device* dev) {
  if (--dev->refs < 0) mock_violation("dev_put without hold");
}

void eth_hw_addr_set(struct net_device* dev, const u8* addr) {
  if (!rtnl_held) mock_violation("eth_hw_addr_set without RTNL");
  memcpy(dev->dev_addr, addr, ETH_ALEN);
}

int call_netdevice_notifiers(unsigned long event, struct net_device* dev) {
  if (!rtnl_held) mock_violation("call_netdevice_notifiers without RTNL");
  call(kNetdev, event, dev);
  return 0;
}

void rtnl_lock(void) {
  mock_might_sleep("rtnl_lock");
  if (rtnl_held) mock_violation("RTNL is held already: deadlock");
  rtnl_held = true;
}

void rtnl_unlock(void) { rtnl_held = false; }

void mock_assert_rtnl(void) {
  if (!rtnl_held) mock_violation("RTNL is not held");
}

int __ethtool_get_link_ksettings(struct net_device* dev, struct ethtool_link_ksettings* settings) {
  if (!rtnl_held) mock_violation("ethtool without RTNL");
  settings->base.speed = dev->speed;
  return dev->speed ? 0 : -EOPNOTSUPP;
}

void eth_random_addr(u8* addr) {
  const u8 made[ETH_ALEN] = {2, 9, 9, 9, 9, static_cast<u8>(get_random_u32())};
  memcpy(addr, made, ETH_ALEN);
}

void addrconf_addr_eui48(u8* eui, const u8* mac) {
  memcpy(eui, mac, 3);
  eui[3] = 0xff;
  eui[4] = 0xfe;
  memcpy(eui + 5, mac + 3, 3);
}

void (*mock_on_random)(void);

u32 get_random_u32(void) {
  if (mock_on_random) mock_on_random();
  static u32 state = 12345;
  return state = state * 1664525 + 1013904223;
}

// ---- Notifiers ----

int register_netdevice_notifier(struct notifier_block* nb) { return add(kNetdev, nb); }
void unregister_netdevice_notifier(struct notifier_block* nb) { remove(kNetdev, nb); }
int register_inetaddr_notifier(struct notifier_block* nb) { return add(kInet, nb); }
void unregister_inetaddr_notifier(struct notifier_block* nb) { remove(kInet, nb); }
int register_inet6addr_notifier(struct notifier_block* nb) { return add(kInet6, nb); }
void unregister_inet6addr_notifier(struct notifier_block* nb) { remove(kInet6, nb); }
int register_netevent_notifier(struct notifier_block* nb) { return add(kNetevent, nb); }
void unregister_netevent_notifier(struct notifier_block* nb) { remove(kNetevent, nb); }

void mock_notify_netdev(struct net_device* dev, unsigned long event) {
  rtnl_lock();
  call(kNetdev, event, dev);
  rtnl_unlock();
}

void mock_remove_addr(struct net_device* dev, const struct in6_addr* addr) {
  for (in6_addr& own : dev->addrs)
    if (ipv6_addr_equal(&own, addr)) own = {};
  if (ipv6_addr_v4mapped(addr)) {
    in_device in{dev};
    in_ifaddr ifa{&in, addr->s6_addr32[3]};
    call(kInet, NETDEV_DOWN, &ifa);
  } else {
    inet6_dev in{dev};
    inet6_ifaddr ifa{&in, *addr};
    mock_softirq_begin();
    call(kInet6, NETDEV_DOWN, &ifa);
    mock_softirq_end();
  }
}

void mock_neigh_update(struct net_device* dev, const struct in6_addr* addr, const u8* mac) {
  Neighbour entry{};
  const bool ipv4 = ipv6_addr_v4mapped(addr);
  entry.table.key_len = ipv4 ? 4 : 16;
  entry.n.nud_state = NUD_VALID;
  entry.n.dev = dev;
  entry.n.tbl = &entry.table;
  memcpy(entry.n.ha, mac, ETH_ALEN);
  memcpy(entry.n.primary_key, ipv4 ? &addr->s6_addr32[3] : &addr->s6_addr32[0], entry.table.key_len);
  mock_softirq_begin();
  call(kNetevent, NETEVENT_NEIGH_UPDATE, &entry.n);
  mock_softirq_end();
}

// ---- Addresses, routes, neighbours ----

struct net_device* __ip_dev_find(struct net*, __be32 addr, bool) {
  mock_check_rcu("__ip_dev_find");
  return owner_of(mapped(be32_to_cpu(addr)));
}

int ipv6_chk_addr(struct net*, const struct in6_addr* addr, const struct net_device* dev, int) {
  return has(*dev, *addr);
}

struct rtable* __ip_route_output_key(struct net*, struct flowi4* fl4) {
  return find_route(mapped(be32_to_cpu(fl4->saddr)), mapped(be32_to_cpu(fl4->daddr)));
}

struct dst_entry* ip6_route_output(struct net*, const sock*, struct flowi6* fl6) {
  rtable* rt = find_route(fl6->saddr, fl6->daddr, fl6->flowi6_oif);
  if (!IS_ERR(rt)) return &rt->dst;
  const int error = PTR_ERR(rt);
  rt = new_route(&netdevs[0], RTN_UNICAST);
  rt->dst.error = error;
  return &rt->dst;
}

struct dst_entry* xfrm_lookup(struct net*, struct dst_entry* dst, const struct flowi*, const struct sock*, int) {
  static const xfrm_state state{};
  if (mock_ipsec == 0 || (dst->dev->flags & IFF_LOOPBACK)) return dst;
  dst_entry* other = nullptr;
  if (mock_ipsec > 0) {
    other = &new_route(dst->dev, RTN_UNICAST)->dst;
    other->xfrm = &state;
  }
  dst_release(dst);
  return other ? other : static_cast<dst_entry*>(ERR_PTR(mock_ipsec));
}

void dst_hold(struct dst_entry* dst) { dst->refs++; }

void dst_release(struct dst_entry* dst) {
  if (--dst->refs < 0) mock_violation("route released twice");
  if (dst->refs) return;
  mock_routes--;
  delete container_of(dst, struct rtable, dst);
}

void ip_rt_put(struct rtable* rt) { dst_release(&rt->dst); }
u32 dst_mtu(const struct dst_entry* dst) {
  const u32 path = mock_route_mtu ? mock_route_mtu : dst->dev->mtu;
  return dst->xfrm ? path - 40 : path;  // as ESP would
}

struct neighbour* dst_neigh_lookup(const struct dst_entry* dst, const void* addr) {
  if (mock_fails(MOCK_NET, "neighbour")) return nullptr;
  auto* entry = new Neighbour{};
  entry->table.key_len = 4;
  entry->n.tbl = &entry->table;
  entry->n.dev = dst->dev;
  entry->n.nud_state = mock_neigh_known ? NUD_VALID : 0;
  memcpy(entry->n.primary_key, addr, 4);
  memcpy(entry->n.ha, mock_neigh_mac, ETH_ALEN);
  entry->n.refs = 1;
  mock_neighbours++;
  return &entry->n;
}

void neigh_ha_snapshot(u8* ha, const struct neighbour* n, const struct net_device* dev) {
  memcpy(ha, n->ha, dev->addr_len);
}

void neigh_event_send(struct neighbour*, void*) { mock_neigh_used++; }

void neigh_release(struct neighbour* n) {
  mock_neighbours--;
  delete container_of(n, Neighbour, n);
}

// ---- Sockets ----

int sock_create_kern(struct net* net, int family, int type, int protocol, struct socket** sock) {
  return __sock_create(net, family, type, protocol, sock, 1);
}

int __sock_create(struct net* net, int family, int, int, struct socket** sock, int) {
  mock_might_sleep("sock_create");
  if (mock_fails(MOCK_SOCKET, "sock_create")) return -ENOBUFS;
  auto* s = new Socket;
  s->sock.sk = &s->sk;
  s->sock.ops = &inet_ops;
  s->sock.inode.i_uid.val = 1000;
  s->sk.sk_family = family;
  s->sk.sk_state = TCP_CLOSE;
  s->sk.sk_prot = &udp_prot;
  s->where = net;
  mock_modules++;  // the family's, which counts as the module's here
  s->ipv4 = family == AF_INET;
  sockets.push_back(s);
  mock_sockets++;
  *sock = &s->sock;
  return 0;
}

int inet_release(struct socket* sock) {
  Socket* s = socket_of(sock->sk);
  if (!s) return 0;
  if (s->released) mock_violation("socket released twice");
  s->released = true;
  udp_unhash(&s->sk);
  sock_put(&s->sk);
  return 0;
}

int inet6_release(struct socket* sock) { return inet_release(sock); }

void sock_release(struct socket* sock) {
  mock_might_sleep("sock_release");
  const proto_ops* ops = sock->ops;
  ops->release(sock);
  module_put(ops->owner);
}

void sock_hold(struct sock* sk) { socket_of(sk)->refs++; }

void sock_put(struct sock* sk) {
  Socket* s = socket_of(sk);
  if (!s || --s->refs) return;
  if (!s->released) mock_violation("last reference of a socket that is open");
  std::erase(sockets, s);
  mock_sockets--;
  delete s;
}

void lock_sock(struct sock* sk) {
  mock_might_sleep("lock_sock");
  if (socket_of(sk)->locked) mock_violation("lock_sock: deadlock");
  socket_of(sk)->locked = true;
}

void release_sock(struct sock* sk) { socket_of(sk)->locked = false; }
bool sock_flag(const struct sock* sk, int) { return socket_of(sk)->released; }

int __udp_disconnect(struct sock* sk, int) {
  Socket* s = socket_of(sk);
  if (!s->locked) mock_violation("__udp_disconnect without the lock");
  s->connected = false;
  sk->sk_state = TCP_CLOSE;
  return 0;
}

int kernel_connect(struct socket* sock, struct sockaddr* addr, int, int) {
  mock_might_sleep("kernel_connect");
  Socket* s = socket_of(sock->sk);
  if (mock_fails(MOCK_SOCKET, "kernel_connect")) return -ENETUNREACH;
  if (!s->bound) mock_violation("connect of a socket that has no port: it gets any");
  if (addr->sa_family == AF_INET) {
    const auto* sin = reinterpret_cast<sockaddr_in*>(addr);
    s->peer = mapped(be32_to_cpu(sin->sin_addr.s_addr));
    s->peer_port = sin->sin_port;
  } else {
    const auto* sin6 = reinterpret_cast<sockaddr_in6*>(addr);
    if ((ipv6_addr_type(&sin6->sin6_addr) & IPV6_ADDR_LINKLOCAL) && !sin6->sin6_scope_id)
      mock_violation("link-local address without a link");
    s->peer = sin6->sin6_addr;
    s->peer_port = sin6->sin6_port;
  }
  s->connected = true;
  s->sk.sk_state = TCP_ESTABLISHED;
  return 0;
}

static int socket_file_release(struct inode*, struct file* file) {
  sock_release(static_cast<struct socket*>(file->private_data));
  return 0;
}

struct file* sock_alloc_file(struct socket* sock, int flags, const char*) {
  static const file_operations fops = {nullptr, nullptr, nullptr, socket_file_release, nullptr};
  file* made = anon_inode_getfile("socket", &fops, sock, flags);
  if (IS_ERR(made)) sock_release(sock);
  return made;
}

struct socket* mock_socket(int fd) {
  file* f = mock_file(fd);
  return f && f->f_op->release == socket_file_release ? static_cast<struct socket*>(f->private_data) : nullptr;
}

int mock_queued(const struct socket* sock) { return socket_of(sock->sk)->queued; }

int inet_getname(struct socket*, struct sockaddr*, int) { return 0; }
int inet6_getname(struct socket*, struct sockaddr*, int) { return 0; }
__poll_t udp_poll(struct file*, struct socket*, struct poll_table_struct*) { return 0; }
int sock_no_bind(struct socket*, struct sockaddr*, int) { return -EOPNOTSUPP; }
int sock_no_connect(struct socket*, struct sockaddr*, int, int) { return -EOPNOTSUPP; }
int sock_no_socketpair(struct socket*, struct socket*) { return -EOPNOTSUPP; }
int sock_no_accept(struct socket*) { return -EOPNOTSUPP; }
int sock_no_ioctl(struct socket*, unsigned, unsigned long) { return -EOPNOTSUPP; }
int sock_gettstamp(struct socket*, void*, bool, bool) { return -EOPNOTSUPP; }
int sock_no_listen(struct socket*, int) { return -EOPNOTSUPP; }
int sock_no_shutdown(struct socket*, int) { return -EOPNOTSUPP; }
int sock_no_mmap(struct file*, struct socket*, void*) { return -ENODEV; }
int sock_common_setsockopt(struct socket*, int, int, sockptr_t, unsigned) {
  return mock_fails(MOCK_SOCKET, "setsockopt") ? -EINVAL : 0;
}
int sock_common_getsockopt(struct socket*, int, int, char*, int*) { return 0; }
int sock_common_recvmsg(struct socket*, struct msghdr*, size_t, int) { return -EAGAIN; }
struct net* maybe_get_net(struct net* net) { return net; }
void put_net(struct net*) {}

int ip6_sock_set_v6only(struct sock*) { return mock_fails(MOCK_SOCKET, "v6only") ? -EINVAL : 0; }

int kernel_bind(struct socket* sock, struct sockaddr* addr, int) {
  mock_might_sleep("kernel_bind");
  Socket* s = socket_of(sock->sk);
  if (mock_fails(MOCK_SOCKET, "kernel_bind")) return -EADDRINUSE;
  if (addr->sa_family == AF_INET) {
    const auto* sin = reinterpret_cast<sockaddr_in*>(addr);
    s->port = sin->sin_port;
    s->addr = sin->sin_addr.s_addr ? mapped(be32_to_cpu(sin->sin_addr.s_addr)) : in6addr_any;
  } else {
    const auto* sin6 = reinterpret_cast<sockaddr_in6*>(addr);
    s->port = sin6->sin6_port;
    s->addr = sin6->sin6_addr;
  }
  if (!s->port) {
    static uint16_t next = 40000;
    s->port = cpu_to_be16(next++);
  }
  s->sk.inet.inet_sport = s->port;
  s->bound = true;
  for (Socket* other : sockets) {
    if (other == s || !conflict(*s, *other)) continue;
    s->bound = false;
    return -EADDRINUSE;
  }
  if (be16_to_cpu(s->port) == mock_foreign_port) {
    s->bound = false;
    return -EADDRINUSE;
  }
  return 0;
}

int kernel_sendmsg(struct socket* sock, struct msghdr* msg, struct kvec* vec, size_t n, size_t len) {
  mock_might_sleep("kernel_sendmsg");
  Socket* s = socket_of(sock->sk);
  if (mock_fails(MOCK_SOCKET, "kernel_sendmsg")) return -ENOBUFS;
  if (n != 1 || len != vec->iov_len || len > sizeof(mock_datagram::data)) mock_violation("odd datagram");
  mock_datagram d{};
  const auto* cmsg = static_cast<cmsghdr*>(msg->msg_control);
  const void* control = cmsg + 1;
  if (s->ipv4) {
    const auto* to = static_cast<sockaddr_in*>(msg->msg_name);
    const auto* info = static_cast<const in_pktinfo*>(control);
    if (cmsg->cmsg_level != SOL_IP || cmsg->cmsg_type != IP_PKTINFO) mock_violation("no source");
    d.from = mapped(be32_to_cpu(info->ipi_spec_dst.s_addr));
    d.to = mapped(be32_to_cpu(to->sin_addr.s_addr));
    d.to_port = to->sin_port;
  } else {
    const auto* to = static_cast<sockaddr_in6*>(msg->msg_name);
    const auto* info = static_cast<const in6_pktinfo*>(control);
    if (cmsg->cmsg_level != SOL_IPV6 || cmsg->cmsg_type != IPV6_PKTINFO) mock_violation("no source");
    if ((ipv6_addr_type(&to->sin6_addr) & IPV6_ADDR_LINKLOCAL) && !to->sin6_scope_id)
      mock_violation("link-local address without a link");
    d.from = info->ipi6_addr;
    d.to = to->sin6_addr;
    d.to_port = to->sin6_port;
  }
  d.from_port = s->port;
  d.len = len;
  memcpy(d.data, vec->iov_base, len);
  sent.push_back(d);
  return len;
}

int kernel_sock_shutdown(struct socket* sock, int) {
  mock_might_sleep("kernel_sock_shutdown");
  socket_of(sock->sk)->down = true;
  return 0;
}

void setup_udp_tunnel_sock(struct net*, struct socket* sock, struct udp_tunnel_sock_cfg* cfg) {
  Socket* s = socket_of(sock->sk);
  s->cfg = *cfg;
  s->sk.sk_user_data = cfg->sk_user_data;
}

bool mock_port_is_open(const struct in6_addr* addr, __be16 port) { return receiver(*addr, port); }

// ---- Datagrams ----

unsigned int mock_sent(void) { return sent.size(); }

bool mock_take(struct mock_datagram* d) {
  if (sent.empty()) return false;
  *d = sent.front();
  sent.pop_front();
  return true;
}

static unsigned gso_size;

bool mock_deliver_merged(const struct mock_datagram* d, unsigned int size) {
  gso_size = size;
  const bool delivered = mock_deliver(d, ~0u);
  gso_size = 0;
  return delivered;
}

bool mock_deliver(const struct mock_datagram* d, unsigned int linear) {
  Socket* s = receiver_from(*d);
  if (!s) return false;
  const udphdr uh = {d->from_port, d->to_port, cpu_to_be16(sizeof(udphdr) + d->len),
                     static_cast<__sum16>(d->no_checksum ? 0 : 0x1234)};
  sk_buff* skb = Skb(*d, &uh, sizeof(uh), linear).skb;
  skb->ip_summed = d->partial ? CHECKSUM_PARTIAL : CHECKSUM_NONE;
  net_device* dev = owner_of(d->to);
  skb->dev = dev ? dev : &netdevs[1];  // the address may have gone meanwhile
  ip_header(skb, d->from, d->to);
  header(skb, false, &uh, sizeof(uh));
  mock_softirq_begin();
  skb->gso_size = gso_size;
  rcu_read_lock();
  const int ret = s->cfg.encap_rcv(&s->sk, skb);
  rcu_read_unlock();
  if (ret > 0) {
    if (!s->connected) mock_violation("a datagram into the queue of a socket that nobody reads");
    s->queued++;
    kfree_skb(skb);
  }
  mock_softirq_end();
  return true;
}

static void deliver_icmp(const struct mock_datagram* d, unsigned int payload, u32 too_big) {
  Socket* s = receiver(d->from, d->from_port);
  if (!s) return;
  const bool ipv4 = ipv6_addr_v4mapped(&d->to);
  sk_buff outer{};
  ip_header(&outer, d->from, d->to);
  const udphdr uh = {d->from_port, d->to_port, cpu_to_be16(sizeof(udphdr) + d->len), 0};
  std::vector<u8> head(outer.network, outer.network + outer.network_len);
  head.insert(head.end(), reinterpret_cast<const u8*>(&uh), reinterpret_cast<const u8*>(&uh + 1));
  free(outer.network);
  mock_datagram part = *d;
  part.len = std::min(d->len, payload);
  sk_buff* skb = Skb(part, head.data(), head.size(), head.size()).skb;
  skb->dev = &netdevs[1];
  icmphdr icmp4{};
  icmp4.type = ICMP_DEST_UNREACH;
  icmp4.code = ICMP_PORT_UNREACH;
  icmp6hdr icmp6{};
  icmp6.icmp6_type = ICMPV6_DEST_UNREACH;
  icmp6.icmp6_code = ICMPV6_PORT_UNREACH;
  if (too_big) {
    icmp4.code = ICMP_FRAG_NEEDED;
    icmp4.un.frag.mtu = cpu_to_be16(too_big);
    icmp6.icmp6_type = ICMPV6_PKT_TOOBIG;
    icmp6.icmp6_code = 0;
    icmp6.icmp6_mtu = cpu_to_be32(too_big);
  }
  header(skb, false, ipv4 ? static_cast<void*>(&icmp4) : &icmp6, ipv4 ? sizeof(icmp4) : sizeof(icmp6));
  mock_softirq_begin();
  rcu_read_lock();
#if USIW_MOCK_KERNEL >= 603
  s->cfg.encap_err_rcv(&s->sk, skb, ECONNREFUSED, d->to_port, 0, skb->data);
#else
  s->cfg.encap_err_rcv(&s->sk, skb, 0);
#endif
  rcu_read_unlock();
  mock_softirq_end();
  kfree_skb(skb);
}

void mock_deliver_icmp(const struct mock_datagram* d, unsigned int payload) { deliver_icmp(d, payload, 0); }

/// UDP notes the path's MTU ahead of the tunnel's callback.
void mock_deliver_too_big(const struct mock_datagram* d, unsigned int payload, unsigned int mtu) {
  mock_route_mtu = mtu;
  deliver_icmp(d, payload, mtu);
}

void* mock_header(const struct sk_buff* skb, bool network, unsigned int size) {
  const unsigned have = network ? skb->network_len : skb->transport_len;
  u8* at = network ? skb->network : skb->transport;
  // The version is looked at by way of the IPv4 header, whichever it is.
  if (have < size) mock_violation("header of %u bytes where there are %u", size, have);
  return at;
}

int skb_copy_bits(const struct sk_buff* skb, int at, void* to, int len) {
  if (at < 0 || len < 0 || static_cast<unsigned>(at) + len > skb->len) return -EFAULT;
  for (int i = 0; i < len; i++) {
    const unsigned from = at + i;
    static_cast<u8*>(to)[i] = from < skb->head_len ? skb->data[from] : skb->page[from - skb->head_len];
  }
  return 0;
}

void* skb_header_pointer(const struct sk_buff* skb, int at, int len, void* buffer) {
  if (static_cast<unsigned>(at) + len <= skb->head_len) return skb->data + at;
  return skb_copy_bits(skb, at, buffer, len) ? nullptr : buffer;
}

void kfree_skb(struct sk_buff* skb) {
  free(skb->data);
  free(skb->page);
  free(skb->network);
  free(skb->transport);
  delete skb;
}

void consume_skb(struct sk_buff* skb) { kfree_skb(skb); }

}  // extern "C"
