// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file capture_test.cc
/// The real connection machines and the real engines, on a simulated wire, as a capture
/// file that the independent decoder (tests/protocol/usiw_decode.py) must find nothing
/// wrong with. USIW_KEEP_CAPTURES=directory keeps the files.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cm/usiw_cm.h"
#include "port/encap.h"
#include "sim_world.h"

namespace usiw::sim {
namespace {

/// A pcap file of Ethernet frames, in nanoseconds.
class CaptureFile {
 public:
  explicit CaptureFile(const std::string& path) : out_(path, std::ios::binary) {
    put32(0xa1b23c4d);
    put32(4u << 16 | 2);
    put32(0);
    put32(0);
    put32(65535);
    put32(1);
  }
  void add(uint64_t now_ns, std::span<const std::byte> datagram, const FlowKey& flow) {
    std::vector<std::byte> frame(kMaxEncapLen + datagram.size());
    std::memcpy(frame.data() + kMaxEncapLen, datagram.data(), datagram.size());
    const Path path{flow, {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, 64, 0};
    const size_t n = encap(frame.data() + kMaxEncapLen, static_cast<uint32_t>(datagram.size()), path);
    const auto len = static_cast<uint32_t>(n + datagram.size());
    put32(static_cast<uint32_t>(now_ns / 1'000'000'000));
    put32(static_cast<uint32_t>(now_ns % 1'000'000'000));
    put32(len);
    put32(len);
    out_.write(reinterpret_cast<const char*>(frame.data() + kMaxEncapLen - n), len);
  }
  void close() { out_.close(); }

 private:
  void put32(uint32_t v) { out_.write(reinterpret_cast<const char*>(&v), sizeof v); }
  std::ofstream out_;
};

class Capture : public ::testing::Test {
 protected:
  explicit Capture(uint64_t seed = 1) : world_(seed), path_(file_name()), file_(path_) {
    world_.wire.filter = [this](int side, Datagram& d) {
      file_.add(world_.clock.now, d, side == 0 ? world_.last_flow : SimWire::reversed(world_.last_flow));
      TrpHeader h;
      if (decode_trp(d, h) && (h.flags & USIW_TRP_F_SKIP) != 0) ++skips_;
      return true;
    };
  }

  /// Handshake by the connection machines, then the engines with what they agreed on.
  void connect(const PairOptions& wanted = {}) {
    PairOptions o = wanted;
    ASSERT_EQ(0, usiw_cm_init_active(&cm_[0], o.psn[0], o.ird, o.ord, o.mtu, 1024, "hello", 5));
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 256;
    attr.max_send_sge = attr.max_recv_sge = 4;
    attr.max_inline = 256;
    a_ = world_.a.qp(attr);
    b_ = world_.b.qp(attr);
    // The engines take the next flow; the handshake is recorded with the same one.
    World probe(1);
    flow_ = probe.next_flow(o.ipv6);
    ASSERT_EQ(uint32_t{USIW_CM_A_TX}, usiw_cm_connect(&cm_[0], us()));
    usiw_cm_packet pkt = transmit(0);
    ASSERT_EQ(0, usiw_cm_init_passive(&cm_[1], &pkt, o.psn[1], 9000, 1024, us()));
    usiw_cm_receive(&cm_[1], &pkt, us());
    pkt = transmit(1);  // PENDING
    usiw_cm_receive(&cm_[0], &pkt, us());
    int err = 0;
    usiw_cm_accept(&cm_[1], 8, 8, "welcome", 7, us(), &err);
    ASSERT_EQ(0, err);
    usiw_cm_ready(&cm_[1], us());
    pkt = transmit(1);
    ASSERT_EQ(uint32_t{USIW_CM_A_INSTALL}, usiw_cm_receive(&cm_[0], &pkt, us()));
    usiw_cm_ready(&cm_[0], us());
    pkt = transmit(0);
    usiw_cm_receive(&cm_[1], &pkt, us());
    ASSERT_EQ(USIW_CM_ESTABLISHED, cm_[0].state);
    ASSERT_EQ(USIW_CM_ESTABLISHED, cm_[1].state);

    o.mtu = cm_[0].mtu;
    o.ird = std::min(cm_[0].ird, cm_[1].ird);
    o.ord = std::min(cm_[0].ord, cm_[1].ord);
    world_.connect(a_, b_, o);
    ASSERT_TRUE(world_.last_flow == flow_);
  }

  /// The engine of @p side has failed: its kernel says so, and the other end answers.
  void reset(int side) {
    usiw_cm_failed(&cm_[side], -EPROTO, us());
    const usiw_cm_packet pkt = transmit(side);
    usiw_cm_receive(&cm_[1 - side], &pkt, us());
    transmit(1 - side);
  }

  void post(Qp* qp, WrOpcode op, const Sge& sge, uint64_t remote = 0, uint32_t rkey = 0) {
    ASSERT_EQ(0, qp->post_send({1, op, kWrSignaled, remote, rkey}, {{sge}}));
    qp->ring_send();
  }
  void post_recv(Qp* qp, const Sge& sge) {
    ASSERT_EQ(0, qp->post_recv(1, {{sge}}));
    qp->ring_recv();
  }
  size_t drain(Host& h) { return h.poll(h.send_cq).size() + h.poll(h.recv_cq).size(); }
  void run_until(Host& h, size_t completions) {
    size_t got = 0;
    EXPECT_TRUE(world_.run([&] { return (got += drain(h)) >= completions; }));
  }

  void skip(int rounds);

  void close() {
    world_.a.engine.qp_shutdown(a_);
    EXPECT_TRUE(world_.run([&] { return !world_.a.events.closed.empty(); }));
    world_.run_for(100'000'000);
  }

  /// The decoder's verdict.
  void check() {
    file_.close();
    const std::string command = std::string("/usr/bin/python3 ") + USIW_DECODER + " " + path_ +
                                " > " + path_ + ".txt 2>&1";
    const int status = std::system(command.c_str());
    std::ifstream text(path_ + ".txt");
    std::string line, problems;
    while (std::getline(text, line))
      if (line.rfind("PROBLEM", 0) == 0 || line.find("Error") != std::string::npos)
        problems += line + "\n";
    EXPECT_EQ(0, status) << path_ << "\n" << problems.substr(0, 4000);
    if (status == 0 && std::getenv("USIW_KEEP_CAPTURES") == nullptr) {
      std::filesystem::remove(path_);
      std::filesystem::remove(path_ + ".txt");
    }
  }

  World world_;
  Qp *a_ = nullptr, *b_ = nullptr;
  unsigned skips_ = 0;  ///< datagrams that ask for their message to be skipped

 private:
  static std::string file_name() {
    const char* keep = std::getenv("USIW_KEEP_CAPTURES");
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    return std::string(keep != nullptr ? keep : std::filesystem::temp_directory_path().c_str()) +
           "/usiw_" + name + "." + std::to_string(::getpid()) + ".pcap";
  }
  uint64_t us() const { return world_.clock.now / 1000; }

  usiw_cm_packet transmit(int side) {
    const uint32_t len = usiw_cm_build(&cm_[side], datagram_);
    file_.add(world_.clock.now, std::as_bytes(std::span(datagram_, len)),
              side == 0 ? flow_ : SimWire::reversed(flow_));
    world_.clock.now += 20'000;
    usiw_cm_packet pkt;
    EXPECT_EQ(0, usiw_cm_decode(&pkt, datagram_, len));
    return pkt;
  }

  std::string path_;
  CaptureFile file_;
  usiw_cm_conn cm_[2] = {};
  FlowKey flow_{};
  uint8_t datagram_[USIW_CM_MAX_DATAGRAM] = {};
};

constexpr size_t kRegion = 1 << 20;

TEST_F(Capture, every_operation_and_orderly_close) {
  connect();
  Region* src = world_.a.region(kRegion);
  Region* dst = world_.b.region(kRegion);
  fill(src->bytes, 1);
  for (size_t size : {size_t{0}, size_t{1}, size_t{64}, size_t{1441}, size_t{4096}, kRegion}) {
    post_recv(b_, dst->sge(0, size));
    post(a_, WrOpcode::kSend, src->sge(0, size));
    post(a_, WrOpcode::kRdmaWrite, src->sge(0, size), dst->addr(), dst->stag);
    post(a_, WrOpcode::kRdmaRead, src->sge(0, size), dst->addr(), dst->stag);
    run_until(world_.a, 3);
    drain(world_.b);
  }
  for (int i = 0; i < 40; i++) post(a_, WrOpcode::kRdmaRead, src->sge(0, 3000), dst->addr(), dst->stag);
  run_until(world_.a, 40);
  close();
  check();
}

TEST_F(Capture, over_ipv6) {
  PairOptions o;
  o.ipv6 = true;
  connect(o);
  Region* src = world_.a.region(kRegion);
  Region* dst = world_.b.region(kRegion);
  post(a_, WrOpcode::kRdmaWrite, src->sge(0, 100'000), dst->addr(), dst->stag);
  post(a_, WrOpcode::kRdmaRead, src->sge(0, 100'000), dst->addr(), dst->stag);
  run_until(world_.a, 2);
  close();
  check();
}

class BadWire : public Capture, public ::testing::WithParamInterface<uint64_t> {
 protected:
  BadWire() : Capture(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Seeds, BadWire, ::testing::Range(uint64_t{1}, uint64_t{9}));

TEST_P(BadWire, both_directions_and_orderly_close) {
  world_.wire.faults.loss = 0.05;
  world_.wire.faults.reorder = 0.05;
  world_.wire.faults.duplicate = 0.02;
  connect();
  Region* ra = world_.a.region(kRegion);
  Region* rb = world_.b.region(kRegion);
  std::mt19937_64 rng(GetParam());
  constexpr int kEach = 60;
  for (int i = 0; i < kEach; i++) {
    const uint64_t size = rng() % 4 == 0 ? rng() % 60'000 : rng() % 300;
    for (auto [qp, own, peer, peer_qp] : {std::tuple{a_, ra, rb, b_}, std::tuple{b_, rb, ra, a_}}) {
      const WrOpcode ops[] = {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead};
      const WrOpcode op = ops[rng() % 3];
      if (op == WrOpcode::kSend) post_recv(peer_qp, peer->sge(0, size));
      post(qp, op, own->sge(0, size), peer->addr(), peer->stag);
    }
  }
  size_t a = 0, b = 0;
  EXPECT_TRUE(world_.run([&] {
    a += world_.a.poll(world_.a.send_cq).size();
    b += world_.b.poll(world_.b.send_cq).size();
    return a == kEach && b == kEach;
  }));
  EXPECT_GT(world_.a.count(USIW_CNT_RETRANS_FAST), 0u);
  close();
  check();
}

TEST_F(Capture, receiver_not_ready) {
  connect();
  Region* src = world_.a.region(kRegion);
  Region* dst = world_.b.region(kRegion);
  for (int i = 0; i < 5; i++) {
    post(a_, WrOpcode::kSend, src->sge(0, 5000));
    world_.run_for(5'000'000);
    post_recv(b_, dst->sge(0, 5000));
    run_until(world_.a, 1);
  }
  EXPECT_GT(world_.a.count(USIW_CNT_NOT_READY_RX), 0u);
  close();
  check();
}

/// A READ of more than a window behind a SEND for which no receive is posted: the SEND is skipped, and comes again with
/// all that was posted after it.
void Capture::skip(int rounds) {
  PairOptions o;
  o.mtu = 576;
  connect(o);
  Region* src = world_.a.region(kRegion);
  Region* dst = world_.b.region(kRegion);
  for (int i = 0; i < rounds; i++) {
    post(a_, WrOpcode::kSend, src->sge(0, 3000));
    post(a_, WrOpcode::kRdmaWrite, src->sge(0, 3000), dst->addr(), dst->stag);
    post(a_, WrOpcode::kRdmaRead, src->sge(0, 3000), dst->addr(), dst->stag);
    post(a_, WrOpcode::kSend, src->sge(0, 10));
    world_.run_for(5'000'000);
    post(b_, WrOpcode::kRdmaRead, dst->sge(0, 700'000), src->addr(), src->stag);
    run_until(world_.b, 1);
    post_recv(b_, dst->sge(0, 3000));
    post_recv(b_, dst->sge(3000, 10));
    size_t sent = 0, received = 0;
    EXPECT_TRUE(world_.run([&] {
      sent += drain(world_.a);
      received += drain(world_.b);
      return sent == 4 && received == 2;
    }));
  }
  EXPECT_GE(skips_, 1u);
  close();
  check();
}

TEST_F(Capture, send_is_skipped) { skip(3); }

TEST_P(BadWire, send_is_skipped) {
  world_.wire.faults.loss = 0.02;
  world_.wire.faults.reorder = 0.02;
  world_.wire.faults.duplicate = 0.01;
  skip(1);
}

TEST_F(Capture, write_refused_by_terminate) {
  connect();
  Region* src = world_.a.region(kRegion);
  Region* dst = world_.b.region(1000);
  post(a_, WrOpcode::kRdmaWrite, src->sge(0, 4000), dst->addr(), dst->stag);
  run_until(world_.a, 1);
  world_.run_for(600'000'000);
  reset(1);
  check();
}

TEST_F(Capture, read_refused_by_terminate) {
  connect();
  Region* src = world_.a.region(kRegion);
  post(a_, WrOpcode::kRdmaRead, src->sge(0, 4000), 0x1234, 0xdead00);
  run_until(world_.a, 1);
  world_.run_for(600'000'000);
  reset(1);
  check();
}

TEST_F(Capture, read_source_deregistered_on_the_way) {
  connect();
  Region* src = world_.a.region(kRegion);
  Region* dst = world_.b.region(kRegion);
  post(a_, WrOpcode::kRdmaRead, src->sge(0, kRegion), dst->addr(), dst->stag);
  // Some of the response is lost, and cannot be repeated.
  world_.wire.faults.loss = 0.3;
  EXPECT_TRUE(world_.run([&] { return world_.a.count(USIW_CNT_RX_OOO) > 3; }));
  ASSERT_EQ(0, world_.b.engine.mr_remove(dst->stag));
  run_until(world_.a, 1);
  world_.run_for(600'000'000);
  reset(1);
  check();
}

}  // namespace
}  // namespace usiw::sim
