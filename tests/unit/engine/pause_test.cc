// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file pause_test.cc
/// qp_pause() and qp_resume(): verbs' SQD.
#include "fixture.h"

namespace usiw::sim {
namespace {

class Pause : public EngineTest {
 protected:
  Pause() {
    std::tie(qa, qb) = w.connect();
    ra = w.a.region(100'000);
    rb = w.b.region(100'000);
  }
  Qp *qa, *qb;
  Region *ra, *rb;
};

TEST_F(Pause, what_is_posted_completes_and_what_comes_waits) {
  write(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, 1);
  read(qa, ra->sge(50'000, 10'000), rb->addr() + 50'000, rb->stag, 2);
  w.a.engine.qp_pause(qa, true);
  EXPECT_TRUE(w.a.engine.qp_draining(qa));
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag, 3);
  EXPECT_EQ((Statuses{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_EQ(std::vector<Qp*>{qa}, w.a.events.drained);
  EXPECT_FALSE(w.a.engine.qp_draining(qa));
  EXPECT_EQ(QpState::kRts, qa->state());
  w.run_for(100 * kMs);
  EXPECT_TRUE(w.a.send_cq->empty());
  // The other way all goes on.
  post_recv(qa, {ra->sge(0, 100)}, 9);
  send(qb, rb->sge(0, 100), 8);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.recv_cq, 1));
  w.a.engine.qp_resume(qa);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(1u, w.a.events.drained.size());
}

TEST_F(Pause, of_an_empty_queue_it_is_said_at_once_and_only_to_who_asked) {
  w.a.engine.qp_pause(qa, false);
  EXPECT_TRUE(w.a.events.drained.empty());
  w.a.engine.qp_pause(qa, true);  // it is paused already
  EXPECT_TRUE(w.a.events.drained.empty());
  w.a.engine.qp_resume(qa);
  w.a.engine.qp_pause(qa, true);
  EXPECT_EQ(1u, w.a.events.drained.size());
}

TEST_F(Pause, shutdown_flushes_what_waits) {
  w.a.engine.qp_pause(qa, true);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag, 1);
  w.a.engine.qp_shutdown(qa);
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_TRUE(w.run([&] { return !w.a.events.closed.empty() && !w.b.events.peer_closed.empty(); }, 10 * kSec));
  EXPECT_EQ(1u, w.a.events.drained.size());
  w.a.engine.qp_resume(qa);  // nothing to resume
  EXPECT_EQ(QpState::kError, qa->state());
}

TEST_F(Pause, an_error_while_it_drains_tells_nothing_else) {
  send(qa, ra->sge(0, 8), 1);  // no receive is posted
  w.a.engine.qp_pause(qa, true);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag, 2);
  w.a.engine.qp_abort(qa);
  EXPECT_EQ((Statuses{kWrFlushErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_TRUE(w.a.events.drained.empty());
}

TEST_F(Pause, reset_ends_it) {
  w.a.engine.qp_pause(qa, true);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag, 1);
  w.a.engine.qp_reset(qa);
  w.b.engine.qp_reset(qb);
  EXPECT_TRUE(w.a.send_cq->empty());
  EXPECT_FALSE(w.a.engine.qp_draining(qa));
  w.connect(qa, qb, {});
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag, 2);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

/// Neither what is on the wire completes, nor what the engine has not seen yet.
TEST_F(Pause, reset_completes_nothing) {
  post_recv(qa, {ra->sge(0, 8)}, 1);
  send(qa, ra->sge(0, 50'000), 2);
  w.run_for(1 * kMs);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag, 3);
  w.a.engine.qp_reset(qa);
  w.run_for(1 * kMs);
  EXPECT_TRUE(w.a.send_cq->empty());
  EXPECT_TRUE(w.a.recv_cq->empty());
  EXPECT_TRUE(w.a.events.failed.empty());
}

}  // namespace
}  // namespace usiw::sim
