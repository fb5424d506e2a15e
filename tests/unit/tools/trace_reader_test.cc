// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_reader_test.cc
/// Traces of real engines on a simulated wire, read, printed and saved; then torn, old, cut and
/// hostile ones.
#include "tools/trace_reader.h"

#include <cstdio>
#include <cstdlib>
#include <random>

#include "engine/trace.h"
#include "fixture.h"
#include "tools/pcapng.h"
#include "tools/trace_text.h"

namespace usiw::tools {
namespace {

using sim::Datagram;
using sim::Region;

constexpr uint32_t kEvents = 512;

class TraceReader : public sim::EngineTest {
 protected:
  TraceReader() {
    Tracer::format(memory_, kEvents, true, 0, 42, 1'700'000'000'000'000'000u, "usiw0");
    w.a.engine.trace_into(memory_);
  }
  /// SEND, WRITE and READ over a wire that loses some, then a refused WRITE.
  void traffic(bool ipv6) {
    sim::PairOptions o;
    o.ipv6 = ipv6;
    auto [a, b] = w.connect(o);
    unsigned n = 0;
    w.wire.filter = [&](int, Datagram&) { return ++n % 9 != 0; };
    Region* from = w.a.region(12'000);
    Region* to = w.b.region(12'000);
    for (int i = 0; i < 4; ++i) {
      post_recv(b, {to->sge(0, 12'000)});
      send(a, from->sge(0, 3000));
      write(a, from->sge(0, 9000), to->addr(), to->stag);
      read(a, from->sge(0, 9000), to->addr(), to->stag);
    }
    wait(w.a, w.a.send_cq, 12);
    write(a, from->sge(0, 10), 0, 0xdead00);
    EXPECT_TRUE(failed(w.a));
    w.a.poll(w.a.send_cq);
  }
  std::string parse(Trace& out) { return parse_trace(memory_, memory_, memory_, out); }
  std::byte* slot(uint64_t i) {
    return memory_.data() + kTraceHeaderBytes + kTraceFlows * sizeof(TraceFlow) + i % kEvents * sizeof(TraceEvent);
  }
  std::vector<std::byte> memory_ = std::vector<std::byte>(trace_bytes(kEvents));
};

/// Output of tshark over the capture, with one field a line.
std::string tshark(const std::vector<std::byte>& capture, const std::string& options) {
  const std::string path = ::testing::TempDir() + "usiw_trace_" + std::to_string(getpid()) + ".pcapng";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fwrite(capture.data(), 1, capture.size(), file);
  std::fclose(file);
  FILE* pipe = popen(("tshark -X lua_script:" USIW_LUA " -o udp.try_heuristic_first:TRUE -r " + path + " " + options +
                      " 2>&1 | grep -v 'Running as user'").c_str(), "r");
  std::string out;
  for (int c; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  pclose(pipe);
  std::remove(path.c_str());
  return out;
}

size_t lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST_F(TraceReader, EventsInOrder) {
  traffic(false);
  Trace t;
  ASSERT_EQ("", parse(t));
  EXPECT_EQ("usiw0", t.device);
  EXPECT_EQ(42u, t.pid);
  ASSERT_FALSE(t.events.empty());
  for (size_t i = 1; i < t.events.size(); ++i) {
    EXPECT_EQ(t.events[i - 1].number + 1, t.events[i].number);
    EXPECT_LE(t.events[i - 1].time_ns, t.events[i].time_ns);
  }
  std::string text;
  for (const TraceEvent& e : t.events) text += line_of(t, e) + "\n";
  for (const char* part :
       {"TX DATA", "RX DATA", "| SEND qn=0 msn=1 mo=0 len=", "| WRITE stag=", "READ_REQ", "READ_RESP", "RX SACK",
        "fast retransmit: psn=0x", "placement hold: psn=0x", "gap filled", "completion: READ success",
        "completion: WRITE remote access error", "Terminate received: layer=1", "QP failed: Remote I/O error",
        "connected: first psn=0x00001000"})
    EXPECT_NE(std::string::npos, text.find(part)) << part;
  EXPECT_EQ("10.9.0.1:59395 > 10.9.0.2:46866", describe(*t.flow_of(t.events.front())));
}

TEST_F(TraceReader, TsharkOpensIt) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6);
    std::fill(memory_.begin() + kTraceHeaderBytes, memory_.end(), std::byte{0});
    traffic(ipv6);
    w.a.events.failed.clear();
    Trace t;
    ASSERT_EQ("", parse(t));
    const auto packets = static_cast<size_t>(std::count_if(t.events.begin(), t.events.end(), is_packet));
    const auto capture = to_pcapng(t);
    const std::string all = tshark(capture, "-T fields -e frame.number -e usiw.psn -e frame.comment -e frame.len");
    EXPECT_EQ(packets, lines(all)) << all.substr(0, 2000);
    EXPECT_EQ(std::string::npos, all.find("Error")) << all;
    EXPECT_EQ(packets, lines(tshark(capture, "-Y 'usiw && !ip.checksum_bad.expert && !udp.length.bad'")));
    for (const char* part : {"fast retransmit", "completion: READ success", "placement hold", "QP failed"})
      EXPECT_NE(std::string::npos, all.find(part)) << part;
  }
}

TEST_F(TraceReader, TornEventsAreLeftOut) {
  traffic(false);
  Trace whole, t;
  ASSERT_EQ("", parse(whole));
  auto first = memory_, last = memory_;
  std::memset(first.data() + (slot(3) - memory_.data()), 0, 8);
  std::memset(last.data() + (slot(5) - memory_.data()), 0, 8);
  std::memset(slot(7), 0, 8);
  ASSERT_EQ("", parse_trace(first, memory_, last, t));
  EXPECT_EQ(whole.events.size() - 3, t.events.size());
}

TEST_F(TraceReader, LapsOfTheRing) {
  Tracer tracer;
  tracer.attach(memory_);
  for (uint64_t i = 0; i < 5 * kEvents + 7; ++i) tracer.note(TraceKind::kProbe, i + 1, 1, 0, i, 0, 0);
  Trace t;
  ASSERT_EQ("", parse(t));
  ASSERT_EQ(kEvents, t.events.size());
  EXPECT_EQ(4u * kEvents + 7, t.events.front().number);
  EXPECT_EQ(5u * kEvents + 6, t.events.back().arg.a);
}

TEST_F(TraceReader, ConnectionsThatTheTableHasForgotten) {
  Tracer tracer;
  tracer.attach(memory_);
  const std::byte datagram[14] = {};
  tracer.packet(TraceKind::kTx, 1, 1, 99, datagram, {});
  Trace t;
  ASSERT_EQ("", parse(t));
  EXPECT_NE(std::string::npos, tshark(to_pcapng(t), "-T fields -e frame.comment").find("addresses not known"));
}

TEST_F(TraceReader, RefusesWhatIsNoTrace) {
  Trace t;
  EXPECT_EQ("not a trace of usiw", parse_trace({}, {}, {}, t));
  std::vector<std::byte> bad(memory_.size());
  EXPECT_EQ("not a trace of usiw", parse_trace(bad, bad, bad, t));
  auto* header = reinterpret_cast<TraceHeader*>(memory_.data());
  const TraceHeader good = *header;
  for (const uint32_t events : {0u, 1u, 3u, kEvents * 2, kTraceMaxEvents * 2, 0x8000'0000u}) {
    header->events = events;
    EXPECT_NE("", parse(t)) << events;
  }
  *header = good;
  header->event_bytes = 64;
  EXPECT_NE("", parse(t));
}

TEST_F(TraceReader, HostileContents) {
  traffic(false);
  std::mt19937_64 rng(7);
  for (int round = 0; round < 60; ++round) {
    auto bad = memory_;
    if (round % 2 == 0) {  // everything behind the header
      for (size_t i = kTraceHeaderBytes; i < bad.size(); i += 8) {
        const uint64_t value = rng();
        std::memcpy(&bad[i], &value, 8);
      }
      // Plausible numbers, so that the events are looked at.
      for (uint64_t i = 0; i < kEvents; ++i) {
        auto* e = reinterpret_cast<TraceEvent*>(bad.data() + (slot(i) - memory_.data()));
        e->number = i + 1;
        e->kind = static_cast<TraceKind>(rng() % 24);
        e->flow = static_cast<uint32_t>(rng() % 4);
        if (rng() % 2 == 0) e->kept = static_cast<uint16_t>(e->len = static_cast<uint32_t>(rng() % (kTraceKept + 8)));
      }
    } else {
      for (int k = 0; k < 400; ++k) bad[40 + rng() % (bad.size() - 40)] = static_cast<std::byte>(rng());
    }
    Trace t;
    if (!parse_trace(bad, bad, bad, t).empty()) continue;
    for (const TraceEvent& e : t.events) {
      const std::string line = line_of(t, e);
      EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= 0x20 && c < 0x7f; })) << line;
    }
    const auto capture = to_pcapng(t);
    if (round < 2) {
      EXPECT_EQ(std::string::npos, tshark(capture, "").find("appears to"));
    }
  }
}

}  // namespace
}  // namespace usiw::tools
