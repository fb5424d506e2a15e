// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_test.cc
/// What the engine says about itself: counters of a QP by cause, gauges, events.
#include <cerrno>
#include <cstring>
#include <set>

#include "base/link_local.h"
#include "engine/trace.h"
#include "fixture.h"

namespace usiw::sim {
namespace {

/// A pair whose QPs count in pages of their own; side a is traced.
class TraceTest : public EngineTest {
 protected:
  static constexpr uint32_t kEvents = 1024;

  void open(bool on, uint32_t flags = 0) {
    Tracer::format(memory_, kEvents, on, flags, 42, 0, "usiw0");
    w.a.engine.trace_into(memory_);
  }
  void connect(const PairOptions& o = {}) {
    QpAttr attr{};
    attr.max_send_wr = o.max_send_wr;
    attr.max_recv_wr = o.max_recv_wr;
    attr.max_send_sge = attr.max_recv_sge = o.max_sge;
    attr.max_inline = o.max_inline;
    attr.stats = &stats_[0];
    a_ = w.a.qp(attr);
    attr.stats = &stats_[1];
    b_ = w.b.qp(attr);
    w.connect(a_, b_, o);
  }
  uint64_t counted(usiw_counter c, int side = 0) const { return stats_[side].counters[c]; }
  uint64_t gauge(usiw_gauge g, int side = 0) const { return stats_[side].gauges[g]; }

  TraceHeader& header() { return *reinterpret_cast<TraceHeader*>(memory_.data()); }
  const TraceEvent& slot(uint64_t number) const {
    const auto* events = reinterpret_cast<const TraceEvent*>(memory_.data() + kTraceHeaderBytes +
                                                             kTraceFlows * sizeof(TraceFlow));
    return events[number % kEvents];
  }
  std::multiset<TraceKind> kinds() const {
    std::multiset<TraceKind> out;
    for (uint64_t i = 0; i < kEvents; ++i)
      if (slot(i).number != 0) out.insert(slot(i).kind);
    return out;
  }
  /// @p n WRITEs of @p bytes each, to their end.
  void writes(size_t n, uint32_t bytes) {
    Region* from = w.a.region(bytes);
    Region* to = w.b.region(bytes);
    for (size_t i = 0; i < n; ++i) write(a_, from->sge(0, bytes), to->addr(), to->stag);
    wait(w.a, w.a.send_cq, n);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(trace_bytes(kEvents));
  usiw_qp_stats stats_[2] = {};
  Qp *a_ = nullptr, *b_ = nullptr;
};

TEST_F(TraceTest, QpCountsInItsOwnPage) {
  connect();
  writes(8, 5000);
  EXPECT_EQ(8u, counted(USIW_CNT_COMP_OK));
  EXPECT_GE(counted(USIW_CNT_TX_PKTS), 32u);
  EXPECT_EQ(counted(USIW_CNT_TX_PKTS), counted(USIW_CNT_RX_PKTS, 1));
  EXPECT_EQ(counted(USIW_CNT_TX_BYTES), counted(USIW_CNT_RX_BYTES, 1));
  EXPECT_EQ(counted(USIW_CNT_RX_SACKS), counted(USIW_CNT_TX_SACKS, 1));
  // What is the QP's is counted there and nowhere else.
  for (int c = 0; c < USIW_CNT_MAX; ++c) EXPECT_EQ(0u, w.a.counters[static_cast<size_t>(c)]) << c;
}

TEST_F(TraceTest, QpWithoutAPageCountsForTheDevice) {
  auto [a, b] = w.connect();
  Region* from = w.a.region(64);
  Region* to = w.b.region(64);
  write(a, from->sge(0, 64), to->addr(), to->stag);
  wait(w.a, w.a.send_cq, 1);
  EXPECT_EQ(1u, w.a.count(USIW_CNT_COMP_OK));
  EXPECT_EQ(1u, w.a.count(USIW_CNT_TX_PKTS));
}

TEST_F(TraceTest, FlowsOfTwoLinksAreShownAsTheWireHasThem) {
  open(true);
  FlowKey plain = w.next_flow(true);
  std::memcpy(plain.local_addr.data(), kLinkLocalPrefix, sizeof kLinkLocalPrefix);
  const ConnAttr conn{1, 2, 64, 1, 1, 1500, true};
  for (uint32_t link : {0u, 2u, 3u}) {  // 0: that of the raw port
    Path path{plain, {}, {}, 64, 0};
    path.marked = link != 0;
    if (path.marked) put_link(path.flow.local_addr.data(), link);
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 1;
    ASSERT_EQ(0, w.a.engine.qp_connect(w.a.qp(attr), w.a.port_no, path, conn)) << link;
    EXPECT_EQ(EADDRINUSE, w.a.engine.qp_connect(w.a.qp(attr), w.a.port_no, path, conn)) << link;
  }
  const auto* flows = reinterpret_cast<const TraceFlow*>(memory_.data() + kTraceHeaderBytes);
  for (uint32_t id : {1u, 2u, 3u}) {
    EXPECT_EQ(id, flows[id].id);
    EXPECT_EQ(0, std::memcmp(flows[id].local_addr, plain.local_addr.data(), 16)) << id;
  }
}

TEST_F(TraceTest, StrayDatagramsAreTheDevices) {
  connect();
  FlowKey other = SimWire::reversed(w.last_flow);
  other.remote_port = 9;
  w.wire.inject(0, Datagram(40), other);
  w.wire.inject(0, Datagram(3), SimWire::reversed(w.last_flow));
  w.run_for(kMs);
  EXPECT_EQ(1u, w.a.count(USIW_CNT_DROP_NO_CONN));
  EXPECT_EQ(1u, w.a.count(USIW_CNT_DROP_MALFORMED));
  EXPECT_EQ(2u, w.a.count(USIW_CNT_RX_PKTS));
  EXPECT_EQ(43u, w.a.count(USIW_CNT_RX_BYTES));
  EXPECT_EQ(0u, counted(USIW_CNT_RX_PKTS));
}

TEST_F(TraceTest, LostDatagramIsAFastRetransmission) {
  open(true);
  connect();
  unsigned data = 0;
  w.wire.filter = [&](int side, Datagram&) { return side != 0 || ++data != 3; };
  writes(1, 20'000);
  EXPECT_EQ(1u, counted(USIW_CNT_RETRANS_FAST));
  EXPECT_EQ(0u, counted(USIW_CNT_RETRANS_RTO));
  EXPECT_EQ(1u, kinds().count(TraceKind::kFast));
  EXPECT_EQ(0u, kinds().count(TraceKind::kRto));
  EXPECT_GE(counted(USIW_CNT_RX_OOO, 1), 1u);
  EXPECT_EQ(1u, counted(USIW_CNT_RX_HELD, 1));  // the last segment of the WRITE
}

TEST_F(TraceTest, HoldAndReleaseOfALastSegment) {
  open(true);
  connect();
  unsigned data = 0;
  w.wire.filter = [&](int side, Datagram&) { return side != 1 || ++data != 1; };
  Region* from = w.b.region(3000);
  Region* to = w.a.region(3000);
  write(b_, from->sge(0, 3000), to->addr(), to->stag);
  wait(w.b, w.b.send_cq, 1);
  ASSERT_EQ(1u, kinds().count(TraceKind::kHold));
  ASSERT_EQ(1u, kinds().count(TraceKind::kRelease));
  for (uint64_t i = 0; i < header().next; ++i) {
    if (slot(i).kind == TraceKind::kHold) {
      EXPECT_EQ(0xfffffe02u, slot(i).arg.a);
      EXPECT_EQ(0xfffffe00u, slot(i).arg.b);
    }
  }
}

TEST_F(TraceTest, TimeOutsOfASilentPeer) {
  open(true);
  connect();
  w.wire.faults.cut[0] = true;
  Region* from = w.a.region(64);
  write(a_, from->sge(0, 64), 0x1000, 0x100);
  EXPECT_TRUE(failed(w.a));
  EXPECT_EQ(1u, counted(USIW_CNT_COMP_RETRY));
  EXPECT_EQ(0u, counted(USIW_CNT_COMP_ERR));
  EXPECT_GE(counted(USIW_CNT_RTO), 6u);
  EXPECT_EQ(counted(USIW_CNT_RTO), counted(USIW_CNT_RETRANS_RTO));
  EXPECT_EQ(counted(USIW_CNT_RTO), kinds().count(TraceKind::kRto));
  EXPECT_EQ(1u, kinds().count(TraceKind::kFailed));
  EXPECT_EQ(500'000'000u, gauge(USIW_GAUGE_RTO_NS));
}

TEST_F(TraceTest, ReceiverNotReady) {
  open(true);
  connect();
  Region* from = w.a.region(64);
  Region* to = w.b.region(64);
  send(a_, from->sge(0, 64));
  w.run_for(20 * kMs);
  post_recv(b_, {to->sge(0, 64)});
  wait(w.a, w.a.send_cq, 1);
  EXPECT_GE(counted(USIW_CNT_NOT_READY_RX), 1u);
  EXPECT_GE(counted(USIW_CNT_RETRANS_RNR), 1u);
  EXPECT_EQ(0u, counted(USIW_CNT_RETRANS_FAST) + counted(USIW_CNT_RETRANS_RTO));
  EXPECT_GE(counted(USIW_CNT_NOT_READY_TX, 1), 1u);
  EXPECT_GE(kinds().count(TraceKind::kRnrRetry), 1u);
}

TEST_F(TraceTest, PortThatTakesLess) {
  connect();
  w.a.port.tx_limit = 2;
  writes(1, 20'000);
  EXPECT_GE(counted(USIW_CNT_RETRANS_UNSENT), 1u);
  EXPECT_GE(w.a.count(USIW_CNT_TX_FULL), 1u);
}

TEST_F(TraceTest, CompletionsByStatus) {
  connect();
  Region* from = w.a.region(64);
  write(a_, from->sge(0, 64), 0x1000, 0x7777);
  write(a_, from->sge(0, 64), 0x1000, 0x7777);
  EXPECT_EQ((std::vector{kRemAccessErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_EQ(1u, counted(USIW_CNT_COMP_REM_ACCESS));
  EXPECT_EQ(1u, counted(USIW_CNT_COMP_FLUSH));
  EXPECT_EQ(1u, counted(USIW_CNT_TERM_RX));
  EXPECT_EQ(1u, counted(USIW_CNT_TERM_TX, 1));
}

TEST_F(TraceTest, Gauges) {
  connect();
  EXPECT_EQ(1024u, gauge(USIW_GAUGE_CREDIT));
  EXPECT_EQ(64u, gauge(USIW_GAUGE_CWND));
  EXPECT_EQ(0u, gauge(USIW_GAUGE_SRTT_NS));
  writes(4, 10'000);
  w.run_for(100 * kMs);
  EXPECT_NE(0u, gauge(USIW_GAUGE_SRTT_NS));
  EXPECT_LE(gauge(USIW_GAUGE_MIN_RTT_NS), gauge(USIW_GAUGE_SRTT_NS));
  EXPECT_EQ(0u, gauge(USIW_GAUGE_INFLIGHT));
  EXPECT_EQ(0u, gauge(USIW_GAUGE_LOST));
}

TEST_F(TraceTest, GaugeOfAReceiverWithAGap) {
  connect();
  unsigned data = 0;
  uint64_t held = 0;
  w.wire.filter = [&](int side, Datagram&) {
    held = std::max(held, gauge(USIW_GAUGE_HELD));
    return side != 1 || ++data != 1;
  };
  Region* from = w.b.region(9000);
  Region* to = w.a.region(9000);
  write(b_, from->sge(0, 9000), to->addr(), to->stag);
  wait(w.b, w.b.send_cq, 1);
  EXPECT_NE(0u, held);
  EXPECT_EQ(0u, gauge(USIW_GAUGE_HELD));
}

TEST_F(TraceTest, OffRecordsNothingOnRecords) {
  open(false);
  connect();
  writes(2, 64);
  EXPECT_EQ(0u, header().next);
  header().on = 1;  // as the tool does
  writes(2, 64);
  EXPECT_EQ(2u, kinds().count(TraceKind::kComplete));
  EXPECT_EQ(2u, kinds().count(TraceKind::kTx));
  EXPECT_NE(0u, slot(0).flow);  // the connection was made while recording was off
  header().on = 0;
  const uint64_t before = header().next;
  writes(2, 64);
  EXPECT_EQ(before, header().next);
}

TEST_F(TraceTest, RingWraps) {
  open(true);
  connect();
  writes(16, 400'000);
  const uint64_t next = header().next;
  ASSERT_GT(next, 2u * kEvents);
  uint64_t time = 0;
  for (uint64_t n = next - kEvents; n < next; ++n) {
    EXPECT_EQ(n + 1, slot(n).number);
    EXPECT_GE(slot(n).time_ns, time);
    time = slot(n).time_ns;
  }
}

TEST_F(TraceTest, KeepsTheFirstBytesOfADatagram) {
  open(true);
  connect();
  Datagram sent;
  w.wire.filter = [&](int side, Datagram& d) {
    if (side == 0 && sent.empty()) sent = d;
    return true;
  };
  writes(1, 1000);
  for (uint64_t i = 0;; ++i) {
    ASSERT_LT(i, header().next);
    if (slot(i).kind != TraceKind::kTx) continue;
    EXPECT_EQ(sent.size(), slot(i).len);
    EXPECT_EQ(kTraceKept, slot(i).kept);
    EXPECT_EQ(0, std::memcmp(sent.data(), slot(i).bytes, kTraceKept));
    break;
  }
}

TEST_F(TraceTest, StopsOnError) {
  open(true, kTraceStopOnError);
  connect();
  Region* from = w.a.region(64);
  write(a_, from->sge(0, 64), 0x1000, 0x7777);
  EXPECT_TRUE(failed(w.a));
  w.run_for(kSec);
  EXPECT_EQ(0u, header().on);
  EXPECT_EQ(TraceKind::kFailed, slot(header().next - 1).kind);
}

TEST_F(TraceTest, OrderlyEndIsNoError) {
  open(true, kTraceStopOnError);
  connect();
  writes(1, 64);
  w.a.engine.qp_shutdown(a_);
  EXPECT_TRUE(w.run([&] { return !w.a.events.closed.empty(); }));
  EXPECT_EQ(1u, header().on);
}

TEST_F(TraceTest, ScribbledHeaderSpoilsOnlyTheTrace) {
  open(true);
  connect();
  std::fill(memory_.begin(), memory_.begin() + kTraceHeaderBytes, std::byte{0xff});
  writes(4, 100'000);
  EXPECT_EQ(4u, counted(USIW_CNT_COMP_OK));
}

TEST_F(TraceTest, FlowTableIsReused) {
  open(true);
  connect();
  Tracer tracer;
  std::vector<std::byte> memory(trace_bytes(kTraceMinEvents));
  Tracer::format(memory, kTraceMinEvents, true, 0, 1, 0, "x");
  tracer.attach(memory);
  const Path path{w.last_flow, {}, {}, 64, 0};
  uint32_t id = 0;
  for (uint32_t i = 0; i < 3 * kTraceFlows; ++i) id = tracer.connection(i, path);
  EXPECT_EQ(3 * kTraceFlows, id);
  const auto* flows = reinterpret_cast<const TraceFlow*>(memory.data() + kTraceHeaderBytes);
  EXPECT_EQ(id, flows[id % kTraceFlows].id);
}

}  // namespace
}  // namespace usiw::sim
