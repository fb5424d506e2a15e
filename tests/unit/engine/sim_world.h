// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sim_world.h
/// A world for engines: virtual time, a wire that misbehaves by a seed (tests/support), and
/// two hosts, each with an engine, memory, a CQ pair and QPs. Everything is repeatable.
#ifndef USIW_TESTS_ENGINE_SIM_WORLD_H
#define USIW_TESTS_ENGINE_SIM_WORLD_H

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "tests/support/sim_wire.h"
#include "uapi/usiw_abi.h"

namespace usiw::sim {

/// What the engine told its owner.
struct Events final : EngineEvents {
  void cq_ready(Cq& cq) override { ready.push_back(&cq); }
  void cq_overrun(Cq& cq) override { overrun.push_back(&cq); }
  void qp_peer_closed(Qp& qp) override { peer_closed.push_back(&qp); }
  void qp_closed(Qp& qp) override { closed.push_back(&qp); }
  void qp_failed(Qp& qp, int error, AsyncEvent event) override { failed.push_back({&qp, error, event}); }
  void qp_last_wqe(Qp& qp) override { last_wqe.push_back(&qp); }
  void srq_limit(Srq& srq) override { srq_limits.push_back(&srq); }
  void qp_drained(Qp& qp) override { drained.push_back(&qp); }
  PortAnswer qp_which_port(Qp&, const PortAsked& a) override {
    asked.push_back(a);
    return which_port ? which_port(a) : PortAnswer{};
  }
  std::function<PortAnswer(const PortAsked&)> which_port;
  std::vector<PortAsked> asked;
  struct Failure {
    Qp* qp;
    int error;
    AsyncEvent event;
  };
  std::vector<Cq*> ready, overrun;
  std::vector<Qp*> peer_closed, closed, last_wqe, drained;
  std::vector<Srq*> srq_limits;
  std::vector<Failure> failed;
};

/// Registered memory.
struct Region {
  std::vector<std::byte> bytes;
  uint32_t stag = 0;
  uint64_t addr() const { return reinterpret_cast<uint64_t>(bytes.data()); }
  Sge sge(size_t offset, size_t length) const {
    return {addr() + offset, static_cast<uint32_t>(length), stag};
  }
};

struct Host {
  static constexpr uint32_t kPd = 7;
  static constexpr size_t kBuffers = 2048;
  static constexpr uint32_t kAllRights = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;

  Host(SimClock& clock, SimWire& wire, int side, uint32_t max_payload = 9000, bool refers = false)
      : port(wire, side, max_payload, kBuffers, refers),
        owned(std::make_unique<Engine>(clock, events, counters.data())),
        engine(*owned) {
    port_no = engine.add_port(port);
    send_cq = engine.cq_create(4096, nullptr);
    recv_cq = engine.cq_create(4096, nullptr);
  }

  Region* region(size_t bytes, uint32_t access = kAllRights, uint32_t pd = kPd) {
    auto r = std::make_unique<Region>();
    r->bytes.resize(bytes);
    r->stag = next_stag << 8 | 0x5a;
    ++next_stag;
    EXPECT_EQ(0, engine.mr_add({r->stag, pd, access, r->addr(), bytes, r->addr()}));
    regions.push_back(std::move(r));
    return regions.back().get();
  }
  Qp* qp(QpAttr attr) {
    attr.qpn = next_qpn++;
    attr.pd = kPd;
    if (attr.send_cq == nullptr) attr.send_cq = send_cq;
    if (attr.recv_cq == nullptr) attr.recv_cq = recv_cq;
    return engine.qp_create(attr);
  }
  Srq* srq(uint32_t max_wr, uint32_t max_sge = 2) { return engine.srq_create({kPd, max_wr, max_sge, nullptr}); }
  std::vector<Cqe> poll(Cq* cq) {
    std::vector<Cqe> out(64);
    out.resize(cq->poll(out));
    return out;
  }
  uint64_t count(usiw_counter c) const { return counters[c]; }

  std::array<uint64_t, USIW_CNT_MAX> counters{};
  Events events;
  SimPort port;
  std::unique_ptr<Engine> owned;
  Engine& engine;
  int port_no = -1;
  Cq* send_cq;
  Cq* recv_cq;
  std::vector<std::unique_ptr<Region>> regions;
  uint32_t next_stag = 17;
  uint32_t next_qpn = 1;
};

/// Options of a pair of QPs.
struct PairOptions {
  uint32_t max_send_wr = 64, max_recv_wr = 64, max_sge = 4, max_inline = 256;
  uint32_t psn[2] = {0x1000, 0xfffffe00};  ///< first PSN sent by each side; one wraps soon
  uint16_t ird = 16, ord = 16, mtu = 1500;
  uint32_t window = 1024;
  bool sig_all = false, ipv6 = false, merges = false, silent = false;
  uint16_t mtu_of_b = 0;  ///< MTU of b's path, if that is less than mtu; 0: mtu
  Srq* srq_of_b = nullptr;
};

class World {
 public:
  /// @p refers: as SimPort.
  explicit World(uint64_t seed = 1, uint32_t max_payload = 9000, bool refers = false)
      : wire(clock, seed), a(clock, wire, 0, max_payload, refers), b(clock, wire, 1, max_payload, refers) {}
  ~World() {
    for (Host* h : {&a, &b}) {
      h->owned.reset();
      EXPECT_EQ(h->port.total_buffers(), h->port.free_buffers()) << "leaked";
    }
    EXPECT_EQ("", wire.broken);
  }

  /// Makes a connected pair; one end of it per host.
  std::pair<Qp*, Qp*> connect(const PairOptions& o = {}) {
    QpAttr attr{};
    attr.max_send_wr = o.max_send_wr;
    attr.max_recv_wr = o.max_recv_wr;
    attr.max_send_sge = attr.max_recv_sge = o.max_sge;
    attr.max_inline = o.max_inline;
    attr.sq_sig_all = o.sig_all;
    Qp* qa = a.qp(attr);
    attr.srq = o.srq_of_b;
    Qp* qb = b.qp(attr);
    connect(qa, qb, o);
    return {qa, qb};
  }
  void connect(Qp* qa, Qp* qb, const PairOptions& o) {
    const FlowKey flow = next_flow(o.ipv6);
    Path pa{flow, {}, {}, 64, 0}, pb{SimWire::reversed(flow), {}, {}, 64, 0};
    const ConnAttr ca{o.psn[0], o.psn[1], o.window, o.ird, o.ord, o.mtu, true, o.merges, 0, o.silent};
    const uint16_t mtu_of_b = o.mtu_of_b != 0 ? o.mtu_of_b : o.mtu;
    const ConnAttr cb{o.psn[1], o.psn[0], o.window, o.ird, o.ord, mtu_of_b, false, o.merges, o.mtu, o.silent};
    ASSERT_EQ(0, b.engine.qp_connect(qb, b.port_no, pb, cb));
    ASSERT_EQ(0, a.engine.qp_connect(qa, a.port_no, pa, ca));
    last_flow = flow;
  }
  FlowKey next_flow(bool ipv6) {
    FlowKey f{};
    f.local_addr = SimWire::address(0, ipv6);
    f.remote_addr = SimWire::address(1, ipv6);
    f.local_port = next_port_++;
    f.remote_port = 4791;
    return f;
  }

  /// One run of both engines; then time goes on, to the next thing that happens.
  /// One run of each engine; time goes on a little. Returns the work done.
  unsigned tick() {
    unsigned work = 0;
    for (Host* h : {&a, &b})
      if (h == &a ? !a_frozen : !b_frozen) work += h->engine.progress();
    clock.now += 300;
    return work;
  }
  /// tick(), and when there was nothing to do, on to the time when there will be.
  /// Returns the work done.
  unsigned step() {
    if (const unsigned work = tick(); work != 0) return work;
    const uint64_t at = next_event();
    if (at != UINT64_MAX && at > clock.now) clock.now = std::min(at, limit_);
    return 0;
  }
  /// Runs until @p done or for @p ns of virtual time; returns whether it is done.
  bool run(const std::function<bool()>& done, uint64_t ns = 60'000'000'000) {
    limit_ = clock.now + ns;
    while (!done()) {
      if (clock.now >= limit_) return false;
      const uint64_t before = clock.now;
      const bool worked = step() != 0;
      if (!worked && next_event() == UINT64_MAX && clock.now - before <= 300) clock.now = limit_;
    }
    return true;
  }
  void run_for(uint64_t ns) {
    run([] { return false; }, ns);
  }

  SimClock clock;
  SimWire wire;
  Host a, b;
  bool a_frozen = false, b_frozen = false;
  FlowKey last_flow{};  ///< as side a sees it

 private:
  /// The time of the next arrival or deadline of a side that runs; UINT64_MAX: there is none.
  uint64_t next_event() const {
    uint64_t at = UINT64_MAX;
    if (!a_frozen) at = std::min(wire.next_arrival(0), a.engine.next_deadline_ns());
    if (!b_frozen) at = std::min({at, wire.next_arrival(1), b.engine.next_deadline_ns()});
    return at;
  }
  uint16_t next_port_ = 1000;
  uint64_t limit_ = UINT64_MAX;
};

inline void fill(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 rng(seed);
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint64_t v = rng();
    std::memcpy(&bytes[i], &v, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(rng());
}

}  // namespace usiw::sim

#endif  // USIW_TESTS_ENGINE_SIM_WORLD_H
