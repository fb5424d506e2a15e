// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file short_messages_test.cc
/// Messages of one datagram have a way of their own through the engine, and so has the middle of long ones. Nobody may
/// notice anything but that it is shorter: the same traffic by the general way, which a fence or a second SGE asks for,
/// is the same bit by bit.
#include <string>

#include "fixture.h"

namespace usiw::sim {
namespace {

struct Traffic {
  const char* name;
  double faults = 0;      ///< loss, and as much of each other kind
  uint32_t window = 1024;
  uint16_t mtu = 1500;
  uint64_t seed = 1;
  bool answers = false;   ///< each message is the answer to one before it
  bool reads = false;     ///< a third are READs
  uint32_t segments = 2;  ///< of the longest messages
};

/// All that can be seen of it.
struct Seen {
  std::vector<Datagram> wire[2];
  std::vector<std::string> completions[4];  ///< of each end's sends and receives
  std::array<uint64_t, USIW_CNT_MAX> counters[2];
  std::vector<std::byte> memory[2];
};

class ShortMessages : public ::testing::TestWithParam<Traffic> {
 protected:
  static constexpr unsigned kMessages = 120, kReceiveBytes = 18'000;
  static constexpr uint64_t kSource = 0x10'0000, kSink = 0x20'0000;  ///< as both worlds name their memory
  static constexpr uint32_t kSourceTag = 0x1100, kSinkTag = 0x1200;

  /// Sizes on both sides of each border, SENDs and WRITEs, by SGE and inline, with each flag.
  static void post(Qp* qp, const Traffic& t, unsigned i, uint32_t full, bool general) {
    const uint32_t sizes[] = {8,        64,       0, 1, full, 4, (t.segments - 1) * full + 1,
                              full - 1, t.segments * full, 200, full + 4, full + 5};
    const uint32_t size = sizes[i % std::size(sizes)];
    Qp::SendWr wr{.wr_id = i, .opcode = opcode_of(t, i), .flags = 0,
                  .remote_addr = kSink + kMessages * kReceiveBytes + 8 * i + i % 3, .rkey = kSinkTag};
    if (i % 2 == 0) wr.flags |= kWrSignaled;
    if (i % 7 < 2) wr.flags |= kWrSolicited;
    if (wr.opcode == WrOpcode::kRdmaRead) {
      // From what the peer has received to behind what can be written here.
      wr.remote_addr = kSink + 8 * i;
      const uint64_t to = kSink + (kMessages + 2) * kReceiveBytes;
      post(qp, wr, {to, size, kSinkTag}, general);
    } else if (i % 3 == 0 && size <= 256 && !t.reads) {
      wr.flags |= kWrInline;
      if (general) wr.flags |= kWrFence;  // there is nothing to wait for
      post(qp, wr, {reinterpret_cast<uint64_t>(inlined) + i, size, 0}, false);
    } else {
      post(qp, wr, {kSource + i, size, kSourceTag}, general);
    }
  }
  static void post(Qp* qp, const Qp::SendWr& wr, const Sge& sge, bool split) {
    const Sge halves[] = {{sge.addr, sge.length / 2, sge.lkey},
                          {sge.addr + sge.length / 2, sge.length - sge.length / 2, sge.lkey}};
    ASSERT_EQ(0, qp->post_send(wr, split ? std::span(halves) : std::span(&sge, 1)));
  }
  static WrOpcode opcode_of(const Traffic& t, unsigned i) {
    if (t.reads && i % 5 == 2) return WrOpcode::kRdmaRead;
    return i % 5 > 2 ? WrOpcode::kRdmaWrite : WrOpcode::kSend;
  }

  static Seen run(const Traffic& t, bool general, bool by_reference) {
    Seen seen;
    World w(t.seed, 9000, by_reference);
    w.wire.faults.loss = w.wire.faults.duplicate = w.wire.faults.reorder = t.faults;
    w.wire.filter = [&](int side, Datagram& d) {
      seen.wire[side].push_back(d);
      return true;
    };
    PairOptions o;
    o.max_send_wr = o.max_recv_wr = 256;
    o.window = t.window;
    o.mtu = t.mtu;
    const auto [qa, qb] = w.connect(o);
    const uint32_t full = (t.mtu - 28 - 14 - 18) & ~7;
    Host* const hosts[] = {&w.a, &w.b};
    Qp* const qps[] = {qa, qb};
    std::vector<std::byte> source(20'000);
    fill(source, 5);
    fill(inlined, 6);
    for (int side : {0, 1}) {
      seen.memory[side].resize((kMessages + 4) * kReceiveBytes);
      for (const MrAttr& mr : {MrAttr{kSourceTag, Host::kPd, 0, reinterpret_cast<uint64_t>(source.data()),
                                      source.size(), kSource},
                               MrAttr{kSinkTag, Host::kPd, Host::kAllRights,
                                      reinterpret_cast<uint64_t>(seen.memory[side].data()), seen.memory[side].size(),
                                      kSink}})
        EXPECT_EQ(0, hosts[side]->engine.mr_add(mr));
      for (unsigned i = 0; i < kMessages; ++i) {
        std::vector<Sge> sges{{kSink + i * kReceiveBytes, kReceiveBytes, kSinkTag}};
        if (general) sges.push_back({kSink, 4, kSinkTag});  // no message reaches it
        EXPECT_EQ(0, qps[side]->post_recv(i, sges));
      }
    }
    size_t done = 0;
    for (unsigned posted[2] = {0, 0}, turn = 0; done < 4 * kMessages && turn < 1'000'000; ++turn) {
      for (unsigned side : {0u, 1u}) {
        // In crowds and alone.
        unsigned n = turn % 3 == 0 ? 0 : turn % 16;
        const bool heard = seen.completions[2 * side + 1].size() == sends_of(t, posted[1 - side]);
        if (t.answers) n = heard && posted[0] - posted[1] == side;
        for (; n != 0 && posted[side] < kMessages; --n)
          post(qps[side], t, posted[side]++, full, general);
        qps[side]->ring_send();
      }
      w.step();
      for (unsigned side : {0u, 1u}) {
        for (unsigned cq : {0u, 1u}) {
          for (const Cqe& c : hosts[side]->poll(cq == 0 ? hosts[side]->send_cq : hosts[side]->recv_cq)) {
            EXPECT_EQ(WcStatus::kSuccess, c.status);
            seen.completions[2 * side + cq].push_back(std::to_string(c.wr_id) + " " + std::to_string(c.byte_len) + " " +
                                                      std::to_string(static_cast<int>(c.opcode)));
          }
        }
      }
      done = seen.completions[1].size() + seen.completions[3].size();
      if (done == sends_of(t, kMessages) * 2 && seen.completions[0].size() == kMessages / 2 &&
          seen.completions[2].size() == kMessages / 2)
        break;
    }
    for (int side : {0, 1}) {
      EXPECT_EQ(kMessages / 2, seen.completions[2 * side].size());
      EXPECT_EQ(sends_of(t, kMessages), seen.completions[2 * side + 1].size());
      EXPECT_TRUE(hosts[side]->events.failed.empty());
      seen.counters[side] = hosts[side]->counters;
    }
    return seen;
  }
  static size_t sends_of(const Traffic& t, unsigned messages) {
    size_t n = 0;
    for (unsigned i = 0; i < messages; ++i) n += opcode_of(t, i) == WrOpcode::kSend;
    return n;
  }

  static void compare(const Seen& is, const Seen& ought) {
    for (int side : {0, 1}) {
      ASSERT_EQ(ought.wire[side].size(), is.wire[side].size());
      for (size_t i = 0; i < is.wire[side].size(); ++i)
        ASSERT_EQ(ought.wire[side][i], is.wire[side][i]) << "datagram " << i << " of side " << side;
      EXPECT_EQ(ought.counters[side], is.counters[side]);
      EXPECT_EQ(ought.memory[side], is.memory[side]);
    }
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ought.completions[i], is.completions[i]);
  }

  static std::byte inlined[512];
};
std::byte ShortMessages::inlined[512];

TEST_P(ShortMessages, are_as_by_the_general_way) {
  compare(run(GetParam(), false, false), run(GetParam(), true, false));
}

/// A port that reads the program's memory itself gets the same to send.
TEST_P(ShortMessages, are_the_same_by_reference) {
  for (bool general : {false, true}) compare(run(GetParam(), general, true), run(GetParam(), general, false));
}

INSTANTIATE_TEST_SUITE_P(Wires, ShortMessages,
                         ::testing::Values(Traffic{.name = "good"}, Traffic{.name = "narrow", .window = 3},
                                           Traffic{.name = "jumbo", .mtu = 9000},
                                           Traffic{.name = "answers", .answers = true},
                                           Traffic{.name = "long", .segments = 12},
                                           Traffic{.name = "long_and_narrow", .window = 6, .segments = 12},
                                           Traffic{.name = "long_answers", .answers = true, .segments = 12},
                                           Traffic{.name = "long_reads", .reads = true, .segments = 12},
                                           Traffic{.name = "long_and_bad", .faults = 0.05, .seed = 6, .segments = 12},
                                           Traffic{.name = "long_bad_reads", .faults = 0.05, .seed = 7, .reads = true,
                                                   .segments = 12},
                                           Traffic{.name = "reads", .reads = true},
                                           Traffic{.name = "bad_reads", .faults = 0.1, .seed = 5, .reads = true},
                                           Traffic{.name = "bad", .faults = 0.05, .seed = 2},
                                           Traffic{.name = "worse", .faults = 0.2, .seed = 3},
                                           Traffic{.name = "bad_and_narrow", .faults = 0.1, .window = 5, .seed = 4}),
                         [](const auto& one) { return std::string(one.param.name); });

/// What cannot be done is found out by the general way.
using ShortFaults = EngineTest;

TEST_F(ShortFaults, are_reported_in_their_turn) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(100);
  Region* dst = w.b.region(100);
  post_recv(qb, {dst->sge(0, 100)});
  post_recv(qb, {dst->sge(0, 100)}, 2);
  post(qa, WrOpcode::kSend, {src->sge(0, 8)}, 1, 0);
  post(qa, WrOpcode::kSend, {src->sge(96, 8)}, 2);  // beyond its region
  post(qa, WrOpcode::kSend, {src->sge(0, 8)}, 3);
  const auto got = wait(w.a, w.a.send_cq, 2);
  EXPECT_EQ(2u, got[0].wr_id);
  EXPECT_EQ(kLocProtErr, got[0].status);
  EXPECT_EQ(3u, got[1].wr_id);
  EXPECT_EQ(kWrFlushErr, got[1].status);
  EXPECT_EQ(std::vector{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
}

TEST_F(ShortFaults, of_the_receive_end_the_connection) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(100);
  Region* dst = w.b.region(100);
  post_recv(qb, {dst->sge(0, 8)}, 5);
  post_recv(qb, {dst->sge(0, 7)}, 6);
  post(qa, WrOpcode::kSend, {src->sge(0, 8)});
  post(qa, WrOpcode::kSend, {src->sge(0, 8)});
  EXPECT_EQ((std::vector{kSuccess, kLocLenErr}), statuses(w.b, w.b.recv_cq, 2));
}

/// A region without memory has zeros, however many.
TEST_F(ShortFaults, long_messages_of_no_memory_are_zeros) {
  auto [qa, qb] = w.connect();
  ASSERT_EQ(0, w.a.engine.mr_add_null(0x7700, Host::kPd));
  Region* dst = w.b.region(200'000);
  fill(dst->bytes, 9);
  const Sge nothing{0x1234, 200'000, 0x7700};
  ASSERT_EQ(0, qa->post_send({1, WrOpcode::kRdmaWrite, kWrSignaled, dst->addr(), dst->stag}, std::span(&nothing, 1)));
  qa->ring_send();
  EXPECT_EQ(std::vector{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(std::vector<std::byte>(200'000), dst->bytes);
}

}  // namespace
}  // namespace usiw::sim
