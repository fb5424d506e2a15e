// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One host with lo, eth0 and eth1, and two VLANs. Datagrams from the address of eth0 to that of eth1 leave by eth0, as
// if there were two hosts. So both ends of a connection are in one module.
#include <algorithm>
#include <memory>

#include "net.h"
#include "state.h"

using mock::mapped;
using mock::owner_of;

namespace {

struct Neighbour {
  neighbour n;
  neigh_table table;
};

net_device netdevs[5];
std::vector<pernet_operations*> pernet;
enum Chain { kNetdev, kInet, kInet6, kNetevent, kChains };
std::vector<notifier_block*> chains[kChains];
bool rtnl_held;

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

bool has(const net_device& dev, const in6_addr& addr) {
  for (const in6_addr& own : dev.addrs)
    if (!ipv6_addr_any(&own) && ipv6_addr_equal(&own, &addr)) return true;
  return false;
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

/// Returns the route from one address to another: by the interface that has the first one.
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

}  // namespace

namespace mock {

net_device* owner_of(const in6_addr& addr) {
  for (net_device& dev : netdevs)
    if (has(dev, addr)) return &dev;
  return nullptr;
}

void reset_net() {
  pernet.clear();
  for (auto& chain : chains) chain.clear();
  init_net = {.hash_mix = 7, .loopback_dev = &netdevs[0]};
  for (int i = 0; i < 5; i++) {
    net_device& dev = netdevs[i];
    const bool vlan = i > 2;
    dev = {};
    snprintf(dev.name, sizeof(dev.name), vlan ? "eth0.%d" : i ? "eth%d" : "lo", vlan ? i : i - 1);
    dev.ifindex = i + 1;
    dev.type = i ? ARPHRD_ETHER : ARPHRD_LOOPBACK;
    dev.flags = IFF_UP | (i ? 0 : IFF_LOOPBACK);
    dev.mtu = i ? 1500 : 65536;
    dev.addr_len = ETH_ALEN;
    dev.reg_state = NETREG_REGISTERED;
    dev.carrier = true;
    dev.net = &init_net;
    dev.speed = 10000;
    if (vlan) dev.vlan_of = &netdevs[1];
    if (i) {
      dev.dev_addr[0] = 2;
      dev.dev_addr[5] = vlan ? 1 : i;
      dev.addrs[0] = mapped(0xc0000200 + i);
      dev.addrs[1] = global6(i);
      dev.addrs[2] = link_local(i == 3 ? 1 : i);
    } else {
      dev.addrs[0] = mapped(0x7f000001);
      dev.addrs[1] = in6addr_loopback;
    }
  }
  mock_neigh_known = true;
  mock_neigh_used = 0;
  const u8 mac[ETH_ALEN] = {2, 0, 0, 0, 0, 0x77};
  memcpy(mock_neigh_mac, mac, sizeof(mac));
  mock_on_route = mock_on_random = nullptr;
  mock_route_dev = nullptr;
  mock_user = mock_route_user = 0;
  mock_route_encap = nullptr;
  mock_route_mtu = 0;
  mock_ipsec = 0;
  mock_routes = mock_neighbours = 0;
  reset_sockets();
}

}  // namespace mock

extern "C" {

struct net init_net;
net_device* mock_route_dev;
u32 mock_user, mock_route_user;

kuid_t current_fsuid(void) { return kuid_t{mock_user}; }
const void* mock_route_encap;
unsigned mock_route_mtu;
int mock_ipsec;
bool mock_neigh_known = true;
u8 mock_neigh_mac[ETH_ALEN];
unsigned mock_neigh_used;
int mock_routes, mock_neighbours;
void (*mock_on_route)(void);

// ---- Namespaces, interfaces ----

int register_pernet_subsys(struct pernet_operations* ops) {
  mock_might_sleep("register_pernet_subsys");
  if (mock_fails(MOCK_CORE, "register_pernet_subsys")) return -ENOMEM;
  *ops->id = 1;
  if (ops->size > sizeof init_net.generic) mock_violation("no room for what is kept for each netns");
  std::fill(std::begin(init_net.generic), std::end(init_net.generic), u8{0});
  if (ops->init && ops->init(&init_net)) return -ENOMEM;
  pernet.push_back(ops);
  return 0;
}

void unregister_pernet_subsys(struct pernet_operations* ops) {
  mock_might_sleep("unregister_pernet_subsys");
  std::erase(pernet, ops);
}

// Does what default_device_exit_batch() and cleanup_net() do: lo is the last netdev to leave. The kernel waits until
// nobody holds lo, and repeats the event every second.
void mock_net_exit(struct net* net) {
  do mock_notify_netdev(net->loopback_dev, NETDEV_UNREGISTER);
  while (net->loopback_dev->refs && mock_let_others_run("nobody holds lo"));
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

void get_random_bytes(void* buf, size_t len) {
  for (auto* p = static_cast<u8*>(buf); len != 0; len--) *p++ = static_cast<u8>(get_random_u32());
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

struct net_device* dev_get_by_index_rcu(struct net*, int ifindex) {
  mock_check_rcu("dev_get_by_index_rcu");
  for (net_device& dev : netdevs)
    if (dev.ifindex == ifindex) return &dev;
  return nullptr;
}

struct net_device* ipv6_dev_find(struct net*, const struct in6_addr* addr, struct net_device*) {
  mock_check_rcu("ipv6_dev_find");
  net_device* dev = owner_of(*addr);
  return dev && !dev->in_vrf ? dev : nullptr;
}

int ipv6_chk_addr(struct net*, const struct in6_addr* addr, const struct net_device* dev, int) {
  return has(*dev, *addr);
}

struct rtable* __ip_route_output_key(struct net*, struct flowi4* fl4) {
  mock_route_user = fl4->flowi4_uid.val;
  return find_route(mapped(be32_to_cpu(fl4->saddr)), mapped(be32_to_cpu(fl4->daddr)));
}

struct dst_entry* ip6_route_output(struct net*, const sock*, struct flowi6* fl6) {
  mock_route_user = fl6->flowi6_uid.val;
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

}  // extern "C"
