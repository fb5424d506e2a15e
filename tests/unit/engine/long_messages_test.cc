// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file long_messages_test.cc
/// When messages are long, what the owner is asked then, and what ends tell each other of merged datagrams.
#include "engine/long_messages.h"

#include "engine/merge_trust.h"
#include "played_peer.h"
#include "port/moves.h"

namespace usiw::sim {
namespace {

// ---- The count ----

class Counting : public ::testing::Test {
 protected:
  /// @p n segments with others behind them among @p of datagrams.
  void pass(unsigned n, unsigned of) {
    m.more(n);
    numbers += of;
  }
  LongMessages m;
  uint32_t numbers = 0xffffff00;  // wraps
  uint64_t now = 10 * kSec;
};

TEST_F(Counting, most_segments_make_messages_long_for_a_while) {
  m.look(numbers, now);
  pass(255, 300);
  EXPECT_FALSE(m.due());
  pass(1, 1);
  EXPECT_TRUE(m.due());
  EXPECT_FALSE(m.now(now));
  EXPECT_TRUE(m.look(numbers, now += kMs));
  EXPECT_FALSE(m.due());
  EXPECT_TRUE(m.now(now + 400 * kMs));
  EXPECT_FALSE(m.now(now + 600 * kMs));
  pass(256, 300);
  EXPECT_TRUE(m.look(numbers, now += kMs));
  EXPECT_TRUE(m.now(now + 499 * kMs));
}

TEST_F(Counting, few_among_many_do_not) {
  m.look(numbers, now);
  pass(256, 513);
  EXPECT_FALSE(m.look(numbers, now += kMs));
  EXPECT_FALSE(m.now(now));
}

TEST_F(Counting, nor_do_those_of_a_long_time) {
  m.look(numbers, now);
  pass(256, 300);
  EXPECT_TRUE(m.look(numbers, now += 499 * kMs));  // a slow host's
  pass(256, 300);
  EXPECT_FALSE(m.look(numbers, now += kSec));
}

// ---- The trust ----

class Trust : public ::testing::Test {
 protected:
  /// Time-outs, each after @p step datagrams have arrived since the one before. Whether it holds.
  bool after(int time_outs, uint32_t step) {
    for (int i = 0; i < time_outs; ++i) {
      una += step;
      t.timed_out(una, una + 20);
    }
    return t.holds(una + 20);
  }
  MergeTrust t;
  uint32_t una = 0xfffffff0;  // wraps
};

TEST_F(Trust, ends_when_one_datagram_arrives_for_each_time_out_and_returns) {
  after(1, 100);
  EXPECT_TRUE(after(2, 1));
  EXPECT_FALSE(after(1, 1));
  const uint32_t ended = una + 20;
  EXPECT_FALSE(t.holds(ended + 4095));
  EXPECT_TRUE(t.holds(ended + 4096));
  una += 4096;
  after(1, 100);
  EXPECT_FALSE(after(3, 2));
  EXPECT_FALSE(t.holds(una + 20 + 8191)) << "longer the second time";
  EXPECT_TRUE(t.holds(una + 20 + 8192));
  una += 3'000'000;
  after(1, 100);
  EXPECT_FALSE(after(3, 1));
  EXPECT_TRUE(t.holds(una + 20 + 4096)) << "that was long ago";
}

TEST_F(Trust, stands_time_outs_in_which_nothing_arrives) { EXPECT_TRUE(after(20, 0)); }

TEST_F(Trust, stands_time_outs_between_which_much_arrives) {
  EXPECT_TRUE(after(20, 1000));
  EXPECT_TRUE(after(2, 1));
  EXPECT_TRUE(after(1, 30));
  EXPECT_TRUE(after(2, 1));
}

// ---- Two ends ----

/// A data socket: remembers what the engine says of the peer.
class DataSocket final : public SimPort {
 public:
  DataSocket(SimWire& wire, int side) : SimPort(wire, side, 9000, 2048) {}
  size_t tx(std::span<TxBuf> bufs) override {
    for (const TxBuf& b : bufs) {
      ++offered;
      merged += b.path->merge;
      merge_above = b.path->merge_above;
    }
    // Judged by its whole length the frame is too long.
    if (drops_merged && bufs.size() > 1 && bufs[0].path->merge) {
      tx_free(bufs);
      return bufs.size();
    }
    return SimPort::tx(bufs);
  }
  bool drops_merged = false;
  uint64_t offered = 0, merged = 0;
  uint32_t merge_above = 0;
};

/// Each end has raw packets and a data socket. What comes is heard by the one that it sends by.
class LongMessagesTest : public EngineTest {
 protected:
  LongMessagesTest() {
    for (int i : {0, 1}) {
      number[i] = host(i).engine.add_port(socket[i]);
      socket[i].deaf = true;
      host(i).events.which_port = [this, i](const EngineEvents::PortAsked& a) -> EngineEvents::PortAnswer {
        const PortChoice next = moves[i].decide(a.silent, a.longest, a.now, a.long_messages);
        const bool by_socket = next.kind == PortKind::kSocket;
        moves[i].kernel_knows(by_socket);
        hear(i, by_socket && !broken);
        return {by_socket ? number[i] : host(i).port_no, moves[i].review_at(a.now), moves[i].merging(),
                moves[i].hears_socket_only()};
      };
    }
    from = w.a.region(kBytes);
    to = w.b.region(kBytes);
    fill(from->bytes, 5);
  }
  ~LongMessagesTest() override {
    w.a.owned.reset();
    w.b.owned.reset();
    for (DataSocket& s : socket) EXPECT_EQ(s.total_buffers(), s.free_buffers());
  }
  void connect(bool merges, uint16_t mtu_of_b = 0) {
    std::tie(qa, qb) = w.connect({.merges = merges, .mtu_of_b = mtu_of_b});
    const PortFacts facts{USIW_NOT_PACKET_NONE, true, false, true, false};
    for (int i : {0, 1}) {
      moves[i].begin(PortWish::kAuto, facts, {PortKind::kPacket, USIW_PORT_WHY_FASTEST}, 1500, merges);
      host(i).engine.qp_also(i == 0 ? qa : qb, number[i]);
    }
  }
  void hear(int i, bool by_socket) {
    socket[i].deaf = !by_socket;
    host(i).port.deaf = by_socket;
  }
  Host& host(int i) { return i == 0 ? w.a : w.b; }
  void write_once(uint32_t bytes) {
    write(qa, from->sge(0, bytes), to->addr(), to->stag);
    ASSERT_EQ(std::vector{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  }
  void write_much() {
    for (int i = 0; i < 4; ++i) {
      write_once(kBytes);
      w.run_for(60 * kMs);
    }
  }
  static constexpr uint32_t kBytes = 1 << 20;
  DataSocket socket[2] = {{w.wire, 0}, {w.wire, 1}};
  int number[2];
  PortMoves moves[2];
  bool broken = false;  ///< nothing comes by sockets
  Qp *qa, *qb;
  Region *from, *to;
};

TEST_F(LongMessagesTest, both_ends_go_by_sockets_tell_and_are_told_of_merging_and_return) {
  connect(true);
  write_much();
  for (int i : {0, 1}) {
    EXPECT_TRUE(moves[i].merging()) << i;
    EXPECT_GT(socket[i].offered, 20u) << i;
    EXPECT_GT(socket[i].merged, 20u) << i;
    EXPECT_EQ(1500u, socket[i].merge_above) << "longer than one datagram can be";
  }
  EXPECT_EQ(from->bytes, to->bytes);
  w.run_for(3 * kSec);
  for (int i : {0, 1}) EXPECT_EQ(PortKind::kPacket, moves[i].present().kind) << i;
  const uint64_t before = socket[0].offered;
  write_once(100);
  EXPECT_EQ(before, socket[0].offered);
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
}

// The receiver knows a GSO aggregate by its length: no single datagram is so long. So both ends must use the same limit.
TEST_F(LongMessagesTest, an_end_whose_path_is_narrower_receives_what_the_handshake_permits) {
  connect(true, 1000);
  write_much();
  for (int i : {0, 1}) EXPECT_EQ(1500u, socket[i].merge_above) << i;
  EXPECT_EQ(from->bytes, to->bytes);
  EXPECT_EQ(0u, w.b.count(USIW_CNT_DROP_MALFORMED));
}

TEST_F(LongMessagesTest, short_ones_stay) {
  connect(true);
  for (int i = 0; i < 1000; ++i) write_once(1000);
  EXPECT_TRUE(w.a.events.asked.empty());
  EXPECT_TRUE(w.b.events.asked.empty());
}

TEST_F(LongMessagesTest, nobody_is_asked_where_the_peer_does_not_know_of_it) {
  connect(false);
  write_much();
  EXPECT_TRUE(w.a.events.asked.empty());
  EXPECT_TRUE(w.b.events.asked.empty());
}

/// Merged datagrams cannot be told from one, so the port that hears them does not count; but it may be the only one.
TEST_F(LongMessagesTest, a_socket_through_which_nothing_comes_any_more_is_left) {
  connect(true);
  write_much();
  ASSERT_TRUE(moves[1].merging());
  // From now on only raw packets get to B, and B hears what comes by these.
  w.wire.filter = [this](int side, Datagram&) { return side != 0 || moves[0].present().kind == PortKind::kPacket; };
  broken = true;
  hear(1, false);
  const uint64_t before = w.clock.now;
  write_once(kBytes);
  EXPECT_LT(w.clock.now - before, kSec);
  EXPECT_EQ(PortKind::kPacket, moves[0].present().kind);
  EXPECT_FALSE(moves[1].merging());
  EXPECT_EQ(from->bytes, to->bytes);
  w.run_for(200 * kMs);
  EXPECT_EQ(PortKind::kPacket, moves[1].present().kind);
}

TEST_F(LongMessagesTest, are_sent_one_by_one_where_merged_ones_are_dropped) {
  connect(true);
  write_much();
  ASSERT_TRUE(moves[0].merging());
  socket[0].drops_merged = true;
  const uint64_t before = w.clock.now;
  write_once(kBytes);
  EXPECT_LT(w.clock.now - before, kSec);
  EXPECT_EQ(from->bytes, to->bytes);
  const uint64_t merged = socket[0].merged;
  write_once(kBytes);
  EXPECT_EQ(merged, socket[0].merged) << "not tried again at once";
}

// ---- One that is longer than any may be ----

TEST_F(Protocol, several_datagrams_as_one_are_not_one) {
  Qp* p = w.a.qp([] {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = attr.max_send_sge = attr.max_recv_sge = 4;
    return attr;
  }());
  flow = w.next_flow(false);
  ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true, true}));
  std::vector<std::byte> payload(1600, std::byte{7});
  inject(data(kRcv, write_seg(0, false), payload));
  settle();
  EXPECT_EQ(1u, w.a.count(USIW_CNT_DROP_MALFORMED));
  EXPECT_EQ(std::byte{0}, mem->bytes[0]);
  payload.resize(1400);
  inject(data(kRcv, write_seg(0, false), payload));
  settle();
  EXPECT_EQ(std::byte{7}, mem->bytes[1399]);
  EXPECT_EQ(std::byte{0}, mem->bytes[1400]);
}

}  // namespace
}  // namespace usiw::sim
