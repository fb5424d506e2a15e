// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/socket_port.h"

#include <linux/ethtool.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/link_local.h"
#include "port/beside_filter.h"

namespace usiw {
namespace {

/// Received datagrams that the engine may hold, bursts on their way, what is being sent, what waits for messages.
constexpr size_t kBuffers = Port::kMaxHeld + 1024;
/// The TRP header stands here in a buffer: the DDP header behind it is 8-byte aligned.
constexpr size_t kOffset = 2;
/// Room for a burst from a peer that is faster. What the system allows, if that is less.
constexpr int kSocketBuffer = 8 << 20;
/// Of a message that the kernel takes apart (UDP_SEGMENT): datagrams, and bytes.
constexpr size_t kSegmentsMost = 64, kMessageMost = 65'000;
/// So many batches without a merged message end the expectation of more.
constexpr unsigned kUnmergedMost = 64;
/// When the kernel has refused to take a message apart, so many datagrams go out one by one before it is asked again;
/// each further time twice as many, up to kSinglyShifts times.
constexpr unsigned kSinglyLeast = 256, kSinglyShifts = 8;

void widen(int fd, int force, int name) {
  if (setsockopt(fd, SOL_SOCKET, force, &kSocketBuffer, sizeof kSocketBuffer) != 0)
    setsockopt(fd, SOL_SOCKET, name, &kSocketBuffer, sizeof kSocketBuffer);
}

/// Bytes that the socket holds. The kernel frees what was read in lots of a quarter of the buffer, so a quarter may be
/// taken by datagrams that are gone.
uint32_t held_by(int fd) {
  int bytes = 0;
  socklen_t len = sizeof bytes;
  if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &len) != 0 || bytes <= 0) return UINT32_MAX;
  return static_cast<uint32_t>(bytes) / 4 * 3;
}

/// The kernel is asked to count with each datagram those that did not fit before it; it does so from the first one on.
void ask_for_overflows(int fd) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
}

/// Datagrams that the socket has dropped so far, for want of space or by its filter.
uint32_t dropped_by(int fd) {
  uint32_t info[SK_MEMINFO_VARS] = {};
  socklen_t len = sizeof info;
  getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len);
  return info[SK_MEMINFO_DROPS];
}

void set_ipv4(std::array<uint8_t, 16>& to, const in_addr& from) { map_ipv4(to.data(), &from); }

/// Puts one ancillary item behind the others; @p at is their length so far.
template <typename T>
size_t put(void* control, size_t at, int level, int type, const T& value) {
  auto* c = reinterpret_cast<cmsghdr*>(static_cast<char*>(control) + at);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
  return at + CMSG_SPACE(sizeof value);
}

/// An end of a flow as a socket address names it; its interface stays with the caller.
void read_end(const sockaddr_storage& name, std::array<uint8_t, 16>& addr, uint16_t& port) {
  if (name.ss_family == AF_INET) {
    auto& sin = reinterpret_cast<const sockaddr_in&>(name);
    set_ipv4(addr, sin.sin_addr);
    port = sin.sin_port;
  } else {
    auto& sin6 = reinterpret_cast<const sockaddr_in6&>(name);
    std::memcpy(addr.data(), &sin6.sin6_addr, 16);
    port = sin6.sin6_port;
  }
}

/// The IP header's field of what the socket receives is asked for. True if the kernel will tell of it.
bool ask_for_marks(int fd, bool ipv4) {
  const int on = 1;
  return setsockopt(fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, &on, sizeof on) == 0;
}

/// The kernel has it for IPv4 as one byte, for IPv6 as an int.
bool is_marked(const cmsghdr& c) {
  int tclass = 0;
  if (c.cmsg_level == IPPROTO_IP) return (*CMSG_DATA(&c) & kEcnMask) == kEcnCe;
  std::memcpy(&tclass, CMSG_DATA(&c), sizeof tclass);
  return (tclass & kEcnMask) == kEcnCe;
}

/// Fills in both ends as the message names them, whether it has been marked, and the length of the datagrams that the
/// kernel has merged (left alone if it has not): it merges none with others' marks. @p lost: datagrams that the socket
/// had no room for so far (left alone if there were none). False if it does not say where it was sent to. @p known: the
/// socket's; all of it if that is @p connected. @p unmarked: the interface whose link-local addresses are not marked.
bool read_flow(const mmsghdr& h, const sockaddr_storage& peer, const FlowKey& known, bool connected, uint32_t unmarked,
               FlowKey& flow, bool& ce, int& segment, uint32_t& lost) {
  auto& msg = const_cast<msghdr&>(h.msg_hdr);
  flow = known;
  ce = false;
  if (!connected) read_end(peer, flow.remote_addr, flow.remote_port);
  bool addressed = connected;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (!connected && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      set_ipv4(flow.local_addr, info.ipi_addr);
      addressed = true;
    } else if (!connected && c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof info);
      std::memcpy(flow.local_addr.data(), &info.ipi6_addr, 16);
      if (info.ipi6_ifindex != unmarked && is_link_local(&info.ipi6_addr))
        put_link(flow.local_addr.data(), info.ipi6_ifindex);
      addressed = true;
    } else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
               (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) {
      ce = is_marked(*c);
    } else if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
      std::memcpy(&lost, CMSG_DATA(c), sizeof lost);
    }
  }
  return addressed;
}

/// The socket, which is bound to @p name, gets the datagrams of IPv4 besides those of IPv6.
bool takes_both(int fd, const sockaddr_storage& name) {
  int only_ipv6 = 1;
  socklen_t len = sizeof only_ipv6;
  return name.ss_family == AF_INET6 && getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, &len) == 0 &&
         only_ipv6 == 0;
}

/// The netdev may put several datagrams into one frame on their way up (GRO). Also if that cannot be told.
bool netdev_merges(int fd, uint32_t ifindex) {
  ethtool_value gro{.cmd = ETHTOOL_GGRO, .data = 1};
  ifreq request{};
  request.ifr_data = reinterpret_cast<char*>(&gro);
  if (if_indextoname(ifindex, request.ifr_name) == nullptr || ioctl(fd, SIOCETHTOOL, &request) != 0) return true;
  return gro.data != 0;
}

/// The local address and port to which a socket is bound, and the interface where the address is a link's.
void read_bound(const sockaddr_storage& name, FlowKey& flow, uint32_t& scope) {
  read_end(name, flow.local_addr, flow.local_port);
  if (name.ss_family == AF_INET6) scope = reinterpret_cast<const sockaddr_in6&>(name).sin6_scope_id;
}

bool is_any(const FlowKey& flow) {
  constexpr uint8_t kZeros[16] = {};
  const size_t prefix = flow.is_ipv4() ? sizeof kMappedPrefix : 0;
  return std::memcmp(flow.local_addr.data() + prefix, kZeros, 16 - prefix) == 0;
}

}  // namespace

std::unique_ptr<SocketPort> SocketPort::create(uint32_t mtu, int& error, uint32_t unmarked) {
  std::unique_ptr<SocketPort> port(new SocketPort);
  port->mtu_ = mtu;
  port->unmarked_ = unmarked;
  port->slot_ = (mtu + kOffset + 63) & ~size_t{63};
  port->slab_size_ = port->slot_ * kBuffers;
  const size_t spill_at = port->slab_size_;
  port->slab_size_ += kRxBatch * kMessageRoom;
  void* slab = mmap(nullptr, port->slab_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slab != MAP_FAILED) port->slab_ = static_cast<std::byte*>(slab);
  if (port->slab_ == nullptr || (port->epoll_ = epoll_create1(EPOLL_CLOEXEC)) < 0) {
    error = errno;
    return nullptr;
  }
  port->spill_ = port->slab_ + spill_at;
  port->free_.reserve(kBuffers);
  for (size_t i = kBuffers; i-- > 0;) port->free_.push_back(port->slab_ + i * port->slot_);
  port->shape(0);
  return port;
}

SocketPort::~SocketPort() {
  for (Socket& s : sockets_)
    if (s.fd >= 0) close(s.fd);
  if (epoll_ >= 0) close(epoll_);
  if (slab_ != nullptr) munmap(slab_, slab_size_);
}

// ---- Sockets --------------------------------------------------------------------------------

bool SocketPort::Socket::serves(const Path& path) const {
  const FlowKey& key = path.flow;
  if (fd < 0) return false;
  if (connected) return flow == key;
  if (flow.local_port != key.local_port) return false;
  if (is_any(flow)) return both || flow.is_ipv4() == key.is_ipv4();
  return flow.local_addr == key.local_addr && (scope == 0 || scope == path.scope);
}

/// One of all connections of a local address and port, or one of this connection alone, which the kernel has connected
/// to its peer. One port may have several of the first kind: of both families, of several addresses, of one address on
/// several links.
int SocketPort::add_flow(Path& path, int fd) {
  sockaddr_storage name;
  socklen_t len = sizeof name;
  const bool connected = fd >= 0 && getpeername(fd, reinterpret_cast<sockaddr*>(&name), &len) == 0;
  FlowKey bound{};
  uint32_t scope = 0;
  len = sizeof name;
  if (fd >= 0 && !connected && getsockname(fd, reinterpret_cast<sockaddr*>(&name), &len) == 0)
    read_bound(name, bound, scope);
  if (scope != 0 && scope != unmarked_ && is_link_local(bound.local_addr.data()))
    put_link(bound.local_addr.data(), scope);
  for (uint32_t i = 0; !connected && i < sockets_.size(); i++) {
    Socket& s = sockets_[i];
    if (s.connected || !s.serves(path) || (fd >= 0 && !(s.flow == bound && s.scope == scope))) continue;
    s.users++;
    s.merging += path.merge;
    set_gro(s);
    path.socket = i;
    path.by_socket = true;
    path.sees_ce = s.sees_ce;
    set_sender(s, path.flow.remote_port, true);
    filter(s);
    if (fd >= 0) close(fd);  // another descriptor of the same socket
    return 0;
  }
  if (fd < 0) return -fd;
  const auto slot = static_cast<uint32_t>(
      std::find_if(sockets_.begin(), sockets_.end(), [](const Socket& s) { return s.fd < 0; }) - sockets_.begin());
  epoll_event event{.events = EPOLLIN, .data = {.u32 = slot}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    int error = errno;
    close(fd);
    return error;
  }
  widen(fd, SO_RCVBUFFORCE, SO_RCVBUF);
  widen(fd, SO_SNDBUFFORCE, SO_SNDBUF);
  // Where connections share it it may have served others before: what it was told to take then is over.
  if (!connected) detach_filter(fd);
  if (slot == sockets_.size()) sockets_.emplace_back();
  ask_for_overflows(fd);
  path.sees_ce = ask_for_marks(fd, path.flow.is_ipv4());
  sockets_[slot] = {.fd = fd,
                    .users = 1,
                    .merging = path.merge,
                    .connected = connected,
                    .ipv4 = path.flow.is_ipv4(),
                    .both = takes_both(fd, name),
                    .holds = held_by(fd),
                    .lost = dropped_by(fd),
                    .sees_ce = path.sees_ce,
                    .flow = connected ? path.flow : bound,
                    .scope = scope};
  set_gro(sockets_[slot]);
  path.socket = slot;
  path.by_socket = true;
  open_++;
  set_sender(sockets_[slot], path.flow.remote_port, true);
  return 0;
}

void SocketPort::remove_flow(const Path& path) {
  Socket* s = socket_of(path);
  if (s == nullptr) return;
  s->merging -= path.merge + path.merging;
  if (path.by_socket) set_sender(*s, path.flow.remote_port, false);
  s->users--;
  set_gro(*s);  // off with the last one: the socket may live on in other descriptors
  if (s->users != 0) return filter(*s);
  // For the same reason epoll would go on watching the socket.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, s->fd, nullptr);
  close(s->fd);
  if (!s->senders.empty()) sending_--;
  *s = {};
  open_--;
  turn_ = turns_ = 0;  // it may be among these
  lone_looks_ = 0;
}

void SocketPort::sends(Path& path, bool yes) {
  Socket* s = socket_of(path);
  if (s == nullptr || path.by_socket == yes) return;
  path.by_socket = yes;
  set_sender(*s, path.flow.remote_port, yes);
  filter(*s);
  looks_ = kLooks;
  lone_looks_ = 0;
}

void SocketPort::merges(Path& path, bool yes) {
  Socket* s = socket_of(path);
  if (s == nullptr) return;
  s->merging += yes;
  s->merging -= path.merging;
  path.merging = yes;
  set_gro(*s);
}

/// Merged datagrams come as such (UDP_GRO) while every connection of the socket takes them and hears nothing else, or
/// the netdev merges nothing by itself: what it merges on its way to one of the others a raw port could not tell from a
/// datagram. What comes merged all the same is taken apart by the kernel.
void SocketPort::set_gro(Socket& s) const {
  const int on = s.merging != 0 && (s.merging == s.users || !netdev_merges(s.fd, unmarked_));
  if (s.gro == (on != 0)) return;
  s.gro = on != 0;
  setsockopt(s.fd, SOL_UDP, UDP_GRO, &on, sizeof on);
}

/// A connection of the socket to the peer's port @p peer sends by it from now on, or no more.
void SocketPort::set_sender(Socket& s, uint16_t peer, bool yes) {
  const bool sent = !s.senders.empty();
  if (yes)
    s.senders.push_back(peer);
  else if (auto at = std::find(s.senders.begin(), s.senders.end(), peer); at != s.senders.end())
    s.senders.erase(at);
  if (const bool now_sends = !s.senders.empty(); now_sends != sent) now_sends ? sending_++ : sending_--;
}

/// Of connections that share the socket those that send by another port receive by that, too: here their datagrams
/// would come a second time. Where the kernel takes no filter, or too many connections send by the socket, it takes
/// all: slower, not wrong.
void SocketPort::filter(Socket& s) const {
  const bool wanted = !s.connected && unmarked_ != 0 && s.senders.size() < s.users && s.senders.size() <= kBesideMost;
  if (wanted && attach_beside_filter(s.fd, s.ipv4, unmarked_, s.senders) == 0) {
    s.filtered = true;
  } else if (s.filtered) {
    detach_filter(s.fd);
    s.filtered = false;
    s.lost = dropped_by(s.fd);
  }
}

uint32_t SocketPort::share(Path& path, uint32_t len, uint64_t now) {
  Socket* s = socket_of(path);
  if (s == nullptr) return UINT32_MAX;
  return s->holds / truesize(len) / s->shares.users(path.counted, now);
}

/// A path may be out of date: a connection that has ended still answers repetitions.
SocketPort::Socket* SocketPort::socket_of(const Path& path) {
  if (path.socket < sockets_.size()) return sockets_[path.socket].serves(path) ? &sockets_[path.socket] : nullptr;
  for (Socket& s : sockets_)  // another peer of a port that has a socket for all
    if (!s.connected && s.serves(path)) return &s;
  return nullptr;
}

// ---- Sending ----------------------------------------------------------------------------------

size_t SocketPort::tx_alloc(std::span<TxBuf> bufs) {
  size_t n = 0;
  for (; n < bufs.size() && !free_.empty(); n++) {
    bufs[n].handle = free_.back();
    bufs[n].data = free_.back() + kOffset;
    free_.pop_back();
  }
  return n;
}

void SocketPort::tx_free(std::span<TxBuf> bufs) {
  for (TxBuf& b : bufs) give_buffer(b.handle);
}

/// All of a message but its data.
void SocketPort::address(mmsghdr& out, Message& m, const Path& path, bool connected) {
  msghdr& msg = out.msg_hdr;
  msg = {};
  if (connected) {  // the socket knows
    msg.msg_control = m.control;
    return;
  }
  msg.msg_name = &m.peer;
  msg.msg_control = m.control;
  if (path.flow.is_ipv4()) {
    auto& sin = reinterpret_cast<sockaddr_in&>(m.peer);
    sin = {};
    sin.sin_family = AF_INET;
    sin.sin_port = path.flow.remote_port;
    std::memcpy(&sin.sin_addr, path.flow.remote_addr.data() + 12, 4);
    msg.msg_namelen = sizeof sin;
    in_pktinfo info{};
    std::memcpy(&info.ipi_spec_dst, path.flow.local_addr.data() + 12, 4);
    msg.msg_controllen = put(m.control, 0, IPPROTO_IP, IP_PKTINFO, info);
    if (const int tos = path.traffic_class(); tos != 0)
      msg.msg_controllen = put(m.control, msg.msg_controllen, IPPROTO_IP, IP_TOS, tos);
  } else {
    auto& sin6 = reinterpret_cast<sockaddr_in6&>(m.peer);
    sin6 = {};
    sin6.sin6_family = AF_INET6;
    sin6.sin6_port = path.flow.remote_port;
    std::memcpy(&sin6.sin6_addr, path.flow.remote_addr.data(), 16);
    sin6.sin6_scope_id = path.scope;
    msg.msg_namelen = sizeof sin6;
    in6_pktinfo info{};
    info.ipi6_ifindex = path.scope;
    std::memcpy(&info.ipi6_addr, path.flow.local_addr.data(), 16);
    if (path.marked) take_link(&info.ipi6_addr);
    msg.msg_controllen = put(m.control, 0, IPPROTO_IPV6, IPV6_PKTINFO, info);
    if (const int tos = path.traffic_class(); tos != 0)
      msg.msg_controllen = put(m.control, msg.msg_controllen, IPPROTO_IPV6, IPV6_TCLASS, tos);
  }
}

/// What a connected socket sends may be marked from now on, or no more, as the engine says.
void SocketPort::set_ect(Socket& s, const Path& path) {
  const int tos = path.traffic_class();
  const bool ipv4 = path.flow.is_ipv4();
  setsockopt(s.fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, &tos, sizeof tos);
  s.ect = path.ect;
}

/// How many from the front may go as one message: to one peer, of one length but for the last.
size_t SocketPort::alike(std::span<const TxBuf> bufs) {
  if (!bufs[0].path->merge) return 1;
  const uint32_t each = bufs[0].total();
  const size_t most = std::min(bufs.size(), kSegmentsMost);
  size_t n = 1, bytes = each;
  for (uint32_t last = each; n < most && bufs[n].path == bufs[0].path && last == each; n++) {
    last = bufs[n].total();
    if (last == 0 || last > each || bytes + last > kMessageMost) break;
    bytes += last;
  }
  return bytes > bufs[0].path->merge_above ? n : 1;
}

size_t SocketPort::tx(std::span<TxBuf> bufs) {
  size_t done = 0;
  bool room = true;
  while (done < bufs.size() && room) {
    // As many as go out by the same socket.
    Socket* const out = socket_of(*bufs[done].path);
    if (out == nullptr) {
      done++;  // of a connection that has ended
      continue;
    }
    if (out->connected && out->ect != bufs[done].path->ect) set_ect(*out, *bufs[done].path);
    unsigned n = 0;
    size_t used = 0, vecs = 0;
    while (used < kBatch && done + used < bufs.size() && socket_of(*bufs[done + used].path) == out) {
      const auto rest = bufs.subspan(done + used, std::min(bufs.size() - done, kBatch) - used);
      const size_t count = out->singly == 0 ? alike(rest) : 1;
      address(headers_[n], messages_[n], *rest[0].path, out->connected);
      msghdr& msg = headers_[n].msg_hdr;
      msg.msg_iov = vecs_ + vecs;
      for (const TxBuf& b : rest.first(count)) {
        vecs_[vecs++] = {b.data, b.len};
        if (b.more_len != 0) vecs_[vecs++] = {const_cast<std::byte*>(b.more), b.more_len};
      }
      msg.msg_iovlen = static_cast<size_t>(vecs_ + vecs - msg.msg_iov);
      if (count > 1)
        msg.msg_controllen = put(messages_[n].control, msg.msg_controllen, SOL_UDP, UDP_SEGMENT,
                                 static_cast<uint16_t>(rest[0].total()));
      if (msg.msg_controllen == 0) msg.msg_control = nullptr;
      messages_[n++].count = static_cast<unsigned>(count);
      used += count;
    }
    int sent = sendmmsg(out->fd, headers_, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      for (int i = 0; i < sent; i++) done += messages_[i].count;
      if (out->singly != 0)
        out->singly -= std::min(out->singly, static_cast<unsigned>(sent));
      else if (std::any_of(messages_, messages_ + sent, [](const Message& m) { return m.count > 1; }))
        out->refusals = 0;
    } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      room = false;
    } else if (messages_[0].count > 1 && (errno == EIO || errno == EINVAL || errno == EMSGSIZE)) {
      // This netdev cannot, or the path has become too narrow for the datagrams: one by one for a while.
      out->singly = kSinglyLeast << std::min(out->refusals, kSinglyShifts);
      out->refusals++;
    } else if (errno != EINTR) {
      // Cannot be sent (no route, too long, link down, memory that the program has unmapped ...): as if the wire had
      // lost it.
      done += messages_[0].count;
    }
  }
  tx_free(bufs);
  return done;
}

// ---- Receiving --------------------------------------------------------------------------------

size_t SocketPort::rx(std::span<RxBuf> bufs) {
  size_t got = take(bufs);
  if (got == bufs.size() || open_ == 0 || passes()) return got;
  if (sockets_.size() == 1) {
    if (receive(sockets_[0])) got += take(bufs.subspan(got));
    return got;
  }
  if (turn_ < turns_) {
    got += take_turns(bufs.subspan(got));
    if (got == bufs.size()) return got;
  } else if (lone_looks_ != 0) {
    // To ask which sockets have something costs as much as to look at the one that had.
    lone_looks_--;
    if (receive(sockets_[lone_])) return got + take(bufs.subspan(got));
    if (!steady_) lone_looks_ = 0;
    if (!armed_) return got;
  }
  armed_ = false;
  turn_ = 0;
  turns_ = epoll_wait(epoll_, waiting_, kTurns, 0);
  if (turns_ > 0) steady_ = turns_ == 1 && waiting_[0].data.u32 == lone_;
  if (turns_ == 1) lone_ = waiting_[0].data.u32;
  lone_looks_ = turns_ <= 1 && lone_ < sockets_.size() && sockets_[lone_].fd >= 0 ? kLoneLooks : 0;
  return got + take_turns(bufs.subspan(got));
}

/// Nothing is expected, and looking would cost a system call.
bool SocketPort::passes() {
  if (sending_ != 0 || turn_ < turns_) return false;
  if (looks_ != 0) {
    looks_--;
    return false;
  }
  if (++passed_ < kPassMost) return true;
  passed_ = 0;
  return false;
}

/// From the sockets that epoll has named and that have not had their turn: one that is never empty
/// fills burst after burst.
size_t SocketPort::take_turns(std::span<RxBuf> bufs) {
  size_t got = 0;
  while (turn_ < turns_ && got < bufs.size())
    if (receive(sockets_[waiting_[turn_++].data.u32])) got += take(bufs.subspan(got));
  return got;
}

/// Buffers for merged messages whose datagrams are of @p segment bytes; 0: for single datagrams.
void SocketPort::shape(size_t segment) {
  for (Incoming& m : incoming_)
    if (m.prepared) finish(m);
  current_ = arrived_ = ready_ = 0;
  rx_part_ = segment != 0 ? segment : slot_ - kOffset;
  rx_parts_ = segment != 0 ? std::min(kMergedMost, kMessageRoom / segment + 1) : 1;
  rx_messages_ = std::min(kRxBatch, kRxBuffers / rx_parts_);
}

/// Gives the messages that have none buffers, as far as these go.
void SocketPort::prepare() {
  if (arrived_ == 0 && ready_ == rx_messages_) return;
  const size_t kept_from = arrived_, kept_to = ready_;  // not looked at: each is a cache line or two
  current_ = arrived_ = 0;
  for (ready_ = 0; ready_ < rx_messages_; ready_++) {
    if (ready_ == kept_from && kept_to > kept_from) {
      ready_ = kept_to - 1;
      continue;
    }
    Incoming& m = incoming_[ready_];
    if (m.prepared) continue;
    if (free_.size() < rx_parts_) return;
    iovec* vecs = rx_vecs_ + ready_ * (rx_parts_ + 1);
    for (size_t i = 0; i < rx_parts_; i++) {
      m.buffers[i] = free_.back();
      free_.pop_back();
      vecs[i] = {m.buffers[i] + kOffset, rx_part_};
    }
    vecs[rx_parts_] = {spill_of(m), kMessageRoom};
    m.prepared = true;
    msghdr& msg = rx_headers_[ready_].msg_hdr;
    msg = {};
    msg.msg_name = &m.peer;
    msg.msg_namelen = sizeof m.peer;
    msg.msg_iov = vecs;
    msg.msg_iovlen = rx_parts_ + 1;
    msg.msg_control = m.control;
    msg.msg_controllen = sizeof m.control;
  }
}

/// Gives back what was not handed out.
void SocketPort::finish(Incoming& m) {
  for (size_t i = rx_parts_; i-- > 0;)
    if (m.buffers[i] != nullptr) give_buffer(m.buffers[i]);
  m.prepared = false;
}

/// A batch from the socket, all of the last one having been taken. False: nothing.
bool SocketPort::receive(Socket& from) {
  prepare();
  if (ready_ == 0) {
    drops_.no_buffer++;
    return false;
  }
  // A short one that comes after none is alone, as a rule, and to ask for more would cost as much again.
  const auto most = dry_ && expected_ == 0 ? 1 : static_cast<unsigned>(ready_);
  const int got = recvmmsg(from.fd, rx_headers_, most, MSG_DONTWAIT, nullptr);
  if (got <= 0) {  // not dry_ = got <= 0: QEMU 7.2 gets that wrong behind fork() (docs/testing-guest.md)
    dry_ = true;
    return false;
  }
  dry_ = false;
  arrived_ = static_cast<size_t>(got);
  looks_ = kLooks;
  size_t merged = 0;
  for (size_t i = 0; i < arrived_; i++) {
    Incoming& m = incoming_[i];
    int segment = 0;
    uint32_t lost = from.lost;
    m.next = 0;
    m.len = rx_headers_[i].msg_len;
    const bool whole = (rx_headers_[i].msg_hdr.msg_flags & MSG_TRUNC) == 0;
    if (!whole || !read_flow(rx_headers_[i], m.peer, from.flow, from.connected, unmarked_, m.flow, m.ce, segment,
                              lost) ||
        segment < 0) {
      drops_.malformed++;
      m.count = 0;
      continue;
    }
    if (static_cast<int32_t>(lost - from.lost) > 0) [[unlikely]] {
      // The kernel counts datagrams that the filter drops, too. They have come by a raw port.
      if (!from.filtered) drops_.no_buffer += lost - from.lost;
      from.lost = lost;
    }
    m.segment = segment != 0 ? static_cast<uint32_t>(segment) : m.len;
    m.count = m.len > m.segment ? (m.len + m.segment - 1) / m.segment : 1;
    if (m.segment > slot_ - kOffset) {
      drops_.malformed += m.count;
      m.count = 0;
    } else if (m.count > 1) {
      merged = m.segment;
    }
  }
  // The next batch's shape; this one's stays until it is empty.
  if (merged != 0) {
    expected_ = merged;
    unmerged_ = 0;
  } else if (expected_ != 0 && ++unmerged_ > kUnmergedMost) {
    expected_ = 0;
  }
  return true;
}

size_t SocketPort::take(std::span<RxBuf> bufs) {
  size_t n = 0;
  while (current_ < arrived_) {
    Incoming& m = incoming_[current_];
    while (m.next < m.count && n < bufs.size()) n += take_one(bufs[n]);
    if (m.next < m.count) return n;
    finish(m);
    current_++;
  }
  if (arrived_ != 0 && (expected_ != 0 ? expected_ : slot_ - kOffset) != rx_part_) shape(expected_);
  return n;
}

/// The next datagram of the current message: in place where it has a buffer to itself, else copied. False: no buffer
/// for it.
bool SocketPort::take_one(RxBuf& out) {
  Incoming& m = incoming_[current_];
  const uint32_t i = m.next++;
  const size_t at = size_t{i} * m.segment, len = std::min<size_t>(m.segment, m.len - at);
  std::byte* buffer;
  if (i < rx_parts_ && (m.count == 1 ? len <= rx_part_ : m.segment == rx_part_)) {
    buffer = m.buffers[i];
    m.buffers[i] = nullptr;
  } else {
    if (free_.empty()) {
      drops_.no_buffer++;
      return false;
    }
    buffer = free_.back();
    free_.pop_back();
    copy_out(m, at, len, buffer + kOffset);
  }
  out.data = buffer + kOffset;
  out.len = static_cast<uint32_t>(len);
  out.flow = m.flow;
  out.handle = buffer;
  out.ce = m.ce;
  return true;
}

/// @p at: of the message.
void SocketPort::copy_out(const Incoming& m, size_t at, size_t len, std::byte* to) const {
  const size_t in_buffers = rx_parts_ * rx_part_;
  while (len != 0) {
    const bool spilled = at >= in_buffers;
    const size_t there = spilled ? at - in_buffers : at % rx_part_;
    const std::byte* from = spilled ? spill_of(m) + there : m.buffers[at / rx_part_] + kOffset + there;
    const size_t n = spilled ? len : std::min(len, rx_part_ - there);
    std::memcpy(to, from, n);
    to += n;
    at += n;
    len -= n;
  }
}

void SocketPort::rx_free(std::span<RxBuf> bufs) {
  for (RxBuf& b : bufs) give_buffer(b.handle);
}

}  // namespace usiw
