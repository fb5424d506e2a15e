// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// The DPDK port on lo: needs CAP_NET_RAW (and CAP_NET_ADMIN for nothing); skipped without.
#include "port/ethdev_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <poll.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace usiw {
namespace {

constexpr uint16_t kPortA = 0x0a51, kPortB = 0x0b51;  // network byte order, as they are

Path lo_path() {
  Path p{};
  p.flow.local_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  p.flow.remote_addr = p.flow.local_addr;
  p.flow.local_port = kPortA;
  p.flow.remote_port = kPortB;
  p.hop_limit = 64;
  return p;
}

class EthdevPortTest : public testing::Test {
 protected:
  std::unique_ptr<EthdevPort> make(uint32_t mtu = 1500, const std::atomic<uint32_t>* link_mtu = nullptr) {
    std::string why;
    int error = 0;
    auto port = EthdevPort::create({"lo", if_nametoindex("lo"), mtu, link_mtu}, why, error);
    EXPECT_TRUE(port || error == EPERM) << why;
    return port;
  }

  /// A bound socket of the kernel, as usiw.ko has one: no ICMP comes back.
  static int sink() {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = kPortB;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    return fd;
  }

  /// Receives until @p want datagrams or 200 ms; returns how many came.
  static size_t receive(EthdevPort& port, size_t want, std::vector<RxBuf>* keep = nullptr) {
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    size_t got = 0;
    while (got < want && std::chrono::steady_clock::now() < end) {
      RxBuf bufs[64];
      size_t n = port.rx(bufs);
      got += n;
      for (size_t i = 0; i < n; i++) {
        if (keep)
          keep->push_back(bufs[i]);
        else
          port.rx_free(std::span(bufs + i, 1));
      }
    }
    return got;
  }

  static size_t send(EthdevPort& port, const Path& path, size_t count, uint32_t len) {
    std::vector<TxBuf> bufs(count);
    size_t n = port.tx_alloc(bufs);
    for (size_t i = 0; i < n; i++) {
      std::memset(bufs[i].data, 0, len);
      std::memcpy(bufs[i].data, &i, 4);
      bufs[i].len = len;
      bufs[i].path = &path;
    }
    return port.tx(std::span(bufs).first(n));
  }
};

// The netdev's MTU has fallen under connections: what is too long is lost, not handed to the kernel.
TEST_F(EthdevPortTest, PacketsBeyondTheNetdevsMtuAreLost) {
  std::atomic<uint32_t> link_mtu{1500};
  auto port = make(1500, &link_mtu);
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  ASSERT_EQ(port->filter().add(kPortB), 0);
  EXPECT_EQ(send(*port, path, 3, 1472), 3u);
  EXPECT_EQ(receive(*port, 3), 3u);
  link_mtu = 600;
  EXPECT_EQ(send(*port, path, 100, 573), 100u) << "lost counts as sent";
  EXPECT_EQ(receive(*port, 1), 0u);
  EXPECT_EQ(send(*port, path, 64, 572), 64u);
  EXPECT_EQ(receive(*port, 64), 64u);
  std::vector<TxBuf> bufs(3);
  ASSERT_EQ(port->tx_alloc(bufs), 3u);
  for (size_t i = 0; i < 3; i++) {
    std::memset(bufs[i].data, 0, 1000);
    bufs[i].len = i == 1 ? 1000 : 100;
    bufs[i].path = &path;
  }
  EXPECT_EQ(port->tx(bufs), 3u);
  EXPECT_EQ(receive(*port, 3), 2u);
  link_mtu = 1500;
  EXPECT_EQ(send(*port, path, 3, 1472), 3u);
  EXPECT_EQ(receive(*port, 3), 3u);
  close(fd);
}

TEST_F(EthdevPortTest, DatagramsCrossLoAndTheFilterHolds) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  EXPECT_EQ(port->max_payload(), 1472u);

  EXPECT_EQ(send(*port, path, 10, 100), 10u);
  EXPECT_EQ(receive(*port, 1), 0u) << "the filter rejects everything at first";

  ASSERT_EQ(port->filter().add(kPortB), 0);
  std::vector<RxBuf> got;
  EXPECT_EQ(send(*port, path, 64, 1472), 64u);
  pollfd p{port->wait_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 200), 1);
  EXPECT_EQ(receive(*port, 64, &got), 64u);
  for (size_t i = 0; i < got.size(); i++) {
    uint32_t n;
    std::memcpy(&n, got[i].data, 4);
    EXPECT_EQ(n, i);
    EXPECT_EQ(got[i].len, 1472u);
    EXPECT_EQ(got[i].flow.local_port, kPortB);
    EXPECT_EQ(got[i].flow.remote_port, kPortA);
  }
  port->rx_free(got);
  EXPECT_EQ(receive(*port, 1), 0u) << "own transmissions come back once only";

  // Kernel opcodes never wake the process.
  std::vector<TxBuf> one(1);
  ASSERT_EQ(port->tx_alloc(one), 1u);
  std::memset(one[0].data, 0, 14);
  one[0].data[8] = std::byte{0x10};
  one[0].len = 14;
  one[0].path = &path;
  EXPECT_EQ(port->tx(one), 1u);
  EXPECT_EQ(poll(&p, 1, 50), 0);

  port->filter().remove(kPortB);
  send(*port, path, 3, 60);
  EXPECT_EQ(receive(*port, 1), 0u);
  EXPECT_EQ(port->drops().checksum + port->drops().malformed, 0u);
  close(fd);
}

TEST_F(EthdevPortTest, ManyBurstsDoNotStall) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  ASSERT_EQ(port->filter().add(kPortB), 0);
  size_t sent = 0, got = 0;
  for (int i = 0; i < 500; i++) {
    sent += send(*port, path, 64, 1000);
    got += receive(*port, 64);
  }
  EXPECT_EQ(sent, 32000u);
  EXPECT_EQ(got, sent);
  close(fd);
}

/// Breaks the frames that the newest DPDK port receives into several buffers, as an adapter with small buffers does.
class Broken {
 public:
  /// Each frame is cut at these offsets. @p room: its first buffer can take the rest of the frame.
  Broken(std::vector<uint16_t> cuts, bool room) : cuts_(std::move(cuts)), room_(room) {
    uint16_t id;
    RTE_ETH_FOREACH_DEV(id) port_ = id;
    callback_ = rte_eth_add_rx_callback(
        port_, 0,
        [](uint16_t, uint16_t, rte_mbuf** frames, uint16_t n, uint16_t, void* self) {
          if (n != 0) static_cast<Broken*>(self)->look(*frames[0], n);
          for (uint16_t i = 0; i < n; i++) frames[i] = static_cast<Broken*>(self)->broken(frames[i]);
          return n;
        },
        this);
    EXPECT_NE(callback_, nullptr);
  }
  ~Broken() { rte_eth_remove_rx_callback(port_, 0, callback_); }
  Broken(const Broken&) = delete;
  Broken& operator=(const Broken&) = delete;

  unsigned count = 0;
  unsigned free_before = 0;  ///< buffers of the pool, before the first
  rte_mempool* pool = nullptr;

 private:
  void look(const rte_mbuf& frame, unsigned n) {
    count += n;
    if (pool != nullptr) return;
    pool = frame.pool;
    free_before = rte_mempool_avail_count(pool) + n;
  }
  rte_mbuf* broken(rte_mbuf* whole) {
    const char* const at = rte_pktmbuf_mtod(whole, const char*);
    rte_mbuf* first = nullptr;
    uint16_t from = 0;
    for (size_t i = 0; i <= cuts_.size(); i++) {
      const uint16_t to = i < cuts_.size() ? std::min(cuts_[i], whole->data_len) : whole->data_len;
      rte_mbuf* const piece = rte_pktmbuf_alloc(whole->pool);
      const auto length = static_cast<uint16_t>(to - from);
      if (first == nullptr && !room_) piece->data_off = static_cast<uint16_t>(piece->buf_len - length);
      std::memcpy(rte_pktmbuf_append(piece, length), at + from, length);
      if (first == nullptr)
        first = piece;
      else
        EXPECT_EQ(rte_pktmbuf_chain(first, piece), 0);
      from = to;
    }
    rte_pktmbuf_free(whole);
    return first;
  }

  const std::vector<uint16_t> cuts_;
  const bool room_;
  uint16_t port_ = 0;
  const rte_eth_rxtx_callback* callback_;
};

// In front of the data are 42 bytes of headers on lo: Ethernet 14, IPv4 20, UDP 8.
TEST_F(EthdevPortTest, FramesInSeveralBuffersAreReceivedWhole) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  ASSERT_EQ(port->filter().add(kPortB), 0);
  const std::vector<uint16_t> kCuts[] = {{42},              // the data alone in the second one
                                         {14}, {20}, {38},  // within the headers
                                         {1, 15, 39, 57, 700}};
  for (const auto& cuts : kCuts) {
    SCOPED_TRACE(testing::Message() << "first cut at " << cuts[0]);
    Broken broken(cuts, true);
    for (const uint32_t len : {60u, 1000u, 1472u}) {
      std::vector<TxBuf> bufs(8);
      ASSERT_EQ(port->tx_alloc(bufs), 8u);
      for (size_t i = 0; i < bufs.size(); i++) {
        for (uint32_t at = 0; at < len; at++) bufs[i].data[at] = static_cast<std::byte>(at * 7 + i);
        bufs[i].data[8] = std::byte{0};  // the opcode, for the filter
        bufs[i].len = len;
        bufs[i].path = &path;
      }
      ASSERT_EQ(port->tx(bufs), 8u);
      std::vector<RxBuf> got;
      ASSERT_EQ(receive(*port, 8, &got), 8u);
      for (size_t i = 0; i < got.size(); i++) {
        ASSERT_EQ(got[i].len, len);
        EXPECT_EQ(got[i].flow.local_port, kPortB);
        for (uint32_t at = 0; at < len; at++)
          ASSERT_EQ(got[i].data[at], at == 8 ? std::byte{0} : static_cast<std::byte>(at * 7 + i)) << at;
      }
      port->rx_free(got);
    }
    EXPECT_EQ(broken.count, 24u);
    EXPECT_EQ(rte_mempool_avail_count(broken.pool), broken.free_before) << "buffers are missing";
  }
  EXPECT_EQ(port->drops().malformed + port->drops().checksum, 0u);
  close(fd);
}

TEST_F(EthdevPortTest, FramesThatNoBufferCanHoldAreMalformed) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  ASSERT_EQ(port->filter().add(kPortB), 0);
  {
    Broken broken({42}, false);
    EXPECT_EQ(send(*port, path, 5, 1000), 5u);
    EXPECT_EQ(receive(*port, 1), 0u);
    EXPECT_EQ(broken.count, 5u);
    EXPECT_EQ(port->drops().malformed, 5u);
    EXPECT_EQ(port->drops().checksum, 0u);
    EXPECT_EQ(rte_mempool_avail_count(broken.pool), broken.free_before) << "buffers are missing";
  }
  EXPECT_EQ(send(*port, path, 5, 1000), 5u);
  EXPECT_EQ(receive(*port, 5), 5u);
  EXPECT_EQ(port->drops().malformed, 5u);
  close(fd);
}

/// Several datagrams as one frame, which the kernel has yet to take apart: nobody could tell where each ends.
TEST_F(EthdevPortTest, MergedDatagramsAreTheSockets) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  const int fd = sink(), from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), each = 1000;
  ASSERT_EQ(port->filter().add(kPortB), 0);
  sockaddr_in to{};
  socklen_t len = sizeof to;
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&to), &len), 0);
  ASSERT_EQ(connect(from, reinterpret_cast<sockaddr*>(&to), len), 0);
  const char five[5000] = {};
  ASSERT_EQ(::send(from, five, each, 0), each);
  EXPECT_EQ(receive(*port, 1), 1u);
  ASSERT_EQ(setsockopt(from, SOL_UDP, UDP_SEGMENT, &each, sizeof each), 0);
  ASSERT_EQ(::send(from, five, sizeof five, 0), static_cast<ssize_t>(sizeof five));
  EXPECT_EQ(receive(*port, 1), 0u);
  close(from);
  close(fd);
}

TEST_F(EthdevPortTest, FloodingAFullRingReturnsAtOnce) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  ASSERT_EQ(port->filter().add(kPortB), 0);
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; i++) send(*port, path, 64, 1472);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_GT(receive(*port, 1u << 20), 0u);
  close(fd);
}

TEST_F(EthdevPortTest, ManyPortsFallBackToAllUdp) {
  auto port = make();
  if (!port) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  for (unsigned i = 0; i <= PacketFilter::kMaxPorts; i++)
    ASSERT_EQ(port->filter().add(htons(static_cast<uint16_t>(30000 + i))), 0) << i;
  send(*port, path, 1, 60);
  EXPECT_EQ(receive(*port, 1), 1u);
  port->filter().remove(htons(30000));
  send(*port, path, 1, 60);
  EXPECT_EQ(receive(*port, 1), 0u);
  close(fd);
}

TEST_F(EthdevPortTest, JumboAndTwoPortsAtOnce) {
  auto small = make(), jumbo = make(9216);
  if (!small || !jumbo) GTEST_SKIP() << "no permission for raw sockets";
  int fd = sink();
  Path path = lo_path();
  ASSERT_EQ(jumbo->filter().add(kPortB), 0);
  EXPECT_EQ(send(*jumbo, path, 32, 9188), 32u);
  EXPECT_EQ(receive(*jumbo, 32), 32u);
  EXPECT_EQ(receive(*small, 1), 0u);
  close(fd);
}

TEST_F(EthdevPortTest, LeavesTheProcessAsItWas) {
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof before, &before);
  sigset_t mask_before{}, mask_after{};
  pthread_sigmask(SIG_BLOCK, nullptr, &mask_before);
  auto count_fds = [] {
    size_t n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
  };
  { auto port = make(); }
  size_t fds = count_fds();
  for (int i = 0; i < 5; i++) auto port = make();
  EXPECT_EQ(count_fds(), fds) << "file descriptors leak";
  sched_getaffinity(0, sizeof after, &after);
  pthread_sigmask(SIG_BLOCK, nullptr, &mask_after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_EQ(std::memcmp(&mask_before, &mask_after, sizeof mask_before), 0);
}

TEST_F(EthdevPortTest, WrongInterfaceIsExplained) {
  std::string why;
  int error = 0;
  EXPECT_EQ(EthdevPort::create({"nosuch0", 4711, 1500}, why, error), nullptr);
  EXPECT_EQ(error, ENODEV);
  EXPECT_NE(why.find("nosuch0"), std::string::npos);
}

}  // namespace
}  // namespace usiw
