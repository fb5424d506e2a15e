// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file storm_test.cc
/// Random programs over random bad wires: every byte right, every completion exactly once
/// and in order. A failing run is repeated by its seed: USIW_STORM_SEED=n runs only that one,
/// USIW_STORM_SEEDS=n runs n of each kind.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "engine/operations.h"
#include "sim_world.h"
#include "tests/support/sanitized.h"

namespace usiw::sim {
namespace {

/// A random program: a list of operations per side and QP, each with its own memory.
class Storm {
 public:
  /// @p late_ns: up to so long after each receive no other one is posted.
  Storm(uint64_t seed, const WireFaults& faults, unsigned qps, unsigned ops, size_t max_size, uint64_t late_ns = 0)
      : rng_(seed), w_(seed * 77 + 1), late_ns_(late_ns) {
    w_.wire.faults = faults;
    w_.wire.filter = [this](int, const Datagram& d) {
      TrpHeader h;
      if (decode_trp(d, h) && (h.flags & USIW_TRP_F_SKIPPED) != 0) ++skipped_;
      return true;
    };
    PairOptions o;
    o.max_send_wr = 1 + rng_() % 40;
    o.max_recv_wr = 1 + rng_() % 40;
    o.max_sge = 1 + rng_() % 8;
    o.ird = o.ord = 1 + rng_() % 16;
    const uint16_t mtus[] = {576, 1500, 4096, 9000};
    o.mtu = mtus[rng_() % 4];
    for (unsigned i = 0; i < qps; ++i) {
      o.psn[0] = static_cast<uint32_t>(rng_());
      o.psn[1] = 0u - static_cast<uint32_t>(rng_() % 300);  // wraps on the way
      auto [qa, qb] = w_.connect(o);
      make(w_.a, w_.b, qa, qb, ops, max_size, o.max_sge);
      make(w_.b, w_.a, qb, qa, ops, max_size, o.max_sge);
    }
  }

  void run() {
    const bool done = w_.run([&] { return turn(); }, 600'000'000'000);
    ASSERT_TRUE(w_.a.events.failed.empty() && w_.b.events.failed.empty()) << "a QP failed";
    ASSERT_TRUE(done) << "does not finish";
    for (const auto& l : lanes_) check(*l);
    // Nothing comes late.
    w_.run_for(2'000'000'000);
    for (Host* h : {&w_.a, &w_.b}) {
      EXPECT_TRUE(h->poll(h->send_cq).empty());
      EXPECT_TRUE(h->poll(h->recv_cq).empty());
    }
  }
  World& world() { return w_; }
  /// Datagrams that said that a message was skipped.
  uint64_t skipped() const { return skipped_; }

 private:
  struct Op {
    WrOpcode opcode;
    bool signalled;
    bool inlined;
    Region* local;
    Region* remote;
    size_t size;
    std::vector<Sge> local_sges, recv_sges;
  };
  /// What one side does on one QP.
  struct Lane {
    Host* host;
    Host* peer;
    Qp* qp;
    Qp* peer_qp;
    std::vector<Op> ops;
    std::vector<size_t> sends;  ///< indices of what takes a receive, in order
    size_t posted = 0, completed = 0, recv_posted = 0, received = 0;
    uint64_t recv_at = 0;
  };

  std::vector<Sge> cut(Region* r, size_t size, unsigned max_sge) {
    std::vector<Sge> out;
    size_t at = 0;
    for (unsigned n = 1 + rng_() % max_sge; n > 1; --n) {
      const size_t len = size == at ? 0 : rng_() % (size - at + 1);
      out.push_back(r->sge(at, len));
      at += len;
    }
    out.push_back(r->sge(at, size - at));
    return out;
  }
  void make(Host& host, Host& peer, Qp* qp, Qp* peer_qp, unsigned n, size_t max_size, unsigned max_sge) {
    auto lane = std::make_unique<Lane>();
    *lane = {&host, &peer, qp, peer_qp, {}, {}, 0, 0, 0, 0, 0};
    for (unsigned i = 0; i < n; ++i) {
      Op op{};
      const WrOpcode kinds[] = {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead,
                                WrOpcode::kRdmaWriteImm};
      op.opcode = kinds[rng_() % 4];
      op.size = rng_() % 4 == 0 ? rng_() % max_size : rng_() % 300;
      op.signalled = rng_() % 3 != 0 || i + 1 == n;
      op.inlined = op.opcode != WrOpcode::kRdmaRead && op.size <= 256 && rng_() % 2 == 0;
      op.local = host.region(op.size + 1);
      op.remote = peer.region(op.size + 1);
      const bool read = op.opcode == WrOpcode::kRdmaRead;
      fill(std::span((read ? op.remote : op.local)->bytes).first(op.size), rng_());
      op.local_sges = cut(op.local, op.size, max_sge);
      if (op.opcode == WrOpcode::kSend) op.recv_sges = cut(op.remote, op.size, max_sge);
      if (takes_receive(op.opcode)) lane->sends.push_back(i);
      lane->ops.push_back(std::move(op));
    }
    lanes_.push_back(std::move(lane));
  }

  bool turn() {
    for (auto& l : lanes_) {
      // Receives are posted late now and then: the peer has to wait.
      if (l->recv_posted < l->sends.size() && w_.clock.now >= l->recv_at && rng_() % 3 == 0) {
        if (late_ns_ != 0) l->recv_at = w_.clock.now + rng_() % late_ns_;
        const Op& op = l->ops[l->sends[l->recv_posted]];
        if (l->peer_qp->post_recv(l->recv_posted, op.recv_sges) == 0) ++l->recv_posted;
        l->peer_qp->ring_recv();
      }
      if (l->posted < l->ops.size() && rng_() % 2 == 0) {
        for (unsigned burst = rng_() % 8; burst != 0 && l->posted < l->ops.size(); --burst) {
          const Op& op = l->ops[l->posted];
          const auto flags = static_cast<uint8_t>((op.signalled ? kWrSignaled : 0) |
                                                  (op.inlined ? kWrInline : 0));
          if (l->qp->post_send({l->posted, op.opcode, flags, op.remote->addr(), op.remote->stag},
                               op.local_sges) != 0)
            break;
          ++l->posted;
        }
        l->qp->ring_send();
      }
    }
    for (Host* h : {&w_.a, &w_.b}) {
      for (const Cqe& c : h->poll(h->send_cq)) on_send(*h, c);
      for (const Cqe& c : h->poll(h->recv_cq)) on_recv(*h, c);
    }
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) {
      return l->completed == l->ops.size() && l->received == l->sends.size();
    });
  }
  void on_send(Host& h, const Cqe& c) {
    for (auto& l : lanes_) {
      if (l->host != &h || l->qp->qpn() != c.qpn) continue;
      ASSERT_EQ(WcStatus::kSuccess, c.status);
      while (l->completed < c.wr_id) ASSERT_FALSE(l->ops[l->completed++].signalled) << "skipped";
      ASSERT_EQ(l->completed, c.wr_id);
      ++l->completed;
    }
  }
  void on_recv(Host& h, const Cqe& c) {
    for (auto& l : lanes_) {
      if (l->peer != &h || l->peer_qp->qpn() != c.qpn) continue;
      ASSERT_EQ(WcStatus::kSuccess, c.status);
      ASSERT_EQ(l->received, c.wr_id);
      const Op& op = l->ops[l->sends[l->received++]];
      ASSERT_EQ(op.size, c.byte_len);
      ASSERT_EQ(0, std::memcmp(op.local->bytes.data(), op.remote->bytes.data(), op.size));
    }
  }
  void check(const Lane& l) {
    for (const Op& op : l.ops) {
      ASSERT_EQ(0, std::memcmp(op.local->bytes.data(), op.remote->bytes.data(), op.size));
      ASSERT_EQ(std::byte{0}, op.local->bytes[op.size]);
      ASSERT_EQ(std::byte{0}, op.remote->bytes[op.size]);
    }
  }

  std::mt19937_64 rng_;
  World w_;
  uint64_t late_ns_;
  uint64_t skipped_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

struct Profile {
  const char* name;
  WireFaults faults;
  unsigned seeds;
};

WireFaults faults(double loss, double reorder, double duplicate, uint64_t jitter = 0) {
  WireFaults f;
  f.loss = loss;
  f.reorder = reorder;
  f.duplicate = duplicate;
  f.jitter = jitter;
  return f;
}

/// Calls @p run for each seed, until one fails. Under AddressSanitizer a quarter of the seeds runs the same code.
void for_seeds(uint64_t seeds, const std::function<void(uint64_t)>& run) {
  if (kSanitized) seeds = (seeds + 3) / 4;
  const char* only = std::getenv("USIW_STORM_SEED");
  const char* many = std::getenv("USIW_STORM_SEEDS");
  if (many != nullptr) seeds = std::strtoull(many, nullptr, 0);
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 0) : 1;
  const uint64_t last = only != nullptr ? first : seeds;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("USIW_STORM_SEED=" + std::to_string(seed));
    run(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

class StormTest : public ::testing::TestWithParam<Profile> {};

TEST_P(StormTest, random_programs) {
  for_seeds(GetParam().seeds, [&](uint64_t seed) {
    Storm(seed, GetParam().faults, 1 + seed % 3, 60, 20'000).run();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Wires, StormTest,
    ::testing::Values(Profile{"clean", faults(0, 0, 0), 40}, Profile{"jitter", faults(0, 0, 0, 30'000), 40},
                      Profile{"netem", faults(0.01, 0.05, 0.01), 80},
                      Profile{"lossy", faults(0.20, 0, 0), 60},
                      Profile{"awful", faults(0.10, 0.2, 0.1, 100'000), 60},
                      Profile{"doubled", faults(0, 0, 1.0), 20}),
    [](const auto& p) { return p.param.name; });

/// READs of each end are longer than a window, and SENDs of the other one wait in their way.
TEST(Storm, receives_come_late) {
  const WireFaults kinds[] = {faults(0, 0, 0), faults(0.01, 0.05, 0.01), faults(0.1, 0.1, 0.05, 50'000)};
  uint64_t skipped = 0;
  for_seeds(15, [&](uint64_t seed) {
    Storm storm(seed, kinds[seed % 3], 1 + seed % 2, 30, 1'000'000, 500'000'000);
    storm.run();
    skipped += storm.skipped();
  });
  EXPECT_NE(0u, skipped);
}

TEST(Storm, corrupted_datagrams_with_checksum) {
  for_seeds(20, [](uint64_t seed) {
    WireFaults f;
    f.corrupt = 0.05;
    Storm(seed, f, 2, 60, 20'000).run();
  });
}

TEST(Storm, slow_line_with_short_queue) {
  for_seeds(10, [](uint64_t seed) {
    WireFaults f;
    f.per_packet = 2'500;
    f.queue = 100;
    Storm(seed, f, 3, 40, 200'000).run();
  });
}

TEST(Storm, port_takes_only_a_few) {
  for_seeds(10, [](uint64_t seed) {
    Storm storm(seed, faults(0.01, 0, 0), 3, 40, 50'000);
    storm.world().a.port.tx_limit = 5;
    storm.world().b.port.tx_limit = 1;
    storm.run();
    EXPECT_NE(0u, storm.world().a.count(USIW_CNT_TX_FULL));
  });
}

}  // namespace
}  // namespace usiw::sim
