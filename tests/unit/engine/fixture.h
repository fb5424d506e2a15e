// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fixture.h
/// A test with a world in it and short words for posting and waiting.
#ifndef USIW_TESTS_ENGINE_FIXTURE_H
#define USIW_TESTS_ENGINE_FIXTURE_H

#include "sim_world.h"
#include "time_units.h"

namespace usiw::sim {

using Statuses = std::vector<WcStatus>;

class EngineTest : public ::testing::Test {
 protected:
  /// Waits for @p n completions of @p cq and returns them.
  std::vector<Cqe> wait(Host& h, Cq* cq, size_t n, uint64_t ns = 60 * kSec) {
    std::vector<Cqe> got;
    w.run([&] {
      for (const Cqe& c : h.poll(cq)) got.push_back(c);
      return got.size() >= n;
    }, ns);
    EXPECT_EQ(n, got.size());
    got.resize(n);
    return got;
  }
  std::vector<WcStatus> statuses(Host& h, Cq* cq, size_t n, uint64_t ns = 60 * kSec) {
    std::vector<WcStatus> out;
    for (const Cqe& c : wait(h, cq, n, ns)) out.push_back(c.status);
    return out;
  }
  void post(Qp* qp, WrOpcode op, std::vector<Sge> sges, uint64_t wr_id = 1, uint8_t flags = kWrSignaled,
            uint64_t remote = 0, uint32_t rkey = 0) {
    ASSERT_EQ(0, qp->post_send({wr_id, op, flags, remote, rkey}, sges));
    qp->ring_send();
  }
  void write(Qp* qp, const Sge& from, uint64_t to, uint32_t rkey, uint64_t wr_id = 1) {
    post(qp, WrOpcode::kRdmaWrite, {from}, wr_id, kWrSignaled, to, rkey);
  }
  void read(Qp* qp, const Sge& sink, uint64_t from, uint32_t rkey, uint64_t wr_id = 1) {
    post(qp, WrOpcode::kRdmaRead, {sink}, wr_id, kWrSignaled, from, rkey);
  }
  void send(Qp* qp, const Sge& from, uint64_t wr_id = 1) { post(qp, WrOpcode::kSend, {from}, wr_id); }
  void post_recv(Qp* qp, std::vector<Sge> sges, uint64_t wr_id = 1) {
    ASSERT_EQ(0, qp->post_recv(wr_id, sges));
    qp->ring_recv();
  }
  bool failed(Host& h, uint64_t ns = 60 * kSec) {
    return w.run([&] { return !h.events.failed.empty(); }, ns);
  }
  void expect_failed(Host& h, int error, AsyncEvent event) {
    ASSERT_EQ(1u, h.events.failed.size());
    EXPECT_EQ(error, h.events.failed[0].error);
    EXPECT_EQ(event, h.events.failed[0].event);
    EXPECT_EQ(QpState::kError, h.events.failed[0].qp->state());
  }
  World w;
};

using enum WcStatus;

}  // namespace usiw::sim

#endif  // USIW_TESTS_ENGINE_FIXTURE_H
