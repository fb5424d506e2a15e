// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// UDP sockets in the kernel, and the datagrams that go out by them and come in.
#include <algorithm>

#include "net.h"
#include "state.h"

using mock::mapped;
using mock::owner_of;

namespace {

struct Socket {
  struct socket sock{};
  ::sock sk{};
  net* where = nullptr;
  bool ipv4 = false;
  bool bound = false;  ///< in UDP's tables
  bool down = false;
  bool connected = false;
  dst_entry route{.refs = 1};  ///< cached, if @ref routed is set
  bool routed = false;
  bool released = false;  ///< the struct sock goes with its last reference
  bool locked = false;
  int queued = 0;
  in6_addr addr{};
  __be16 port = 0;
  udp_tunnel_sock_cfg cfg{};
};

std::vector<Socket*> sockets;
std::deque<mock_datagram> sent;

Socket* socket_of(const ::sock* sk) {
  for (Socket* s : sockets)
    if (&s->sk == sk) return s;
  mock_violation("use of a socket that was released");
  return nullptr;
}
bool conflict(const Socket& a, const Socket& b) {
  return a.bound && b.bound && a.where == b.where && a.ipv4 == b.ipv4 && a.port == b.port &&
         (ipv6_addr_any(&a.addr) || ipv6_addr_any(&b.addr) || ipv6_addr_equal(&a.addr, &b.addr)) &&
         !(a.sk.sk_reuse && b.sk.sk_reuse) && !(a.sk.sk_reuseport && b.sk.sk_reuseport);
}

Socket* receiver(const in6_addr& addr, __be16 port) {
  Socket* found = nullptr;
  for (Socket* s : sockets) {
    if (!s->bound || s->down || s->port != port || s->ipv4 != ipv6_addr_v4mapped(&addr)) continue;
    if (ipv6_addr_equal(&s->addr, &addr)) return s;
    if (ipv6_addr_any(&s->addr)) found = s;
  }
  return found;
}

/// An skb whose head has exactly its length, so that ASan notices a read beyond it.
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

/// An address of the socket in the format of its family.
in6_addr address(const Socket& s, __be32 ipv4, const in6_addr& v6) { return s.ipv4 ? mapped(be32_to_cpu(ipv4)) : v6; }

int udp_sendmsg(::sock* sk, msghdr*, size_t len) {
  Socket* s = socket_of(sk);
  if (!s->connected) return -EDESTADDRREQ;
  mock_datagram d{};
  d.from = address(*s, sk->inet.inet_saddr, sk->inet6.saddr);
  d.to = address(*s, sk->inet.inet_daddr, sk->sk_v6_daddr);
  d.from_port = sk->inet.inet_sport;
  d.to_port = sk->inet.inet_dport;
  d.len = len;
  sent.push_back(d);
  return len;
}

int inet_release(struct socket* sock) {
  Socket* s = socket_of(sock->sk);
  if (!s) return 0;
  if (s->released) mock_violation("socket released twice");
  s->released = true;
  s->bound = false;
  sock_put(&s->sk);
  return 0;
}

const proto udp_prot = {udp_sendmsg};
const proto_ops inet_ops = [] {
  proto_ops ops{};
  ops.release = inet_release;
  return ops;
}();
}  // namespace

namespace mock {

void reset_sockets() {
  for (Socket* s : sockets) delete s;
  sockets.clear();
  sent.clear();
  mock_foreign_port = mock_sockets = mock_bpf_peer = mock_bpf_binds = 0;
}

}  // namespace mock

extern "C" {

int mock_sockets, mock_foreign_port, mock_bpf_peer, mock_bpf_binds;

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
  refcount_set(&s->sk.sk_refcnt, 1);
  s->sk.sk_family = family;
  s->sk.sk_state = TCP_CLOSE;
  s->sk.sk_prot = &udp_prot;
  s->where = net;
  mock_modules++;  // the module of the family, counted like this one here
  s->ipv4 = family == AF_INET;
  sockets.push_back(s);
  mock_sockets++;
  *sock = &s->sock;
  return 0;
}

void sock_release(struct socket* sock) {
  mock_might_sleep("sock_release");
  const proto_ops* ops = sock->ops;
  ops->release(sock);
  module_put(ops->owner);
}

void sock_hold(struct sock* sk) { refcount_inc(&sk->sk_refcnt); }

void sock_put(struct sock* sk) {
  Socket* s = socket_of(sk);
  if (!s || !refcount_dec_and_test(&sk->sk_refcnt)) return;
  if (s->connected && !sock_flag(sk, SOCK_RCU_FREE)) mock_violation("freed at once, and softirq may look at it");
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
bool sock_flag(const struct sock* sk, int flag) {
  const Socket* s = socket_of(sk);
  return flag == SOCK_DEAD ? s->released : test_bit(flag, &sk->sk_flags);
}

void sock_set_flag(struct sock* sk, int flag) { set_bit(flag, &sk->sk_flags); }
bool sk_unhashed(const struct sock* sk) { return !socket_of(sk)->bound; }
void sock_efree(struct sk_buff* skb) { sock_put(skb->sk); }

void skb_orphan(struct sk_buff* skb) {
  if (skb->destructor) skb->destructor(skb);
  skb->destructor = nullptr;
  skb->sk = nullptr;
}

struct dst_entry* sk_dst_get(const struct sock* sk) {
  static const dst_ops ops{[](dst_entry*, sock* of, sk_buff*, u32 mtu, bool) { of->path_mtu = mtu; }};
  Socket* s = socket_of(sk);
  if (!s->routed) return nullptr;
  s->route.ops = &ops;
  dst_hold(&s->route);
  return &s->route;
}

void sk_dst_reset(struct sock* sk) { socket_of(sk)->routed = false; }

int kernel_connect(struct socket* sock, struct sockaddr* addr, int, int) {
  mock_might_sleep("kernel_connect");
  Socket* s = socket_of(sock->sk);
  if (mock_fails(MOCK_SOCKET, "kernel_connect")) return -ENETUNREACH;
  if (!s->sk.inet.inet_num) mock_violation("connect of a socket that has no port: it gets any");
  if (addr->sa_family == AF_INET) {
    const auto* sin = reinterpret_cast<sockaddr_in*>(addr);
    s->sk.inet.inet_daddr = sin->sin_addr.s_addr ^ cpu_to_be32(mock_bpf_peer);
    s->sk.inet.inet_dport = sin->sin_port;
  } else {
    const auto* sin6 = reinterpret_cast<sockaddr_in6*>(addr);
    if ((ipv6_addr_type(&sin6->sin6_addr) & IPV6_ADDR_LINKLOCAL) && !sin6->sin6_scope_id)
      mock_violation("link-local address without a link");
    if (sin6->sin6_scope_id) s->sk.sk_bound_dev_if = sin6->sin6_scope_id;
    s->sk.sk_v6_daddr = sin6->sin6_addr;
    s->sk.inet.inet_dport = sin6->sin6_port;
  }
  s->connected = s->routed = true;
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

int sock_no_bind(struct socket*, struct sockaddr*, int) { return -EOPNOTSUPP; }
int sock_no_connect(struct socket*, struct sockaddr*, int, int) { return -EOPNOTSUPP; }
int sock_no_socketpair(struct socket*, struct socket*) { return -EOPNOTSUPP; }
int sock_no_accept(struct socket*) { return -EOPNOTSUPP; }
int sock_no_ioctl(struct socket*, unsigned, unsigned long) { return -EOPNOTSUPP; }
int sock_no_listen(struct socket*, int) { return -EOPNOTSUPP; }
int sock_no_shutdown(struct socket*, int) { return -EOPNOTSUPP; }
int sock_no_mmap(struct file*, struct socket*, void*) { return -ENODEV; }
int sock_common_setsockopt(struct socket* sock, int level, int name, sockptr_t value, unsigned len) {
  if (mock_fails(MOCK_SOCKET, "setsockopt")) return -EINVAL;
  uint8_t* known = level == SOL_IP && name == IP_TOS          ? &sock->sk->inet.tos
                   : level == SOL_IPV6 && name == IPV6_TCLASS ? &sock->sk->inet6.tclass
                                                              : nullptr;
  int i = 0;
  if (known && (len != sizeof(i) || copy_from_sockptr(&i, value, sizeof(i)))) return -EFAULT;
  if (known) *known = static_cast<uint8_t>(i);
  if (level == SOL_UDP && name == UDP_GRO) sock->sk->gro = *static_cast<int*>(value.kernel);
  if (level == SOL_IP && name == IP_BIND_ADDRESS_NO_PORT) sock->sk->inet.bind_address_no_port = true;
  return 0;
}
int sock_common_getsockopt(struct socket*, int, int, char*, int*) { return 0; }
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
  if (mock_bpf_binds == MOCK_BPF_BINDS_A_PORT) s->port ^= cpu_to_be16(1);
  if (mock_bpf_binds == MOCK_BPF_BINDS_AN_ADDRESS) s->addr.s6_addr32[3] ^= cpu_to_be32(1);
  s->sk.inet.inet_saddr = s->sk.inet.inet_rcv_saddr = s->addr.s6_addr32[3];
  s->sk.inet6.saddr = s->sk.sk_v6_rcv_saddr = s->addr;
  if (!s->port && s->sk.inet.bind_address_no_port) return 0;
  if (!s->port) {
    static uint16_t next = 40000;
    s->port = cpu_to_be16(next++);
  }
  s->sk.inet.inet_sport = s->port;
  s->sk.inet.inet_num = be16_to_cpu(s->port);
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
  const void* source = nullptr;
  for (size_t at = 0; at < msg->msg_controllen;) {
    const auto* cmsg = reinterpret_cast<const cmsghdr*>(static_cast<const char*>(msg->msg_control) + at);
    if (cmsg->cmsg_level != (s->ipv4 ? SOL_IP : SOL_IPV6)) mock_violation("control message of another family");
    if (cmsg->cmsg_type == (s->ipv4 ? IP_PKTINFO : IPV6_PKTINFO)) source = CMSG_DATA(cmsg);
    if (cmsg->cmsg_type == (s->ipv4 ? IP_TOS : IPV6_TCLASS)) d.tos = *reinterpret_cast<const int*>(CMSG_DATA(cmsg));
    at += CMSG_ALIGN(cmsg->cmsg_len);
  }
  if (!source) {
    mock_violation("no source");
    return -EINVAL;
  }
  if (s->ipv4) {
    const auto* to = static_cast<sockaddr_in*>(msg->msg_name);
    d.from = mapped(be32_to_cpu(static_cast<const in_pktinfo*>(source)->ipi_spec_dst.s_addr));
    d.to = mapped(be32_to_cpu(to->sin_addr.s_addr));
    d.to_port = to->sin_port;
  } else {
    const auto* to = static_cast<sockaddr_in6*>(msg->msg_name);
    if ((ipv6_addr_type(&to->sin6_addr) & IPV6_ADDR_LINKLOCAL) && !to->sin6_scope_id)
      mock_violation("link-local address without a link");
    d.from = static_cast<const in6_pktinfo*>(source)->ipi6_addr;
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

bool mock_port_merges(__be16 port) {
  return std::any_of(sockets.begin(), sockets.end(),
                     [&](const Socket* s) { return s->bound && s->port == port && s->sk.gro; });
}

unsigned mock_hashed(__be16 port) {
  return std::count_if(sockets.begin(), sockets.end(), [&](const Socket* s) { return s->bound && s->port == port; });
}

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
  Socket* s = receiver(d->to, d->to_port);
  if (!s) return false;
  const udphdr uh = {d->from_port, d->to_port, cpu_to_be16(sizeof(udphdr) + d->len),
                     static_cast<__sum16>(d->no_checksum ? 0 : 0x1234)};
  sk_buff* skb = Skb(*d, &uh, sizeof(uh), linear).skb;
  skb->ip_summed = d->partial ? CHECKSUM_PARTIAL : CHECKSUM_NONE;
  net_device* dev = owner_of(d->to);
  skb->dev = d->via ? d->via : dev ? dev : mock_netdev("eth0");  // the address may have gone meanwhile
  skb->secpath = d->decrypted;
  skb->cb.frag_max_size = d->reassembled ? 1500 : 0;
  ip_header(skb, d->from, d->to);
  header(skb, false, &uh, sizeof(uh));
  mock_softirq_begin();
  skb->gso_size = gso_size;
  rcu_read_lock();
  skb->csum_valid = 1;
  const int ret = s->cfg.encap_rcv(&s->sk, skb);
  if (ret == -IPPROTO_UDP) {
    // IP delivers it again, and UDP takes the socket of the skb. UDP would verify the checksum again if the skb did not
    // mark it as verified.
    if (!skb->sk || skb->destructor != sock_efree) mock_violation("a datagram without a socket comes round for ever");
    if (!d->partial && skb->ip_summed != CHECKSUM_UNNECESSARY) mock_violation("a checksum is calculated twice");
    socket_of(skb->sk)->queued++;
    skb_orphan(skb);
    kfree_skb(skb);
  } else if (ret) {
    mock_violation("a datagram into the queue of a socket that nobody reads");
  }
  rcu_read_unlock();
  mock_softirq_end();
  return true;
}

static void deliver_icmp(const struct mock_datagram* d, unsigned int payload, u32 too_big) {
  mock_datagram answer{};
  answer.from = d->to, answer.from_port = d->to_port;
  answer.to = d->from, answer.to_port = d->from_port;
  Socket* s = receiver(answer.to, answer.to_port);
  if (!s || !s->cfg.encap_err_rcv) return;
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
  skb->dev = mock_netdev("eth0");
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

/// UDP stores the path MTU before the callback of the tunnel.
void mock_deliver_too_big(const struct mock_datagram* d, unsigned int payload, unsigned int mtu) {
  mock_route_mtu = mtu;
  deliver_icmp(d, payload, mtu);
}

void* mock_header(const struct sk_buff* skb, bool network, unsigned int size) {
  const unsigned have = network ? skb->network_len : skb->transport_len;
  u8* at = network ? skb->network : skb->transport;
  // Both families read the version from the IPv4 header.
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
