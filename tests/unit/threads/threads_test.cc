// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file threads_test.cc
/// Engine, progress thread and the engine's gate, used by many threads at a time as a program and its control path use
/// them. ThreadSanitizer judges: this is built only for it (USIW_SANITIZE=thread).
///
/// Two nodes have several connections through memory. At each node threads post, poll one CQ in turn, arm it, and block
/// until it is ready. Meanwhile others resize the CQs, create and destroy QPs with work under way, remove regions that
/// are in use and then write to their memory, and move connections between two ports.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/turn.h"
#include "memory_port.h"
#include "progress/clock.h"
#include "runtime/engine_gate.h"
#include "uapi/usiw_abi.h"

/// One race is enough: each costs seconds to print.
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }

namespace usiw {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kSteady = 3;        ///< connections with traffic all the time
constexpr uint32_t kMessages = 600;    ///< that each of them sends from one node
constexpr uint32_t kWindow = 8;        ///< work requests under way
constexpr uint32_t kLength = 6000;     ///< bytes of a message: some datagrams
constexpr uint32_t kReceives = 64;
constexpr uint32_t kStag = 0x100;      ///< of a node's memory
constexpr uint32_t kChurnQpn = 100, kRegionQpn = 50;

/// A slot of a connection's memory at a node, used for one work request at a time.
struct Slot {
  std::array<std::byte, kLength> send, write_target, read_source, read_target;
};

/// The results that a polling thread leaves for the thread that posted.
struct Done {
  std::atomic<uint32_t> state{1};  ///< 0: under way; else 1 + status
  bool is() const { return state.load(std::memory_order_acquire) != 0; }
};

class Node final : public EngineEvents, public EngineDriver, public Watcher {
 public:
  explicit Node(uint8_t host) {
    address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, host};
    auto held = gate.hold();
    for (size_t i = 0; i < ports.size(); i++) number[i] = held->add_port(ports[i]);
    cq = held->cq_create(1024, this);
    for (size_t s = 0; s < slots.size(); s++) slots[s].read_source.fill(static_cast<std::byte>(host * 100 + s));
    EXPECT_EQ(held->mr_add(region(kStag, slots.data(), slots.size() * sizeof slots[0])), 0);
    EXPECT_EQ(held->mr_add(region(kStag + 0x100, inbox.data(), inbox.size() * sizeof inbox[0])), 0);
  }
  void start() {
    for (MemoryPort& port : ports) gate.progress().watch(port.wait_fd, Progress::Kind::kPacket, *this);
    EXPECT_EQ(gate.progress().start(), 0);
  }
  ~Node() override {
    for (MemoryPort& port : ports) gate.progress().unwatch(port.wait_fd);
  }

  static MrAttr region(uint32_t stag, void* at, size_t length) {
    const auto addr = reinterpret_cast<uintptr_t>(at);
    return {.stag = stag,
            .pd = 1,
            .access = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead,
            .addr = addr,
            .length = length,
            .iova = addr};
  }

  Qp* make_qp(uint32_t qpn) {
    return gate.hold()->qp_create({.qpn = qpn,
                                   .pd = 1,
                                   .send_cq = cq,
                                   .recv_cq = cq,
                                   .max_send_wr = 2 * kWindow,
                                   .max_recv_wr = kReceives,
                                   .max_send_sge = 1,
                                   .max_recv_sge = 1,
                                   .max_inline = 64,
                                   .sq_sig_all = true,
                                   .owner = this});
  }
  void post_recv(Qp& qp, uint32_t index) {
    const Sge sge{reinterpret_cast<uintptr_t>(inbox[index].data()), kLength, kStag + 0x100};
    bool wanted;
    {
      std::lock_guard turn(recv_turn);
      EXPECT_EQ(qp.post_recv(index, std::span(&sge, 1)), 0);
      wanted = qp.ring_recv();
    }
    if (wanted) gate.progress().posted();
  }
  int post(Qp& qp, const Qp::SendWr& wr, const Sge& sge) {
    const int rc = qp.post_send(wr, std::span(&sge, 1));
    if (rc != 0) return rc;
    qp.ring_send();
    gate.progress().posted();
    return 0;
  }

  /// As the verbs poll: in turn, and an empty CQ drives the engine.
  void poll(unsigned& empty) {
    std::array<Cqe, 4> cqes;
    size_t n;
    {
      std::lock_guard turn(cq_turn);
      n = cq->poll(cqes);
    }
    empty = n != 0 ? 0 : empty + 1;
    if (n == 0) gate.progress().polled_empty(empty);
    for (size_t i = 0; i < n; i++) take(cqes[i]);
  }
  void take(const Cqe& cqe) {
    if (cqe.qpn >= kChurnQpn) return;  // its QP may be gone
    const bool steady = cqe.qpn < kRegionQpn;
    EXPECT_TRUE(!steady || cqe.status == WcStatus::kSuccess) << static_cast<int>(cqe.status);
    if (cqe.opcode != WcOpcode::kRecv || (!steady && cqe.status != WcStatus::kSuccess && cqe.wr_id == 0)) {
      Done& done = steady ? posted[cqe.qpn][cqe.wr_id] : in_region;
      done.state.store(1 + static_cast<uint32_t>(cqe.status), std::memory_order_release);
    } else if (steady) {
      const auto& got = inbox[cqe.wr_id];
      if (got[0] != got[cqe.byte_len - 1]) ADD_FAILURE() << "torn message";
      received.fetch_add(1);
      post_recv(*qps[cqe.qpn], static_cast<uint32_t>(cqe.wr_id));
    }
  }

  unsigned drive() override { return gate.drive(); }
  uint64_t next_deadline_ns() override { return gate.next_deadline_ns(); }
  void released() override {}
  bool ready(int, short) override { return true; }
  void cq_ready(Cq&) override {
    events.fetch_add(1, std::memory_order_seq_cst);
    gate.progress().changed(events);
  }
  void cq_overrun(Cq&) override { ADD_FAILURE() << "CQ overrun"; }
  void qp_peer_closed(Qp&) override {}
  void qp_closed(Qp&) override {}
  void qp_failed(Qp& qp, int, AsyncEvent) override { EXPECT_GE(qp.qpn(), kRegionQpn); }
  PortAnswer qp_which_port(Qp&, const PortAsked& asked) override {
    return {.port = number[asks++ % number.size()], .review_at = asked.now + 2'000'000};
  }

  std::array<uint8_t, 16> address{};
  std::array<MemoryPort, 2> ports;
  std::array<int, 2> number{};
  unsigned asks = 0;  ///< engine held
  std::vector<Slot> slots = std::vector<Slot>(kSteady * kWindow);
  std::vector<std::array<std::byte, kLength>> inbox = std::vector<std::array<std::byte, kLength>>(
      (kSteady + 1) * kReceives);
  std::array<Qp*, kSteady> qps{};
  std::array<std::array<Done, kWindow>, kSteady> posted;
  Done in_region;
  std::atomic<uint32_t> received{0}, events{0};
  Turn cq_turn, recv_turn;
  Cq* cq = nullptr;
  MonotonicClock clock;
  std::array<uint64_t, USIW_COUNTERS_SIZE / 8> counters{};
  EngineGate gate{*this, clock, *this, counters.data()};  ///< last: its thread ends first
};

class ThreadsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < 2; i++) a.ports[i].connect(b.ports[i]), b.ports[i].connect(a.ports[i]);
    for (uint32_t q = 0; q < kSteady; q++) {
      a.qps[q] = a.make_qp(q);
      b.qps[q] = b.make_qp(q);
      connect(*a.qps[q], *b.qps[q]);
      for (Node* node : {&a, &b})
        for (uint32_t i = 0; i < kReceives; i++) node->post_recv(*node->qps[q], q * kReceives + i);
    }
    a.start();
    b.start();
  }

  /// With UDP ports that no connection had before.
  void connect(Qp& at_a, Qp& at_b) {
    const uint16_t port = next_port.fetch_add(1);
    const auto at = [&](Node& node, Node& peer, Qp& qp, bool initiator) {
      Path path{};
      path.flow = {node.address, peer.address, port, port};
      path.hop_limit = 64;
      auto held = node.gate.hold();
      EXPECT_EQ(held->qp_connect(&qp, node.number[port % 2], path,
                                 {.snd_psn = initiator ? 5u : 9u,
                                  .rcv_psn = initiator ? 9u : 5u,
                                  .snd_window = 64,
                                  .ird = 8,
                                  .ord = 8,
                                  .mtu = 1500,
                                  .initiator = initiator}),
                0);
      EXPECT_EQ(held->qp_also(&qp, node.number[(port + 1) % 2]), 0);
    };
    at(b, a, at_b, false);
    at(a, b, at_a, true);
  }

  /// Posts SENDs, WRITEs and READs on one connection, and sees that the bytes are right.
  void traffic(Node& node, Node& peer, uint32_t q) {
    for (uint32_t i = 0; i < kMessages; i++) {
      const uint32_t s = i % kWindow;
      Done& done = node.posted[q][s];
      Slot &own = node.slots[q * kWindow + s], &other = peer.slots[q * kWindow + s];
      while (!done.is()) std::this_thread::yield();
      const bool was_read = i >= kWindow && (i - kWindow) % 3 == 2;
      EXPECT_TRUE(!was_read || own.read_target == other.read_source);
      done.state.store(0, std::memory_order_relaxed);
      own.send.fill(static_cast<std::byte>(i));
      const WrOpcode opcode = i % 3 == 0 ? WrOpcode::kSend : i % 3 == 1 ? WrOpcode::kRdmaWrite : WrOpcode::kRdmaRead;
      const Sge sge{reinterpret_cast<uintptr_t>(opcode == WrOpcode::kRdmaRead ? own.read_target.data()
                                                                             : own.send.data()),
                    kLength, kStag};
      const auto& remote = opcode == WrOpcode::kRdmaRead ? other.read_source : other.write_target;
      const Qp::SendWr wr{.wr_id = s,
                          .opcode = opcode,
                          .flags = kWrSignaled,
                          .remote_addr = reinterpret_cast<uintptr_t>(remote.data()),
                          .rkey = kStag};
      while (node.post(*node.qps[q], wr, sge) != 0) std::this_thread::yield();
    }
    for (Done& done : node.posted[q])
      while (!done.is()) std::this_thread::yield();
  }

  /// Regions that are removed while a work request may use them; whoever removed one owns its memory at once.
  void use_regions() {
    Qp *at_a = a.make_qp(kRegionQpn), *at_b = b.make_qp(kRegionQpn);
    for (uint32_t round = 0; !over.load(); round++) {
      rounds[0]++;
      connect(*at_a, *at_b);
      for (uint32_t i = 0; i < 4; i++) b.post_recv(*at_b, kSteady * kReceives + i);
      std::vector<std::byte> memory(kLength, std::byte{7}), target(kLength);
      const uint32_t stag = 0x10000 + (round % 4096) * 0x100;
      EXPECT_EQ(a.gate.hold()->mr_add(Node::region(stag, memory.data(), memory.size())), 0);
      EXPECT_EQ(b.gate.hold()->mr_add(Node::region(stag, target.data(), target.size())), 0);
      a.in_region.state.store(0);
      const Qp::SendWr wr{.wr_id = 1,
                          .opcode = round % 2 == 0 ? WrOpcode::kRdmaWrite : WrOpcode::kRdmaRead,
                          .flags = kWrSignaled,
                          .remote_addr = reinterpret_cast<uintptr_t>(target.data()),
                          .rkey = stag};
      const Sge sge{reinterpret_cast<uintptr_t>(memory.data()), kLength, stag};
      EXPECT_EQ(a.post(*at_a, wr, sge), 0);
      if (round % 3 == 0) std::this_thread::sleep_for(200us);
      Node& first = round % 4 < 2 ? a : b;
      EXPECT_EQ(first.gate.hold()->mr_remove(stag), 0);
      (&first == &a ? memory : target).assign(kLength, std::byte{1});
      Node& second = &first == &a ? b : a;
      EXPECT_EQ(second.gate.hold()->mr_remove(stag), 0);
      (&second == &a ? memory : target).assign(kLength, std::byte{1});
      a.gate.hold()->qp_reset(at_a);
      b.gate.hold()->qp_reset(at_b);
    }
  }

  /// QPs that are destroyed with work under way.
  void make_and_destroy() {
    for (uint32_t i = 0; !over.load(); i++) {
      rounds[1]++;
      const uint32_t qpn = kChurnQpn + i % 1000;
      Qp *at_a = a.make_qp(qpn), *at_b = b.make_qp(qpn);
      connect(*at_a, *at_b);
      b.post_recv(*at_b, kSteady * kReceives + kReceives - 1);
      const Sge sge{reinterpret_cast<uintptr_t>(constant.data()), 64, 0};
      const Qp::SendWr wr{.wr_id = 0, .opcode = WrOpcode::kSend, .flags = kWrSignaled | kWrInline, .remote_addr = 0,
                          .rkey = 0};
      for (int n = 0; n < 3; n++) EXPECT_EQ(a.post(*at_a, wr, sge), 0);
      if (i % 2 == 0) std::this_thread::sleep_for(100us);
      for (auto [node, qp] : {std::pair{&a, at_a}, std::pair{&b, at_b}}) {
        auto held = node->gate.hold();
        held->qp_acknowledge(qp);
        held->qp_destroy(qp);
      }
    }
  }

  void resize() {
    for (uint32_t i = 0; !over.load(); i++) {
      rounds[2]++;
      for (Node* node : {&a, &b}) {
        std::lock_guard turn(node->cq_turn);
        node->gate.hold()->cq_resize(node->cq, i % 2 == 0 ? 2048 : 1024);
      }
      std::this_thread::sleep_for(300us);
    }
  }

  void move() {
    for (uint32_t i = 0; !over.load(); i++) {
      rounds[3]++;
      Node& node = i % 2 == 0 ? a : b;
      {
        auto held = node.gate.hold();
        Qp* qp = node.qps[i / 2 % kSteady];
        held->qp_ways(qp);
        held->qp_move(qp, {.port = node.number[i / 4 % 2]});
      }
      std::this_thread::sleep_for(300us);
    }
  }

  /// Arms the CQ and blocks until it is ready.
  void wait_for_events(Node& node) {
    Progress& progress = node.gate.progress();
    while (!over.load()) {
      const uint32_t seen = node.events.load(std::memory_order_seq_cst);
      node.cq->arm(false);
      progress.arming();
      progress.begin_blocking();
      if (!over.load() && progress.drive_until(node.events, seen) == Progress::Blocked::kElsewhere)
        std::this_thread::sleep_for(100us);
      progress.end_blocking();
    }
  }

  Node a{1}, b{2};
  std::array<std::byte, 64> constant{};
  std::atomic<uint16_t> next_port{1};
  std::atomic<bool> over{false}, polled{false};
  std::array<std::atomic<unsigned>, 4> rounds{};  ///< of regions, QPs, resizes and moves
};

TEST_F(ThreadsTest, EverythingAtOnce) {
  std::vector<std::thread> senders, pollers, others;
  for (Node* node : {&a, &b})
    for (int i = 0; i < 2; i++)
      pollers.emplace_back([this, node] {
        for (unsigned empty = 0; !polled.load();) node->poll(empty);
      });
  others.emplace_back([this] { use_regions(); });
  others.emplace_back([this] { make_and_destroy(); });
  others.emplace_back([this] { resize(); });
  others.emplace_back([this] { move(); });
  others.emplace_back([this] { wait_for_events(a); });
  for (uint32_t q = 0; q < kSteady; q++) {
    senders.emplace_back([this, q] { traffic(a, b, q); });
    senders.emplace_back([this, q] { traffic(b, a, q); });
  }
  for (std::thread& sender : senders) sender.join();
  over = true;
  a.events.fetch_add(1);
  a.gate.progress().changed(a.events);
  for (std::thread& other : others) other.join();
  for (Node* node : {&a, &b})
    while (node->received.load() < kSteady * kMessages / 3) std::this_thread::yield();
  polled = true;
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(a.received, kSteady * kMessages / 3);
  EXPECT_EQ(b.received, kSteady * kMessages / 3);
  printf("  regions %u, QPs %u, resizes %u, moves %u, events %u; retransmissions %lu\n", rounds[0].load(),
         rounds[1].load(), rounds[2].load(), rounds[3].load(), a.events.load(), a.counters[USIW_CNT_RETRANS_FAST]);
  for (auto& each : rounds) EXPECT_GT(each.load(), 10u);
}

}  // namespace
}  // namespace usiw
