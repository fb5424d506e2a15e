// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file chaos_test.cc
/// Something breaks at a random moment of random traffic: whatever it is, both ends come
/// to an end in bounded time, and every work request posted completes exactly once, in order:
/// successes (with the right bytes), then at most one error of its own, then flushes.
/// USIW_STORM_SEED=n repeats one run, USIW_STORM_SEEDS=n runs n.
#include <cstdlib>
#include <string>

#include "fixture.h"
#include "tests/support/sanitized.h"

namespace usiw::sim {
namespace {

enum Break { kShutdown, kShutdownBoth, kAbort, kCut, kDeregister, kBadKey, kShortReceive, kCorruptWire, kBreaks };

class Chaos {
 public:
  explicit Chaos(uint64_t seed) : rng_(seed), w_(seed) {
    w_.wire.faults.loss = rng_() % 3 == 0 ? 0.1 : 0;
    w_.wire.faults.jitter = rng_() % 2 * 20'000;
    w_.wire.faults.duplicate = rng_() % 3 == 0 ? 0.1 : 0;
    w_.wire.faults.per_packet = rng_() % 1000;
    PairOptions o;
    o.max_send_wr = o.max_recv_wr = 32;
    o.psn[0] = static_cast<uint32_t>(rng_());
    auto [qa, qb] = w_.connect(o);
    sides_[0] = {&w_.a, &w_.b, qa, {}, 0, 0, 0, false, false, false};
    sides_[1] = {&w_.b, &w_.a, qb, {}, 0, 0, 0, false, false, false};
  }

  void run() {
    const auto what = static_cast<Break>(rng_() % kBreaks);
    SCOPED_TRACE("break " + std::to_string(what));
    bad_side_ = rng_() % 2;
    const size_t moment = rng_() % kTurns;
    for (size_t t = 0; t < 2 * kTurns; ++t) {
      if (t == moment) break_it(what);
      for (int i : {0, 1}) turn(i, t >= moment && i == bad_side_ ? what : kBreaks);
      w_.run_for(1 + rng_() % 3'000);
    }
    // Some breaks may not have hurt anybody.
    w_.run([&] {
      for (int i : {0, 1}) poll(i);
      return over();
    }, 15'000'000'000);
    for (Side& s : sides_)
      if (s.qp->state() == QpState::kRts) s.host->engine.qp_shutdown(s.qp);
    const bool ended = w_.run([&] {
      for (int i : {0, 1}) poll(i);
      return over();
    }, 60'000'000'000);
    ASSERT_TRUE(ended) << "work requests do not complete: " << report();
    w_.run_for(15'000'000'000);
    for (int i : {0, 1}) poll(i);
    for (const Side& s : sides_) {
      EXPECT_EQ(QpState::kError, s.qp->state());
      EXPECT_EQ(s.ops.size(), s.completed);
      EXPECT_EQ(s.recv_posted, s.received);
    }
  }

 private:
  static constexpr size_t kTurns = 200;  ///< of posting before the break at most, and behind it at least

  struct Op {
    WrOpcode opcode;
    Region *local, *remote;
  };
  struct Side {
    Host *host, *peer;
    Qp* qp;
    std::vector<Op> ops;
    size_t completed, recv_posted, received;
    bool failed, recv_failed, own_error;
  };

  void break_it(Break what) {
    Side& s = sides_[bad_side_];
    switch (what) {
      case kShutdown: s.host->engine.qp_shutdown(s.qp); break;
      case kShutdownBoth:
        for (Side& x : sides_) x.host->engine.qp_shutdown(x.qp);
        break;
      case kAbort: s.host->engine.qp_abort(s.qp); break;
      case kCut: w_.wire.faults.cut[rng_() % 2] = true; break;
      case kDeregister:
        for (size_t i = s.completed; i < s.ops.size(); ++i) gone_.push_back(s.ops[i].local);
        for (Region* r : gone_) {
          s.host->engine.mr_remove(r->stag);
          std::vector<std::byte>().swap(r->bytes);
        }
        break;
      case kCorruptWire:
        w_.wire.faults.corrupt = 0.3;
        w_.wire.faults.checksum = false;
        break;
      case kBadKey:
      case kShortReceive:
      case kBreaks: break;
    }
  }

  void turn(int side, Break what) {
    Side& s = sides_[side];
    poll(side);
    if (rng_() % 2) {
      Region* r = s.host->region(what == kShortReceive ? 100 : 3000);
      if (s.qp->post_recv(s.recv_posted, std::vector{r->sge(0, r->bytes.size())}) == 0) ++s.recv_posted;
      s.qp->ring_recv();
    }
    if (rng_() % 2) {
      const WrOpcode kinds[] = {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead};
      Op op{kinds[rng_() % 3], nullptr, nullptr};
      const size_t size = rng_() % 3000;
      op.local = s.host->region(size + 1);
      op.remote = s.peer->region(size + 1);
      fill((op.opcode == WrOpcode::kRdmaRead ? op.remote : op.local)->bytes, rng_());
      const uint32_t rkey = op.remote->stag ^ (what == kBadKey ? 1 : 0);
      const auto flags = static_cast<uint8_t>(kWrSignaled | (rng_() % 8 == 0 ? kWrFence : 0));
      if (s.qp->post_send({s.ops.size(), op.opcode, flags, op.remote->addr(), rkey},
                          std::vector{op.local->sge(0, size)}) == 0)
        s.ops.push_back(op);
      s.qp->ring_send();
    }
  }

  void poll(int side) {
    Side& s = sides_[side];
    for (const Cqe& c : s.host->poll(s.host->send_cq)) {
      ASSERT_LT(s.completed, s.ops.size());
      ASSERT_EQ(s.completed, c.wr_id) << "order";
      const Op& op = s.ops[s.completed++];
      if (c.status == kSuccess) {
        ASSERT_FALSE(s.failed) << "success behind an error";
        if (op.opcode != WrOpcode::kSend && w_.wire.faults.checksum && !op.local->bytes.empty() &&
            !op.remote->bytes.empty()) {
          ASSERT_EQ(0, std::memcmp(op.local->bytes.data(), op.remote->bytes.data(), op.local->bytes.size() - 1));
        }
      } else {
        // With a corrupted wire the two ends may disagree about what is complete.
        if (c.status != kWrFlushErr) {
          ASSERT_FALSE(w_.wire.faults.checksum ? s.failed : s.own_error) << "second error";
          s.own_error = true;
        }
        s.failed = true;
      }
    }
    for (const Cqe& c : s.host->poll(s.host->recv_cq)) {
      ASSERT_LT(s.received, s.recv_posted);
      ASSERT_EQ(s.received, c.wr_id);
      ++s.received;
      ASSERT_TRUE(c.status != kSuccess || !s.recv_failed);
      s.recv_failed |= c.status != kSuccess;
    }
  }
  bool over() const {
    for (const Side& s : sides_)
      if (s.completed < s.ops.size() || s.received < s.recv_posted) return false;
    return true;
  }
  std::string report() const {
    std::string out;
    for (const Side& s : sides_)
      out += std::to_string(s.completed) + "/" + std::to_string(s.ops.size()) + " sent, " +
             std::to_string(s.received) + "/" + std::to_string(s.recv_posted) + " received; ";
    return out;
  }

  std::mt19937_64 rng_;
  World w_;
  Side sides_[2];
  int bad_side_ = 0;
  std::vector<Region*> gone_;
};

TEST(Chaos, ends_in_order_whatever_breaks) {
  const char* only = std::getenv("USIW_STORM_SEED");
  const char* many = std::getenv("USIW_STORM_SEEDS");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 0) : 1;
  const uint64_t usual = kSanitized ? 40 : 200;
  const uint64_t last = only != nullptr ? first : many != nullptr ? std::strtoull(many, nullptr, 0) : usual;
  // Every third of the first 40 seeds: together they have every kind of break.
  const uint64_t step = kSanitized && only == nullptr && many == nullptr ? 3 : 1;
  for (uint64_t seed = first; seed <= last; seed += step) {
    SCOPED_TRACE("USIW_STORM_SEED=" + std::to_string(seed));
    Chaos(seed).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace usiw::sim
