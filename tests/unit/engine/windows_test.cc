// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file windows_test.cc
/// Memory windows: binding and invalidating in the order of the send queue, what peers may do then, and SENDs that
/// invalidate, on good wires and bad ones.
#include <algorithm>

#include "base/wire.h"
#include "engine/mr_table.h"
#include "fixture.h"

namespace usiw::sim {
namespace {

constexpr uint32_t kBindable = Host::kAllRights | kAccessMwBind;
constexpr uint32_t kWindowStag = uint32_t{USIW_MAX_MR} << 8;
constexpr uint32_t kBothWays = kAccessRemoteRead | kAccessRemoteWrite;

class Windows : public EngineTest {
 protected:
  uint32_t window(Host& h, bool type2, uint32_t pd = Host::kPd) {
    const uint32_t stag = kWindowStag + (next_++ << 8);
    EXPECT_EQ(0, h.engine.mw_add({stag, pd, type2}));
    return stag;
  }
  void bind(Qp* qp, uint32_t stag, const Region& r, uint64_t offset, uint64_t length, uint32_t access, bool type2,
            uint64_t wr_id = 1) {
    ASSERT_EQ(0, qp->post_send({.wr_id = wr_id,
                                .opcode = WrOpcode::kBindMw,
                                .flags = kWrSignaled,
                                .remote_addr = r.addr() + offset,
                                .rkey = stag,
                                .imm = type2 ? 1u : 0u,
                                .bind = {length, access, r.stag}},
                               {}));
    qp->ring_send();
  }
  void with_stag(Qp* qp, WrOpcode op, std::vector<Sge> sges, uint32_t stag, uint64_t wr_id = 1,
                 uint8_t flags = kWrSignaled) {
    const Qp::SendWr wr{.wr_id = wr_id, .opcode = op, .flags = flags, .remote_addr = 0, .rkey = 0, .imm = stag};
    ASSERT_EQ(0, qp->post_send(wr, sges));
    qp->ring_send();
  }
  void local_inv(Qp* qp, uint32_t stag, uint64_t wr_id = 1) { with_stag(qp, WrOpcode::kLocalInv, {}, stag, wr_id); }
  uint32_t next_ = 0;
};

TEST(MrTable, windows_of_both_types) {
  auto t = std::make_unique<MrTable>();
  std::vector<std::byte> mem(100);
  const auto addr = reinterpret_cast<uint64_t>(mem.data());
  constexpr uint32_t kOne = kWindowStag, kTwo = kWindowStag + 0x100;
  MrFault why;
  ASSERT_EQ(0, t->add({0x1234, 1, kBindable, addr, 100, 0x5000}));
  ASSERT_EQ(0, t->add({0x5600, 1, kAccessRemoteRead | kAccessMwBind, addr, 100, 0x5000}));
  ASSERT_EQ(0, t->add({0x7700, 1, Host::kAllRights, addr, 100, 0x5000}));
  ASSERT_EQ(0, t->add_window({kOne, 1, false}));
  ASSERT_EQ(0, t->add_window({kTwo, 1, true}));
  EXPECT_EQ(EEXIST, t->add_window({kTwo, 1, true}));
  EXPECT_EQ(EINVAL, t->add_window({0x1234, 1, true}));
  EXPECT_EQ(EINVAL, t->add_window({uint32_t{USIW_MAX_MR + USIW_MAX_MW} << 8, 1, true}));
  EXPECT_EQ(EINVAL, t->add({kOne, 1, 0, 0, 0, 0}));
  EXPECT_EQ(nullptr, t->resolve_remote(kOne, {1, ~0u, 9}, 0, 0x5000, 1, why).address());
  EXPECT_EQ(MrFault::kStag, why);

  const WindowBind good{kOne | 7, false, 0x1234, kBothWays, 0x5010, 16};
  for (const WindowBind bad : {WindowBind{0x1234, false, 0x1234, 0, 0x5010, 16},           // no window
                               WindowBind{kOne | 7, true, 0x1234, 0, 0x5010, 16},          // of the other type
                               WindowBind{kOne | 7, false, 0x1235, 0, 0x5010, 16},         // no region
                               WindowBind{kOne | 7, false, kTwo, 0, 0x5010, 16},           // a window
                               WindowBind{kOne | 7, false, 0x7700, 0, 0x5010, 16},         // without the right to it
                               WindowBind{kOne | 7, false, 0x5600, kBothWays, 0x5010, 16}, // more than the region may
                               WindowBind{kOne | 7, false, 0x1234, 0, 0x4fff, 16},
                               WindowBind{kOne | 7, false, 0x1234, 0, 0x5010, 85},
                               WindowBind{kOne | 7, false, 0x1234, 0, 0x5010, UINT64_MAX}})
    EXPECT_FALSE(t->bind(bad, 1, 9)) << bad.stag << ' ' << bad.region;
  EXPECT_FALSE(t->bind(good, 2, 9)) << "another PD";
  ASSERT_TRUE(t->bind(good, 1, 9));
  EXPECT_EQ(mem.data() + 16, t->resolve_remote(kOne | 7, {1, ~0u, 8}, kAccessRemoteWrite, 0x5010, 16, why).address());
  EXPECT_EQ(nullptr, t->resolve_remote(kOne | 7, {1, ~0u, 9}, kAccessRemoteWrite, 0x5010, 17, why).address());
  EXPECT_EQ(MrFault::kBounds, why);
  EXPECT_EQ(nullptr, t->resolve_remote(kOne | 7, {2, ~0u, 9}, kAccessRemoteWrite, 0x5010, 16, why).address());
  EXPECT_EQ(MrFault::kPd, why);
  EXPECT_EQ(nullptr, t->resolve_remote(kOne, {1, ~0u, 9}, kAccessRemoteWrite, 0x5010, 16, why).address());
  EXPECT_EQ(nullptr, t->resolve(kOne | 7, 1, 0, 0x5010, 16, why).address()) << "no work request names a window";
  EXPECT_EQ(EBUSY, t->close(0x1234));
  EXPECT_EQ(EBUSY, t->remove(0x1234));
  EXPECT_EQ(EBUSY, t->change(0x1234, {0x1201, 1, 0, addr, 100, 0}));
  EXPECT_FALSE(t->invalidate(kOne | 7, 1, 9)) << "type 1 is not invalidated";

  // Bound anew, then unbound.
  ASSERT_TRUE(t->bind({kOne | 8, false, 0x5600, kAccessRemoteRead | kAccessZeroBased, 0x5020, 4}, 1, 9));
  EXPECT_EQ(0, t->close(0x1234));
  EXPECT_EQ(mem.data() + 33, t->resolve_remote(kOne | 8, {1, ~0u, 9}, kAccessRemoteRead, 1, 3, why).address());
  EXPECT_EQ(nullptr, t->resolve_remote(kOne | 8, {1, ~0u, 9}, kAccessRemoteWrite, 1, 3, why).address());
  EXPECT_EQ(MrFault::kAccess, why);
  EXPECT_FALSE(t->bind(good, 1, 9)) << "the region is closed";
  t->reopen(0x1234);
  ASSERT_TRUE(t->bind({kOne | 9, false, 0, 0, 0, 0}, 1, 9));
  EXPECT_EQ(0, t->remove(0x5600));
  EXPECT_EQ(nullptr, t->resolve_remote(kOne | 9, {1, ~0u, 9}, 0, 0, 1, why).address());

  // Type 2 belongs to a connection, and is not bound twice.
  const WindowBind second{kTwo | 1, true, 0x1234, kBothWays, 0x5000, 100};
  ASSERT_TRUE(t->bind(second, 1, 9));
  EXPECT_FALSE(t->bind(second, 1, 9));
  EXPECT_FALSE(t->bind({kTwo | 2, true, 0, 0, 0, 0}, 1, 9));
  EXPECT_NE(nullptr, t->resolve_remote(kTwo | 1, {1, ~0u, 9}, kBothWays, 0x5000, 100, why).address());
  EXPECT_EQ(nullptr, t->resolve_remote(kTwo | 1, {1, ~0u, 8}, kBothWays, 0x5000, 100, why).address());
  EXPECT_EQ(MrFault::kPd, why);
  for (const auto& [stag, pd, stream] : {std::tuple{kTwo | 1, 1u, 8u}, {kTwo | 1, 2u, 9u}, {kTwo | 2, 1u, 9u},
                                         {0x1234u, 1u, 9u}, {UINT32_MAX, 1u, 9u}})
    EXPECT_FALSE(t->invalidate(stag, pd, stream)) << stag;
  EXPECT_TRUE(t->invalidate(kTwo | 1, 1, 9));
  EXPECT_FALSE(t->invalidate(kTwo | 1, 1, 9));
  EXPECT_EQ(0, t->close(0x1234));
  t->reopen(0x1234);
  ASSERT_TRUE(t->bind(second, 1, 9));
  EXPECT_EQ(0, t->remove_window(kTwo));  // by any key
  EXPECT_EQ(ENOENT, t->remove_window(kTwo));
  EXPECT_EQ(0, t->remove(0x1234));
}

TEST(MrTable, null_region_has_no_memory) {
  auto t = std::make_unique<MrTable>();
  MrFault why;
  ASSERT_EQ(0, t->add_null(0x300, 1));
  const std::byte* zeros = t->resolve(0x300, 1, 0, 0x1234, 9000, why).address();
  ASSERT_NE(nullptr, zeros);
  std::byte* sink = t->resolve(0x300, 1, kAccessLocalWrite, UINT64_MAX - 3, 9000, why).address();
  ASSERT_NE(nullptr, sink);
  EXPECT_NE(zeros, sink);
  std::fill_n(sink, 9000, std::byte{1});
  EXPECT_TRUE(std::all_of(zeros, zeros + 9000, [](std::byte b) { return b == std::byte{0}; }));
  // More than that is there, but cannot be accessed at once.
  for (const uint32_t access : {0u, uint32_t{kAccessLocalWrite}}) {
    EXPECT_NE(nullptr, t->resolve(0x300, 1, access, 0, MrTable::kNullBytes, why).direct());
    EXPECT_TRUE(t->resolve(0x300, 1, access, 0, MrTable::kNullBytes + 1, why));
    EXPECT_EQ(nullptr, t->resolve(0x300, 1, access, 0, MrTable::kNullBytes + 1, why).direct());
  }
  EXPECT_EQ(nullptr, t->resolve(0x300, 2, 0, 0, 1, why).address());
  EXPECT_EQ(nullptr, t->resolve_remote(0x300, {1, ~0u, 9}, kAccessRemoteRead, 0, 1, why).address());
  ASSERT_EQ(0, t->add_window({kWindowStag, 1, false}));
  EXPECT_FALSE(t->bind({kWindowStag, false, 0x300, 0, 0, 1}, 1, 9));
  EXPECT_EQ(0, t->remove(0x300));
  EXPECT_EQ(nullptr, t->resolve(0x300, 1, 0, 0, 1, why).address());
}

// A region registered anew keeps its index, and its old name is nobody's.
TEST(MrTable, change_takes_the_old_name) {
  auto t = std::make_unique<MrTable>();
  std::vector<std::byte> mem(100);
  const auto addr = reinterpret_cast<uint64_t>(mem.data());
  MrFault why;
  ASSERT_EQ(0, t->add({0x301, 1, 0, addr, 10, addr}));
  EXPECT_EQ(ENOENT, t->change(0x302, {0x303, 1, 0, addr, 10, addr}));
  EXPECT_EQ(EINVAL, t->change(0x301, {0x401, 1, 0, addr, 10, addr}));
  EXPECT_EQ(EINVAL, t->change(0x301, {0x302, 1, 0, UINT64_MAX, 10, 0}));
  ASSERT_EQ(0, t->change(0x301, {0x302, 2, kAccessLocalWrite, addr + 50, 10, 0}));
  EXPECT_EQ(nullptr, t->resolve(0x301, 1, 0, addr, 1, why).address());
  EXPECT_EQ(mem.data() + 53, t->resolve(0x302, 2, kAccessLocalWrite, 3, 7, why).address());
}

// The completions of what is of this end alone come in the order of the queue, and what comes behind sees it done.
TEST_F(Windows, bind_write_invalidate) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(3000);
  Region* dst = w.b.region(3000, kBindable);
  fill(src->bytes, 1);
  const uint32_t mw = window(w.b, true);
  bind(qb, mw | 5, *dst, 1000, 1500, kBothWays, true, 11);
  auto got = wait(w.b, w.b.send_cq, 1);
  EXPECT_EQ(WcOpcode::kBindMw, got[0].opcode);
  EXPECT_EQ(11u, got[0].wr_id);
  write(qa, src->sge(0, 1500), dst->addr() + 1000, mw | 5);
  read(qa, src->sge(1500, 100), dst->addr() + 1000, mw | 5, 2);
  EXPECT_EQ((std::vector{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_TRUE(std::equal(&src->bytes[0], &src->bytes[1500], &dst->bytes[1000]));
  EXPECT_TRUE(std::equal(&src->bytes[1500], &src->bytes[1600], &src->bytes[0]));
  EXPECT_EQ(EBUSY, w.b.engine.mr_remove(dst->stag));
  local_inv(qb, mw | 5, 12);
  got = wait(w.b, w.b.send_cq, 1);
  EXPECT_EQ(WcOpcode::kLocalInv, got[0].opcode);
  std::fill(dst->bytes.begin(), dst->bytes.end(), std::byte{0});
  write(qa, src->sge(0, 1500), dst->addr() + 1000, mw | 5, 3);
  EXPECT_EQ(kRemAccessErr, wait(w.a, w.a.send_cq, 1)[0].status);
  EXPECT_TRUE(std::all_of(dst->bytes.begin(), dst->bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(0, w.b.engine.mr_remove(dst->stag));
}

TEST_F(Windows, many_of_this_end_alone_between_sends_keep_their_order) {
  PairOptions o;
  o.max_send_wr = o.max_recv_wr = 512;
  auto [qa, qb] = w.connect(o);
  Region* src = w.a.region(100, kBindable);
  Region* dst = w.b.region(100);
  const uint32_t mw = window(w.a, true);
  for (uint32_t i = 0; i < 40; ++i) post_recv(qb, {dst->sge(0, 100)}, i);
  uint64_t id = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    bind(qa, mw | (i & 0xff), *src, 0, 100, kAccessRemoteRead, true, id++);
    send(qa, src->sge(0, 10), id++);
    local_inv(qa, mw | (i & 0xff), id++);
  }
  const auto got = wait(w.a, w.a.send_cq, id);
  for (uint64_t i = 0; i < id; ++i) {
    EXPECT_EQ(i, got[i].wr_id);
    EXPECT_EQ(kSuccess, got[i].status);
  }
  EXPECT_EQ(40u, wait(w.b, w.b.recv_cq, 40).size());
}

// It fails behind what is before it, and takes the rest of the queue with it.
TEST_F(Windows, a_bind_that_is_not_permitted_fails_in_order) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(5000, Host::kAllRights);  // without the right to bind
  Region* dst = w.b.region(5000);
  const uint32_t mw = window(w.a, true);
  post_recv(qb, {dst->sge(0, 5000)});
  send(qa, src->sge(0, 5000), 1);
  bind(qa, mw, *src, 0, 100, kAccessRemoteRead, true, 2);
  send(qa, src->sge(0, 100), 3);
  EXPECT_EQ((std::vector{kSuccess, kMwBindErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 3));
  EXPECT_EQ(kSuccess, wait(w.b, w.b.recv_cq, 1)[0].status);
  EXPECT_EQ(QpState::kError, qa->state());
}

TEST_F(Windows, a_region_cannot_be_invalidated_here) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(100, kBindable);
  local_inv(qa, src->stag, 7);
  EXPECT_EQ(kMwBindErr, wait(w.a, w.a.send_cq, 1)[0].status);
}

// The receiver hears of the STag with the message, behind which the peer has no access.
TEST_F(Windows, send_invalidates_before_it_completes) {
  w.wire.faults.loss = 0.1;
  w.wire.faults.duplicate = 0.1;
  w.wire.faults.jitter = 20'000;
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(5000);
  Region* dst = w.b.region(5000, kBindable);
  const uint32_t mw = window(w.b, true);
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t stag = mw | i;
    const uint32_t size = i % 3 == 0 ? 0 : 100 + 1600 * (i % 3);
    bind(qb, stag, *dst, 0, 5000, kBothWays, true, i);
    ASSERT_EQ(kSuccess, wait(w.b, w.b.send_cq, 1)[0].status);
    post_recv(qb, {dst->sge(0, 5000)}, i);
    write(qa, src->sge(0, 4000), dst->addr(), stag, i);
    with_stag(qa, WrOpcode::kSendInv, {src->sge(0, size)}, stag, i, i % 2 ? kWrSignaled | kWrSolicited : kWrSignaled);
    const Cqe got = wait(w.b, w.b.recv_cq, 1)[0];
    EXPECT_EQ(kSuccess, got.status);
    EXPECT_EQ(kWcWithInv, got.flags);
    EXPECT_EQ(stag, got.imm);
    EXPECT_EQ(size, got.byte_len);
    EXPECT_EQ(0, w.b.engine.mr_close(dst->stag)) << "nothing is bound to it any more";
    w.b.engine.mr_reopen(dst->stag);
    EXPECT_EQ((std::vector{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2));
  }
}

// Regions, windows of another connection, and what is not bound: refused by the code of RFC 5040, the receive does not
// succeed, and on a wire that reorders the requester still learns which of its messages it was.
TEST_F(Windows, a_send_that_may_not_invalidate_is_refused) {
  for (int what = 0; what < 4; ++what) {
    World world(static_cast<uint64_t>(what) + 1);
    if (what % 2 != 0) world.wire.faults.jitter = 50'000;
    auto [qa, qb] = world.connect();
    auto [qc, qd] = world.connect();
    Region* src = world.a.region(5000);
    Region* dst = world.b.region(5000, kBindable);
    const uint32_t one = kWindowStag + 0x1000, two = kWindowStag + 0x1100;
    ASSERT_EQ(0, world.b.engine.mw_add({one, Host::kPd, false}));
    ASSERT_EQ(0, world.b.engine.mw_add({two, Host::kPd, true}));
    bind(qb, one, *dst, 0, 100, kBothWays, false);
    bind(qd, two, *dst, 0, 100, kBothWays, true);
    const uint32_t stag = std::array{dst->stag, one, two, kWindowStag + 0x1200}[static_cast<size_t>(what)];
    post_recv(qb, {dst->sge(0, 5000)}, 5);
    with_stag(qa, WrOpcode::kSendInv, {src->sge(0, 5000)}, stag, 6);
    std::vector<Cqe> sent, received;
    world.run([&] {
      for (const Cqe& c : world.a.poll(world.a.send_cq)) sent.push_back(c);
      for (const Cqe& c : world.b.poll(world.b.recv_cq)) received.push_back(c);
      return !sent.empty() && !received.empty();
    });
    ASSERT_EQ(1u, sent.size());
    EXPECT_EQ(kRemAccessErr, sent[0].status) << what;
    EXPECT_EQ(vendor_err_of(term::kRdmapCannotInvalidate), sent[0].vendor_err);
    ASSERT_EQ(1u, received.size());
    EXPECT_EQ(kWrFlushErr, received[0].status);
    ASSERT_EQ(1u, world.b.events.failed.size());
    EXPECT_EQ(AsyncEvent::kQpAccessErr, world.b.events.failed[0].event);
    EXPECT_EQ(QpState::kRts, qc->state());
  }
}

// A window is unbound while the peer writes through it: nothing is written from then on.
TEST_F(Windows, unbound_under_a_write) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(1 << 20);
  Region* dst = w.b.region(1 << 20, kBindable);
  fill(src->bytes, 4);
  const uint32_t mw = window(w.b, true);
  bind(qb, mw, *dst, 0, 1 << 20, kAccessRemoteWrite, true);
  wait(w.b, w.b.send_cq, 1);
  write(qa, src->sge(0, 1 << 20), dst->addr(), mw, 3);
  w.run([&] { return dst->bytes[100'000] == src->bytes[100'000] && dst->bytes[100'001] == src->bytes[100'001]; });
  local_inv(qb, mw);
  wait(w.b, w.b.send_cq, 1);
  const std::vector<std::byte> then = dst->bytes;
  EXPECT_NE(then, src->bytes);
  EXPECT_EQ(kRemAccessErr, wait(w.a, w.a.send_cq, 1)[0].status);
  w.run_for(kSec);
  EXPECT_EQ(then, dst->bytes);
}

// What a connection has bound is not the next one's of the same QP.
TEST_F(Windows, a_window_does_not_outlive_its_connection) {
  PairOptions o;
  auto [qa, qb] = w.connect(o);
  Region* src = w.a.region(100);
  Region* dst = w.b.region(100, kBindable);
  const uint32_t mw = window(w.b, true);
  bind(qb, mw, *dst, 0, 100, kBothWays, true);
  wait(w.b, w.b.send_cq, 1);
  for (Host* h : {&w.a, &w.b}) {
    Qp* qp = h == &w.a ? qa : qb;
    h->engine.qp_abort(qp);
    h->engine.qp_reset(qp);
  }
  w.run_for(kMs);
  w.connect(qa, qb, o);
  write(qa, src->sge(0, 100), dst->addr(), mw);
  EXPECT_EQ(kRemAccessErr, wait(w.a, w.a.send_cq, 1)[0].status);
  EXPECT_EQ(0, w.b.engine.mw_remove(mw));
  EXPECT_EQ(0, w.b.engine.mr_remove(dst->stag));
}

}  // namespace
}  // namespace usiw::sim
