// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "next_hop.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace usiw::run {
namespace {

/// A request to rtnetlink, and the answer to it.
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
  void add(uint16_t type, const Endpoint& e) {
    if (e.ipv4())
      add(type, &e.addr.s6_addr32[3], 4);
    else
      add(type, &e.addr, 16);
  }
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
  /// Copies an attribute of exactly this size; false if there is none.
  bool get(uint16_t type, void* out, size_t len) const {
    auto* nl = reinterpret_cast<const nlmsghdr*>(buf_);
    auto* a = reinterpret_cast<const rtattr*>(buf_ + NLMSG_SPACE(header_len_));
    int left = static_cast<int>(nl->nlmsg_len - NLMSG_SPACE(header_len_));
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
      if (a->rta_type == type && RTA_PAYLOAD(a) == len) {
        std::memcpy(out, RTA_DATA(a), len);
        return true;
      }
    return false;
  }

 private:
  alignas(nlmsghdr) char buf_[8192];
  size_t header_len_ = 0;
};

}  // namespace

int next_hop(const Endpoint& from, const Endpoint& to, NextHop& out) {
  const auto family = static_cast<unsigned char>(to.ipv4() ? AF_INET : AF_INET6);
  const size_t address_len = to.ipv4() ? 4 : 16;
  Question<rtmsg> route(RTM_GETROUTE);
  route.message.header.rtm_family = family;
  route.message.header.rtm_dst_len = route.message.header.rtm_src_len = static_cast<unsigned char>(8 * address_len);
  route.add(RTA_DST, to);
  route.add(RTA_SRC, from);
  if (to.scope != 0) route.add(RTA_OIF, &to.scope, sizeof to.scope);
  Answer answer;
  if (int ret = answer.ask(route); ret != 0) return ret;
  out = {};
  if (answer.header<rtmsg>().rtm_type != RTN_UNICAST || !answer.get(RTA_OIF, &out.ifindex, sizeof out.ifindex))
    return -EHOSTUNREACH;
  Endpoint hop = to;
  answer.get(RTA_GATEWAY, to.ipv4() ? static_cast<void*>(&hop.addr.s6_addr32[3]) : &hop.addr, address_len);

  Question<ndmsg> neighbour(RTM_GETNEIGH);
  neighbour.message.header.ndm_family = family;
  neighbour.message.header.ndm_ifindex = static_cast<int>(out.ifindex);
  neighbour.add(NDA_DST, hop);
  if (int ret = answer.ask(neighbour); ret != 0) return ret == -ENOENT ? -EHOSTUNREACH : ret;
  constexpr uint16_t kKnown = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  if ((answer.header<ndmsg>().ndm_state & kKnown) == 0 || !answer.get(NDA_LLADDR, out.mac.data(), out.mac.size()))
    return -EHOSTUNREACH;
  return 0;
}

}  // namespace usiw::run
