// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/next_hop.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace usiw::run {
namespace {

/// Returns the bytes that rtnetlink calls an address.
void* address_at(Endpoint& e) { return e.ipv4() ? static_cast<void*>(&e.addr.s6_addr32[3]) : &e.addr; }

/// A request to rtnetlink.
template <typename Header>
struct Question {
  struct {
    nlmsghdr nl{};
    Header header{};
    char attributes[128];
  } message;

  explicit Question(uint16_t type) {
    message.nl.nlmsg_len = NLMSG_LENGTH(sizeof(Header));
    message.nl.nlmsg_type = type;
    message.nl.nlmsg_flags = NLM_F_REQUEST;
  }
  void add(uint16_t type, const void* value, size_t len) {
    auto* a = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(&message) + NLMSG_ALIGN(message.nl.nlmsg_len));
    a->rta_type = type;
    a->rta_len = static_cast<uint16_t>(RTA_LENGTH(len));
    std::memcpy(RTA_DATA(a), value, len);
    message.nl.nlmsg_len = static_cast<uint32_t>(NLMSG_ALIGN(message.nl.nlmsg_len) + RTA_SPACE(len));
  }
  void add(uint16_t type, Endpoint e) { add(type, address_at(e), e.ipv4() ? 4 : 16); }
};

/// The attributes after the header of a message.
class Attributes {
 public:
  Attributes(const nlmsghdr& message, size_t header_len) : message_(message), header_len_(header_len) {}
  /// Copies an attribute of exactly this size. Returns false if there is none.
  bool get(uint16_t type, void* out, size_t len) const {
    const char* at = reinterpret_cast<const char*>(&message_) + NLMSG_SPACE(header_len_);
    auto* a = reinterpret_cast<const rtattr*>(at);
    int left = static_cast<int>(message_.nlmsg_len) - static_cast<int>(NLMSG_SPACE(header_len_));
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
      if (a->rta_type == type && RTA_PAYLOAD(a) == len) {
        std::memcpy(out, RTA_DATA(a), len);
        return true;
      }
    return false;
  }

 private:
  const nlmsghdr& message_;
  const size_t header_len_;
};

/// The one message that answers a question, and its attributes.
class Answer {
 public:
  template <typename Header>
  int ask(const Question<Header>& q) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return -errno;
    ssize_t n = ::send(fd, &q.message, q.message.nl.nlmsg_len, 0);
    if (n >= 0) n = recv(fd, buf_, sizeof buf_, 0);
    const int error = n < 0 ? -errno : 0;
    close(fd);
    if (error != 0) return error;
    auto* nl = reinterpret_cast<const nlmsghdr*>(buf_);
    if (!NLMSG_OK(nl, static_cast<uint32_t>(n))) return -EIO;
    if (nl->nlmsg_type == NLMSG_ERROR) {
      int answer = reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(nl))->error;
      return answer < 0 ? answer : -EIO;
    }
    if (nl->nlmsg_len < NLMSG_LENGTH(sizeof(Header))) return -EIO;
    header_len_ = sizeof(Header);
    return 0;
  }
  template <typename Header>
  const Header& header() const {
    return *reinterpret_cast<const Header*>(NLMSG_DATA(reinterpret_cast<const nlmsghdr*>(buf_)));
  }
  bool get(uint16_t type, void* out, size_t len) const {
    return Attributes(*reinterpret_cast<const nlmsghdr*>(buf_), header_len_).get(type, out, len);
  }

 private:
  alignas(nlmsghdr) char buf_[8192];
  size_t header_len_ = 0;
};

/// States of a neighbour in which the kernel uses its MAC.
constexpr uint16_t kKnown = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;

}  // namespace

int route_of(const Endpoint& from, const Endpoint& to, NextHop& out) {
  const size_t address_len = to.ipv4() ? 4 : 16;
  Question<rtmsg> route(RTM_GETROUTE);
  route.message.header.rtm_family = static_cast<unsigned char>(to.ipv4() ? AF_INET : AF_INET6);
  route.message.header.rtm_dst_len = route.message.header.rtm_src_len = static_cast<unsigned char>(8 * address_len);
  route.add(RTA_DST, to);
  route.add(RTA_SRC, from);
  if (to.scope != 0) route.add(RTA_OIF, &to.scope, sizeof to.scope);
  Answer answer;
  if (int ret = answer.ask(route); ret != 0) return ret;
  const unsigned char type = answer.header<rtmsg>().rtm_type;
  out.local = type == RTN_LOCAL;
  if (uint16_t encap; answer.get(RTA_ENCAP_TYPE, &encap, sizeof encap)) return -EPROTONOSUPPORT;
  if (type != RTN_UNICAST || !answer.get(RTA_OIF, &out.ifindex, sizeof out.ifindex)) return -EHOSTUNREACH;
  out.address = to;
  out.address.port = 0;
  out.address.scope = 0;
  answer.get(RTA_GATEWAY, address_at(out.address), address_len);
  return 0;
}

int resolve(NextHop& hop) {
  Question<ndmsg> neighbour(RTM_GETNEIGH);
  neighbour.message.header.ndm_family = static_cast<unsigned char>(hop.address.ipv4() ? AF_INET : AF_INET6);
  neighbour.message.header.ndm_ifindex = static_cast<int>(hop.ifindex);
  neighbour.add(NDA_DST, hop.address);
  Answer answer;
  if (int ret = answer.ask(neighbour); ret != 0) return ret == -ENOENT ? -EHOSTUNREACH : ret;
  if ((answer.header<ndmsg>().ndm_state & kKnown) == 0 || !answer.get(NDA_LLADDR, hop.mac.data(), hop.mac.size()))
    return -EHOSTUNREACH;
  return 0;
}

bool neighbour_in(const nlmsghdr& message, size_t len, NextHop& out) {
  if (message.nlmsg_type != RTM_NEWNEIGH || len < NLMSG_LENGTH(sizeof(ndmsg))) return false;
  const auto& nd = *reinterpret_cast<const ndmsg*>(NLMSG_DATA(&message));
  if ((nd.ndm_family != AF_INET && nd.ndm_family != AF_INET6) || (nd.ndm_state & kKnown) == 0) return false;
  const Attributes attributes(message, sizeof(ndmsg));
  out.ifindex = static_cast<uint32_t>(nd.ndm_ifindex);
  out.address = endpoint_any(nd.ndm_family == AF_INET);
  return attributes.get(NDA_DST, address_at(out.address), nd.ndm_family == AF_INET ? 4 : 16) &&
         attributes.get(NDA_LLADDR, out.mac.data(), out.mac.size());
}

}  // namespace usiw::run
