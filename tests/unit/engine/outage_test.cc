// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file outage_test.cc
/// The wire carries nothing for a while, and a whole window is lost.
#include "fixture.h"

namespace usiw::sim {
namespace {

class Outage : public EngineTest {
 protected:
  Outage() {
    w.wire.faults.per_packet = 12'000;  // 1 Gb/s
    w.wire.faults.delay = 50'000;
    ra = w.a.region(65536);
    rb = w.b.region(65536);
    std::tie(qa, qb) = w.connect();
  }
  /// Keeps two WRITEs under way.
  void keep_busy() {
    const Sge from = ra->sge(0, 65536);
    for (; posted < done + 2; ++posted)
      ASSERT_EQ(0, qa->post_send({posted, WrOpcode::kRdmaWrite, kWrSignaled, rb->addr(), rb->stag}, std::span(&from, 1)));
    qa->ring_send();
    done += w.a.poll(w.a.send_cq).size();
  }
  void stream_for(uint64_t ns) {
    w.run([&] {
      keep_busy();
      return false;
    }, ns);
  }
  Region *ra, *rb;
  Qp *qa, *qb;
  uint64_t posted = 0, done = 0;
};

/// A lone repetition of a lost window comes back faster than any round trip that had to queue behind others. Its
/// acknowledgement counts all the same: it tells that everything else is missing, and the window goes out at once, not
/// one datagram for each time-out.
TEST_F(Outage, lost_window_is_repeated_at_once) {
  stream_for(50 * kMs);
  const uint64_t before = done;
  w.wire.faults.cut[0] = true;
  stream_for(20 * kMs);
  w.wire.faults.cut[0] = false;
  const uint64_t rtos = w.a.count(USIW_CNT_RTO);
  // The time-out of 0.4 ms has doubled to 25.6 ms at most; then it goes on as before.
  stream_for(26 * kMs);
  const uint64_t resumed = done;
  stream_for(50 * kMs);
  EXPECT_LE(w.a.count(USIW_CNT_RTO), rtos + 2);
  EXPECT_GT(before, 50u);
  EXPECT_GE(done - resumed, before * 9 / 10);
}

}  // namespace
}  // namespace usiw::sim
