// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// Engine, progress thread and DPDK port together: two ends in one process, over lo, without
/// the module. Needs CAP_NET_RAW; skipped without.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "port/ethdev_port.h"
#include "progress/clock.h"
#include "progress/progress.h"
#include "uapi/usiw_abi.h"

namespace usiw {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr uint32_t kStag = 0x100;

/// One end: what the provider's runtime is, without the kernel.
class Node final : public EngineEvents, public Driven, public Watcher {
 public:
  Node(uint8_t host, uint16_t udp_port) : udp_port_(htons(udp_port)) {
    addr_ = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, host};
    std::string why;
    port_ = EthdevPort::create({"lo", if_nametoindex("lo"), 1500}, why, error);
    if (!port_) return;
    sink_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = udp_port_;
    std::memcpy(&a.sin_addr, &addr_[12], 4);
    EXPECT_EQ(bind(sink_, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
    EXPECT_EQ(port_->filter().add(udp_port_), 0);
    Progress::Hold hold(progress);
    port_number_ = engine->add_port(*port_);
    cq = engine->cq_create(1024, this);
    qp = engine->qp_create({.qpn = host,
                            .pd = 1,
                            .send_cq = cq,
                            .recv_cq = cq,
                            .max_send_wr = 256,
                            .max_recv_wr = 256,
                            .max_send_sge = 4,
                            .max_recv_sge = 4,
                            .max_inline = 64,
                            .sq_sig_all = false,
                            .owner = this});
    EXPECT_EQ(engine->mr_add({.stag = kStag,
                              .pd = 1,
                              .access = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead,
                              .addr = reinterpret_cast<uintptr_t>(memory.data()),
                              .length = memory.size(),
                              .iova = reinterpret_cast<uintptr_t>(memory.data())}),
              0);
    progress.watch(port_->wait_fd(), Progress::Kind::kPacket, *this);
    EXPECT_EQ(progress.start(), 0);
  }
  ~Node() override {
    if (sink_ >= 0) close(sink_);
  }

  void connect(const Node& peer, bool initiator) {
    Path path{};
    path.flow = {addr_, peer.addr_, udp_port_, peer.udp_port_};
    path.hop_limit = 64;
    Progress::Hold hold(progress);
    uint32_t here = initiator ? 1000u : 0xfffffff0u, there = initiator ? 0xfffffff0u : 1000u;
    ASSERT_EQ(engine->qp_connect(qp, port_number_, path,
                                 {.snd_psn = here,
                                  .rcv_psn = there,
                                  .snd_window = 64,
                                  .ird = 16,
                                  .ord = 16,
                                  .mtu = 1500,
                                  .initiator = initiator}),
              0);
  }

  void post_recv(uint64_t id, size_t at, uint32_t len) {
    Sge sge{reinterpret_cast<uintptr_t>(&memory[at]), len, kStag};
    ASSERT_EQ(qp->post_recv(id, std::span(&sge, 1)), 0);
    qp->ring_recv();
  }
  void post(WrOpcode op, uint64_t id, size_t at, uint32_t len, const Node* peer = nullptr, size_t peer_at = 0) {
    Sge sge{reinterpret_cast<uintptr_t>(&memory[at]), len, kStag};
    ASSERT_EQ(qp->post_send({.wr_id = id,
                             .opcode = op,
                             .flags = kWrSignaled,
                             .remote_addr = peer ? reinterpret_cast<uintptr_t>(&peer->memory[peer_at]) : 0,
                             .rkey = kStag},
                            std::span(&sge, 1)),
              0);
    qp->ring_send();
    progress.posted();
  }
  /// Polls as an application would. False after @p limit.
  bool wait(WcOpcode opcode, Steady::duration limit = 5s) {
    auto until = Steady::now() + limit;
    for (unsigned empty = 0;; empty++) {
      Cqe c;
      while (cq->poll(std::span(&c, 1)) == 1) {
        EXPECT_EQ(c.status, WcStatus::kSuccess);
        if (c.opcode == opcode) return true;
      }
      if (Steady::now() > until) return false;
      progress.polled_empty(empty);
    }
  }

  unsigned drive() override { return engine->progress(); }
  uint64_t next_deadline_ns() override { return engine->next_deadline_ns(); }
  void released() override {}
  bool ready(int, short) override { return true; }
  void cq_ready(Cq&) override { ready_events.fetch_add(1); }
  void cq_overrun(Cq&) override {}
  void qp_peer_closed(Qp&) override {}
  void qp_closed(Qp&) override {}
  void qp_failed(Qp&, int, AsyncEvent) override {}

  std::vector<std::byte> memory = std::vector<std::byte>(1 << 20);
  std::atomic<int> ready_events{0};
  int error = 0;
  Cq* cq = nullptr;
  Qp* qp = nullptr;
  MonotonicClock clock;
  uint64_t counters[USIW_CNT_MAX] = {};

 private:
  std::unique_ptr<EthdevPort> port_;
  std::array<uint8_t, 16> addr_{};
  uint16_t udp_port_;
  int sink_ = -1;
  int port_number_ = -1;

 public:
  std::unique_ptr<Engine> engine = std::make_unique<Engine>(clock, *this, counters);
  Progress progress{*this, clock, Progress::Mode::kAdaptive};
};

void print_progress(const char* who, const Node& n) {
  const Progress::Stats& s = n.progress.stats();
  printf("  %s: thread runs %lu, sleeps %lu, standbys %lu (penalties %lu), doorbells %lu\n", who,
         s.runs.load(), s.sleeps.load(), s.standbys.load(), s.penalties.load(), s.doorbells.load());
}

class StackTest : public testing::Test {
 protected:
  void SetUp() override {
    a = std::make_unique<Node>(1, 20601);
    b = std::make_unique<Node>(2, 20602);
    if (a->error == EPERM || b->error == EPERM) GTEST_SKIP() << "no permission for raw sockets";
    ASSERT_NE(a->qp, nullptr);
    a->connect(*b, true);
    b->connect(*a, false);
  }
  std::unique_ptr<Node> a, b;
};

TEST_F(StackTest, PingPongOfTwoPollingThreads) {
  constexpr int kRounds = 2000;
  for (int i = 0; i < 16; i++) {
    a->post_recv(0, 0, 4096);
    b->post_recv(0, 0, 4096);
  }
  auto start = Steady::now();
  std::thread other([&] {
    for (int i = 0; i < kRounds; i++) {
      ASSERT_TRUE(b->wait(WcOpcode::kRecv)) << i;
      b->post_recv(0, 0, 4096);
      b->post(WrOpcode::kSend, 1, 8192, 64);
    }
  });
  for (int i = 0; i < kRounds; i++) {
    a->post(WrOpcode::kSend, 1, 8192, 64);
    ASSERT_TRUE(a->wait(WcOpcode::kRecv)) << i;
    a->post_recv(0, 0, 4096);
  }
  other.join();
  auto us = std::chrono::duration<double, std::micro>(Steady::now() - start).count();
  printf("ping-pong: %.2f us one way; retransmissions %lu + %lu, RTO %lu + %lu\n", us / kRounds / 2,
         a->counters[USIW_CNT_RETRANS_FAST] + a->counters[USIW_CNT_RETRANS_RTO],
         b->counters[USIW_CNT_RETRANS_FAST] + b->counters[USIW_CNT_RETRANS_RTO],
         a->counters[USIW_CNT_RTO], b->counters[USIW_CNT_RTO]);
  print_progress("a", *a);
  print_progress("b", *b);
}

TEST_F(StackTest, LargeWriteAndReadWhileThePeerSleeps) {
  // Nobody polls at b: its progress thread alone must serve the wire.
  for (size_t i = 0; i < a->memory.size(); i++) a->memory[i] = static_cast<std::byte>(i * 7 + i / 251);
  auto start = Steady::now();
  constexpr int kTimes = 32;
  for (int i = 0; i < kTimes; i++) {
    a->post(WrOpcode::kRdmaWrite, 1, 0, 1 << 20, b.get(), 0);
    ASSERT_TRUE(a->wait(WcOpcode::kRdmaWrite));
  }
  auto s = std::chrono::duration<double>(Steady::now() - start).count();
  printf("write: %.0f MiB/s; retransmissions %lu fast %lu RTO\n", kTimes / s,
         a->counters[USIW_CNT_RETRANS_FAST], a->counters[USIW_CNT_RETRANS_RTO]);
  EXPECT_EQ(std::memcmp(a->memory.data(), b->memory.data(), a->memory.size()), 0);
  std::vector<std::byte> want(a->memory);
  std::fill(a->memory.begin(), a->memory.end(), std::byte{0});
  a->post(WrOpcode::kRdmaRead, 2, 0, 1 << 20, b.get(), 0);
  ASSERT_TRUE(a->wait(WcOpcode::kRdmaRead));
  EXPECT_EQ(a->memory, want);
}

TEST_F(StackTest, EventModeWakesASleepingApplication) {
  b->post_recv(0, 0, 4096);
  b->cq->arm(false);
  b->progress.arming();
  std::this_thread::sleep_for(100ms);
  a->post(WrOpcode::kSend, 1, 0, 64);
  auto until = Steady::now() + 2s;
  while (b->ready_events == 0 && Steady::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(b->ready_events, 1);
  EXPECT_TRUE(a->wait(WcOpcode::kSend));
}

TEST_F(StackTest, WaitingInMemoryWithoutPolling) {
  // As ib_write_lat does: the receiver looks at the last byte and calls nothing.
  constexpr int kRounds = 200;
  auto byte_of = [](Node& n) { return static_cast<volatile std::byte*>(&n.memory[63]); };
  auto side = [&](Node& me, Node& peer, bool first) {
    for (int i = 1; i <= kRounds; i++) {
      auto mark = static_cast<std::byte>(i);
      auto send = [&] {
        me.memory[4096 + 63] = mark;
        me.post(WrOpcode::kRdmaWrite, 1, 4096, 64, &peer, 0);
        ASSERT_TRUE(me.wait(WcOpcode::kRdmaWrite));
      };
      if (first) send();
      auto until = Steady::now() + 5s;
      while (*byte_of(me) != mark && Steady::now() < until) std::this_thread::yield();
      ASSERT_TRUE(*byte_of(me) == mark) << i;
      if (!first) send();
    }
  };
  auto start = Steady::now();
  std::thread other([&] { side(*b, *a, false); });
  side(*a, *b, true);
  other.join();
  printf("write in memory: %.1f us one way\n",
         std::chrono::duration<double, std::micro>(Steady::now() - start).count() / kRounds / 2);
  print_progress("a", *a);
  print_progress("b", *b);
}

}  // namespace
}  // namespace usiw
