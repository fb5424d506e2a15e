// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Runs of a pair of connections by seeds. A failure names its seed. CM_SIM_SEED=n runs that seed alone.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim.h"
#include "tests/support/sanitized.h"

namespace {

struct Totals {
  int runs = 0, established = 0, both_at_end = 0, rejected = 0, timed_out = 0, excused = 0;
};

Totals run_seeds(cmsim::Config config, uint64_t count) {
  Totals t;
  uint64_t first = 1, last = kSanitized ? count / 4 : count;
  if (const char* only = std::getenv("CM_SIM_SEED")) first = last = std::strtoull(only, nullptr, 0);
  for (uint64_t seed = first; seed <= last; seed++) {
    config.seed = seed;
    config.kernel_sees_data = seed % 2;
    const cmsim::Outcome o = cmsim::Sim(config).run();
    if (!o.broken.empty()) {
      ADD_FAILURE() << o.broken;
      break;
    }
    t.runs++;
    t.established += o.established;
    t.both_at_end += o.both_established_at_end;
    t.rejected += o.rejected;
    t.timed_out += o.timed_out;
    t.excused += o.excused;
  }
  return t;
}

TEST(Sim, perfect_wire__always_agrees) {
  cmsim::Config c;
  const Totals t = run_seeds(c, 5000);
  EXPECT_EQ(t.excused, 0);
  EXPECT_EQ(t.timed_out, 0);
  if (t.runs < 100) return;
  EXPECT_GT(t.established, t.runs / 2);
  EXPECT_GT(t.both_at_end, t.runs / 50);
  EXPECT_GT(t.rejected, t.runs / 20);
}

TEST(Sim, perfect_wire_and_trouble__always_agrees) {
  cmsim::Config c;
  c.trouble = 0.3;
  c.max_delay_us = 50'000;
  const Totals t = run_seeds(c, 10000);
  EXPECT_EQ(t.excused, 0);
}

TEST(Sim, lossy_wire__agrees) {
  cmsim::Config c;
  c.loss = 0.1;
  c.dup = 0.1;
  c.max_delay_us = 300'000;
  const Totals t = run_seeds(c, 5000);
  if (t.runs < 100) return;
  // A connection must survive one lost datagram. It times out only after several losses in a row.
  EXPECT_LT(t.timed_out, t.runs / 500);
  EXPECT_GT(t.established, t.runs / 2);
  EXPECT_LT(t.excused, t.runs / 50);
}

TEST(Sim, lossy_wire_and_trouble__agrees) {
  cmsim::Config c;
  c.loss = 0.15;
  c.dup = 0.2;
  c.max_delay_us = 300'000;
  c.trouble = 0.3;
  const Totals t = run_seeds(c, 10000);
  if (t.runs < 100) return;
  EXPECT_LT(t.excused, t.runs / 20);
}

TEST(Sim, terrible_wire__stays_within_the_contract) {
  cmsim::Config c;
  c.loss = 0.6;
  c.dup = 0.3;
  c.max_delay_us = 500'000;
  c.trouble = 0.2;
  run_seeds(c, 2000);
}

TEST(Sim, cut_wire__ends_in_bounded_time) {
  cmsim::Config c;
  c.loss = 0.05;
  c.max_delay_us = 200'000;
  c.trouble = 0.1;
  c.cut = 1;
  run_seeds(c, 2000);
}

TEST(Sim, junk_calls_and_packets__stay_within_the_contract) {
  cmsim::Config c;
  c.loss = 0.1;
  c.dup = 0.2;
  c.max_delay_us = 100'000;
  c.trouble = 0.2;
  c.junk = 20;
  run_seeds(c, 10000);
}

}  // namespace
