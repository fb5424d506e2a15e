// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of tools/run/conn/shared_port.h: a port that several are bound to becomes one process's alone, against another
// user whose UDP sockets come at every moment and by every way. In a network namespace of its own, so it needs root.
#include "tools/run/conn/shared_port.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace usiw::run {
namespace {

constexpr uid_t kOther = 1001;
constexpr uint16_t kPort = 7471;

Endpoint at(const std::string& address, uint16_t port = kPort) {
  Endpoint e;
  EXPECT_TRUE(parse_address(address, e)) << address;
  e.port = htons(port);
  return e;
}

/// This thread acts as another user, and what it makes meanwhile is that user's.
class AsOther {
 public:
  AsOther() { EXPECT_EQ(syscall(SYS_setresuid, -1, kOther, -1), 0); }
  ~AsOther() { EXPECT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0); }
};

class Socket {
 public:
  /// @p mapped: addresses of IPv4 by a socket of IPv6.
  explicit Socket(bool ipv4, bool mapped = false)
      : ipv6_(!ipv4 || mapped), fd_(socket(ipv6_ ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {}
  Socket(Socket&& other) : ipv6_(other.ipv6_), fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket& with(int option, int level = SOL_SOCKET) {
    const int on = 1;
    EXPECT_EQ(setsockopt(fd_, level, option, &on, sizeof on), 0);
    return *this;
  }
  /// 0 or an errno value.
  int bind_to(const Endpoint& to) { return call(bind, to); }
  int connect_to(const Endpoint& to) { return call(connect, to); }
  bool forget_peer() {
    const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
    return connect(fd_, &none, sizeof none) == 0;
  }
  void send_to(const Endpoint& to) {
    sockaddr_storage sa;
    const socklen_t len = name(to, sa);
    EXPECT_EQ(sendto(fd_, "x", 1, 0, reinterpret_cast<sockaddr*>(&sa), len), 1);
  }
  bool received() {
    char byte;
    return recv(fd_, &byte, 1, 0) == 1;
  }
  ino_t inode() const {
    struct stat about {};
    EXPECT_EQ(fstat(fd_, &about), 0);
    return about.st_ino;
  }
  int fd() const { return fd_; }

 private:
  socklen_t name(const Endpoint& e, sockaddr_storage& sa) const {
    if (!e.ipv4() || !ipv6_) return endpoint_to(e, sa);
    sa = {};
    auto& sin6 = reinterpret_cast<sockaddr_in6&>(sa);
    sin6.sin6_family = AF_INET6;
    sin6.sin6_addr = e.addr;
    sin6.sin6_port = e.port;
    return sizeof sin6;
  }
  template <typename Call>
  int call(Call what, const Endpoint& e) {
    sockaddr_storage sa;
    const socklen_t len = name(e, sa);
    return what(fd_, reinterpret_cast<sockaddr*>(&sa), len) == 0 ? 0 : errno;
  }
  bool ipv6_;
  int fd_;
};

class SharedPort : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "needs root, for another user's sockets";
    Socket any(true);
    ifreq lo{.ifr_ifrn = {"lo"}, .ifr_ifru = {}};
    lo.ifr_flags = IFF_UP | IFF_RUNNING;
    ASSERT_EQ(ioctl(any.fd(), SIOCSIFFLAGS, &lo), 0);
  }
  static bool of_ipv4() { return at(GetParam()).ipv4(); }
  /// Who has bound the port, and lets others come.
  static Socket sharer(const std::string& address = GetParam()) {
    const Endpoint to = at(address);
    Socket s(to.ipv4());
    if (!to.ipv4()) s.with(IPV6_V6ONLY, IPPROTO_IPV6);
    s.with(SO_REUSEADDR);
    EXPECT_EQ(s.bind_to(to), 0);
    return s;
  }
  static int claim(const Socket& s, const std::function<void()>& between = nullptr) {
    return claim_port(s.fd(), at(GetParam()), {s.inode()}, between);
  }
  /// Another user's socket, bound to @p to; one that must get there is @p welcome.
  static Socket foreign(const Endpoint& to, bool mapped, int option, bool welcome) {
    AsOther user;
    Socket s(to.ipv4(), mapped);
    if (option != 0) s.with(option);
    EXPECT_EQ(s.bind_to(to), welcome ? 0 : EADDRINUSE) << "option " << option << ", mapped " << mapped;
    return s;
  }
  /// Where a socket overlaps with the parameter's: its address, and whether it is one of IPv6 for IPv4.
  static std::vector<std::pair<Endpoint, bool>> places() {
    std::vector<std::pair<Endpoint, bool>> all{{at(GetParam()), false}, {at("::"), false}};
    if (of_ipv4())
      all.insert(all.end(), {{at(GetParam()), true}, {at("0.0.0.0"), false}, {at("0.0.0.0"), true}});
    return all;
  }
  static void nobody_comes() {
    for (const auto& [to, mapped] : places())
      for (int option : {0, SO_REUSEADDR, SO_REUSEPORT}) foreign(to, mapped, option, false);
  }
};

INSTANTIATE_TEST_SUITE_P(At, SharedPort, testing::Values("127.0.0.1", "::1"));

TEST_P(SharedPort, whoever_comes_between_the_steps_is_refused) {
  Socket own = sharer();
  bool came = false;
  EXPECT_EQ(claim(own, [&] { nobody_comes(), came = true; }), 0);
  EXPECT_TRUE(came);
  nobody_comes();
  Socket peer(of_ipv4());
  peer.send_to(at(GetParam()));
  EXPECT_TRUE(own.received());
}

TEST_P(SharedPort, whoever_was_there_before_is_found) {
  for (const auto& [to, mapped] : places()) {
    Socket own = sharer();
    {
      const Socket there = foreign(to, mapped, SO_REUSEADDR, true);
      EXPECT_EQ(claim(own), -EADDRINUSE) << mapped;
      foreign(to, mapped, SO_REUSEADDR, true);  // as before, it is shared
    }
    EXPECT_EQ(claim(own), 0);
  }
}

// On all addresses of both families it is the last to get a datagram, until it connects to whoever sends.
TEST_P(SharedPort, whoever_waits_on_both_families_is_found) {
  if (!of_ipv4()) return;
  Socket own = sharer(), peer(true);
  ASSERT_EQ(peer.bind_to(at("127.0.0.9", 9)), 0);
  Socket thief = foreign(at("::"), false, SO_REUSEADDR, true);
  peer.send_to(at(GetParam()));
  EXPECT_TRUE(own.received());
  EXPECT_EQ(claim(own), -EADDRINUSE);
  ASSERT_EQ(thief.connect_to(at("127.0.0.9", 9)), 0);
  peer.send_to(at(GetParam()));
  EXPECT_FALSE(own.received());
  EXPECT_EQ(claim(own), -EADDRINUSE);
}

// Connected, a socket that is bound to all addresses stands at one. It may do so between the steps.
TEST_P(SharedPort, whoever_has_connected_from_another_address_is_found) {
  if (!of_ipv4()) return;
  for (bool mapped : {false, true}) {
    Socket thief = foreign(at("0.0.0.0"), mapped, SO_REUSEADDR, true);
    ASSERT_EQ(thief.connect_to(at("127.0.0.1", 9)), 0);  // from 127.0.0.1
    Socket beside = sharer("127.0.0.2");
    const auto claim_beside = [&](const std::function<void()>& between = nullptr) {
      return claim_port(beside.fd(), at("127.0.0.2"), {beside.inode()}, between);
    };
    EXPECT_EQ(claim_beside(), -EADDRINUSE);
    ASSERT_TRUE(thief.forget_peer());  // on all addresses again: nothing is asked
    EXPECT_EQ(claim_beside(), -EADDRINUSE);
    EXPECT_EQ(claim_beside([&] { ASSERT_EQ(thief.connect_to(at("127.0.0.1", 9)), 0); }), -EADDRINUSE);
  }
}

TEST_P(SharedPort, of_two_who_claim_it_at_a_time_at_most_one_gets_it) {
  Socket first = sharer(), second = sharer();
  int other = 0;
  EXPECT_EQ(claim(first, [&] { other = claim(second); }), -EADDRINUSE);
  EXPECT_EQ(other, -EADDRINUSE);
  { const Socket gone(std::move(second)); }
  EXPECT_EQ(claim(first), 0);
}

TEST_P(SharedPort, others_do_not_matter) {
  Socket own = sharer();
  const Socket another_port = foreign(at(GetParam(), kPort + 1), false, 0, true);
  const Socket another_address = foreign(at(of_ipv4() ? "127.0.0.2" : "127.0.0.1"), false, 0, true);
  const Socket mine = sharer();
  EXPECT_EQ(claim_port(own.fd(), at(GetParam()), {own.inode(), mine.inode()}), 0);
}

}  // namespace
}  // namespace usiw::run
