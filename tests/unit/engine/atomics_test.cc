// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file atomics_test.cc
/// Fetch-and-add and compare-and-swap: exactly once whatever the wire does, together with the program's own, refused
/// where there is no right to them, and the bytes on the wire.
#include <atomic>
#include <cstring>
#include <thread>

#include "fixture.h"
#include "played_peer.h"

namespace usiw::sim {
namespace {

constexpr uint32_t kRights = Host::kAllRights | kAccessRemoteAtomic;

void post_atomic(Qp* qp, WrOpcode op, const Sge& result, uint64_t to, uint32_t rkey, AtomicOperands operands,
                 uint64_t wr_id = 1, uint8_t flags = kWrSignaled) {
  ASSERT_EQ(0, qp->post_send({.wr_id = wr_id, .opcode = op, .flags = flags, .remote_addr = to, .rkey = rkey, .imm = 0,
                              .operands = operands},
                             std::span(&result, 1)));
  qp->ring_send();
}

uint64_t& word(Region* r, size_t i = 0) { return reinterpret_cast<uint64_t*>(r->bytes.data())[i]; }

class Atomics : public EngineTest {
 protected:
  void add(Qp* qp, const Sge& result, Region* to, uint64_t n, uint64_t wr_id = 1, uint8_t flags = kWrSignaled) {
    post_atomic(qp, WrOpcode::kFetchAdd, result, to->addr(), to->stag, {n, 0}, wr_id, flags);
  }
  void swap(Qp* qp, const Sge& result, Region* to, uint64_t expected, uint64_t n) {
    post_atomic(qp, WrOpcode::kCompareSwap, result, to->addr(), to->stag, {expected, n});
  }
};

TEST_F(Atomics, do_and_tell_what_was_there) {
  auto [qa, qb] = w.connect();
  Region* ra = w.a.region(64);
  Region* rb = w.b.region(64, kRights);
  word(rb) = 0x1122334455667788;
  add(qa, ra->sge(8, 8), rb, 0x10, 71);
  const Cqe c = wait(w.a, w.a.send_cq, 1)[0];
  EXPECT_EQ(WcOpcode::kFetchAdd, c.opcode);
  EXPECT_EQ(8u, c.byte_len);
  EXPECT_EQ(71u, c.wr_id);
  EXPECT_EQ(0x1122334455667788u, word(ra, 1));
  EXPECT_EQ(0x1122334455667798u, word(rb));
  swap(qa, ra->sge(0, 8), rb, 1, 2);
  EXPECT_EQ(WcOpcode::kCompSwap, wait(w.a, w.a.send_cq, 1)[0].opcode);
  EXPECT_EQ(0x1122334455667798u, word(ra)) << "it did not match";
  EXPECT_EQ(0x1122334455667798u, word(rb));
  swap(qa, ra->sge(0, 8), rb, 0x1122334455667798, 2);
  wait(w.a, w.a.send_cq, 1);
  EXPECT_EQ(0x1122334455667798u, word(ra));
  EXPECT_EQ(2u, word(rb));
  add(qa, ra->sge(0, 8), rb, ~uint64_t{0});
  wait(w.a, w.a.send_cq, 1);
  EXPECT_EQ(2u, word(ra));
  EXPECT_EQ(1u, word(rb)) << "the sum wraps";
}

class AtomicsOnWires : public Atomics, public ::testing::WithParamInterface<double> {};
INSTANTIATE_TEST_SUITE_P(Wires, AtomicsOnWires, ::testing::Values(0, 0.05, 0.3));

TEST_P(AtomicsOnWires, exactly_once_among_reads_and_writes) {
  w.wire.faults.loss = w.wire.faults.duplicate = GetParam();
  w.wire.faults.jitter = GetParam() != 0 ? 30'000 : 0;
  PairOptions o;
  o.max_send_wr = 512;
  o.ord = o.ird = 8;
  auto [qa, qb] = w.connect(o);
  Region* ra = w.a.region(8 * 400);
  Region* rb = w.b.region(8 * 1024, kRights);
  for (uint32_t i = 0; i < 300; ++i) {
    if (i % 5 == 4)
      read(qa, ra->sge(8 * i, 8), rb->addr() + 8, rb->stag, i);
    else if (i % 5 == 3)
      write(qa, ra->sge(0, 8), rb->addr() + 16, rb->stag, i);
    else
      add(qa, ra->sge(8 * i, 8), rb, 1, i);
  }
  const auto got = wait(w.a, w.a.send_cq, 300);
  uint64_t before = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    EXPECT_EQ(kSuccess, got[i].status);
    EXPECT_EQ(i, got[i].wr_id);
    if (i % 5 < 3) {
      EXPECT_EQ(before++, word(ra, i)) << "each has found what the one before left";
    }
  }
  EXPECT_EQ(180u, word(rb));
}

TEST_F(Atomics, two_connections_and_the_program_itself_add_up) {
  auto [qa, qb] = w.connect();
  auto [qc, qd] = w.connect();
  Region* ra = w.a.region(64);
  Region* rb = w.b.region(64, kRights);
  constexpr uint64_t kEach = 2000;
  std::atomic<bool> go{false};
  std::thread own([&] {
    while (!go) std::this_thread::yield();
    for (uint64_t i = 0; i < 50 * kEach; ++i) std::atomic_ref(word(rb)).fetch_add(1);
  });
  go = true;
  uint64_t posted = 0, done = 0;
  w.run([&, qa = qa, qc = qc] {
    for (; posted < kEach && posted < done + 32; ++posted)
      add(posted % 2 != 0 ? qa : qc, ra->sge(0, 8), rb, 1'000'000'000);
    done += w.a.poll(w.a.send_cq).size();
    return done == kEach;
  });
  own.join();
  EXPECT_EQ(kEach * 1'000'000'000 + 50 * kEach, word(rb));
}

TEST_F(Atomics, count_against_ord_and_a_fence_waits_for_them) {
  PairOptions o;
  o.ord = 2;
  o.ird = 2;
  auto [qa, qb] = w.connect(o);
  Region* ra = w.a.region(64);
  Region* rb = w.b.region(64, kRights);
  for (int i = 0; i < 40; ++i) add(qa, ra->sge(0, 8), rb, 1, i);
  for (const Cqe& c : wait(w.a, w.a.send_cq, 40)) EXPECT_EQ(kSuccess, c.status) << "more than IRD would be refused";
  EXPECT_EQ(40u, word(rb));
  // What was found is sent on by a WRITE behind a fence.
  add(qa, ra->sge(0, 8), rb, 5, 1, 0);
  post(qa, WrOpcode::kRdmaWrite, {ra->sge(0, 8)}, 2, kWrSignaled | kWrFence, rb->addr() + 32, rb->stag);
  wait(w.a, w.a.send_cq, 1);
  w.run_for(kMs);
  EXPECT_EQ(40u, word(rb, 4));
}

TEST_F(Atomics, no_ord_no_atomics) {
  PairOptions o;
  o.ord = 0;
  auto [qa, qb] = w.connect(o);
  Region* ra = w.a.region(64);
  Region* rb = w.b.region(64, kRights);
  add(qa, ra->sge(0, 8), rb, 1);
  EXPECT_EQ(kLocQpOpErr, wait(w.a, w.a.send_cq, 1)[0].status);
  EXPECT_EQ(0u, word(rb));
}

TEST_F(Atomics, what_cannot_be_posted) {
  auto [qa, qb] = w.connect();
  Region* ra = w.a.region(64);
  const auto post = [&, qa = qa](std::vector<Sge> sges, uint8_t flags = 0) {
    return qa->post_send({.wr_id = 1, .opcode = WrOpcode::kFetchAdd, .flags = flags, .remote_addr = 0, .rkey = 0},
                         sges);
  };
  EXPECT_EQ(EINVAL, post({}));
  EXPECT_EQ(EINVAL, post({ra->sge(0, 7)}));
  EXPECT_EQ(EINVAL, post({ra->sge(0, 4), ra->sge(4, 4)}));
  EXPECT_EQ(EINVAL, post({ra->sge(0, 8)}, kWrInline));
}

TEST_F(Atomics, sink_that_may_not_be_written) {
  auto [qa, qb] = w.connect();
  Region* ra = w.a.region(64, kAccessRemoteRead);
  Region* rb = w.b.region(64, kRights);
  add(qa, ra->sge(0, 8), rb, 1);
  EXPECT_EQ(kLocProtErr, wait(w.a, w.a.send_cq, 1)[0].status);
  EXPECT_EQ(0u, word(rb));
}

TEST_F(Atomics, refused_at_the_other_end) {
  Region* ra = w.a.region(64);
  Region* rb = w.b.region(64, kRights);
  Region* plain = w.b.region(64);
  Region* foreign = w.b.region(64, kRights, Host::kPd + 1);
  const struct {
    uint64_t to;
    uint32_t rkey;
    TermCode code;
    WcStatus status;
    AsyncEvent event;
  } bad[] = {
      {rb->addr(), rb->stag + 1, term::kRdmapInvalidStag, kRemAccessErr, AsyncEvent::kQpAccessErr},
      {plain->addr(), plain->stag, term::kRdmapAccess, kRemAccessErr, AsyncEvent::kQpAccessErr},
      {foreign->addr(), foreign->stag, term::kRdmapStagNotAssociated, kRemAccessErr, AsyncEvent::kQpAccessErr},
      {rb->addr() + 64, rb->stag, term::kRdmapBounds, kRemAccessErr, AsyncEvent::kQpAccessErr},
      {rb->addr() + 60, rb->stag, term::kRdmapBounds, kRemAccessErr, AsyncEvent::kQpAccessErr},
      {UINT64_MAX - 3, rb->stag, term::kRdmapToWrap, kRemAccessErr, AsyncEvent::kQpAccessErr},
      {rb->addr() + 4, rb->stag, term::kRdmapStream, kRemInvReqErr, AsyncEvent::kQpReqErr},
  };
  for (const auto& b : bad) {
    auto [qa, qb] = w.connect();
    w.b.events.failed.clear();
    write(qa, ra->sge(0, 0), rb->addr(), rb->stag, 1);
    post_atomic(qa, WrOpcode::kFetchAdd, ra->sge(0, 8), b.to, b.rkey, {1, 0}, 2);
    write(qa, ra->sge(0, 0), rb->addr(), rb->stag, 3);
    const auto got = wait(w.a, w.a.send_cq, 3);
    EXPECT_EQ(kSuccess, got[0].status);
    EXPECT_EQ(b.status, got[1].status);
    EXPECT_EQ(vendor_err_of(b.code), got[1].vendor_err);
    EXPECT_EQ(kWrFlushErr, got[2].status);
    ASSERT_TRUE(failed(w.b));
    EXPECT_EQ(b.event, w.b.events.failed[0].event);
  }
  for (std::byte x : rb->bytes) EXPECT_EQ(std::byte{0}, x);
  for (std::byte x : plain->bytes) EXPECT_EQ(std::byte{0}, x);
}

// ---- Against a played peer ----

class AtomicPeer : public Protocol {
 protected:
  AtomicPeer() { target = w.a.region(64, kRights); }
  Datagram request(uint32_t psn, uint32_t msn, AtomicRequest r) {
    DdpSegment s{};
    s.last = true;
    s.rdmap_opcode = USIW_RDMAP_ATOMIC_REQ;
    s.qn = USIW_DDP_QN_READ_REQ;
    s.msn = msn;
    std::byte p[kAtomicReqBytes];
    encode_atomic_request(p, r);
    return data(psn, s, p);
  }
  AtomicRequest adding(uint64_t n) {
    return {USIW_ATOMIC_FETCH_ADD, 0x99, target->stag, target->addr(), n, 0, 0, 0};
  }
  Datagram response(uint32_t psn, uint32_t msn, uint32_t id, uint64_t value, uint32_t ack) {
    DdpSegment s{};
    s.last = true;
    s.rdmap_opcode = USIW_RDMAP_ATOMIC_RESP;
    s.qn = USIW_DDP_QN_ATOMIC_RESP;
    s.msn = msn;
    std::byte p[kAtomicRespBytes];
    encode_atomic_response(p, id, value);
    return data(psn, s, p, ack);
  }
  /// Atomic Responses among @p ds: identifier, value.
  std::vector<std::pair<uint32_t, uint64_t>> responses(const std::vector<Datagram>& ds) {
    std::vector<std::pair<uint32_t, uint64_t>> out;
    for (const Datagram& d : ds) {
      if (header(d).opcode != USIW_TRP_DATA) continue;
      const DdpSegment s = segment(d);
      if (s.rdmap_opcode != USIW_RDMAP_ATOMIC_RESP) continue;
      EXPECT_EQ(uint32_t{USIW_DDP_QN_ATOMIC_RESP}, s.qn);
      EXPECT_TRUE(s.last && s.mo == 0 && s.len == kAtomicRespBytes);
      out.emplace_back(load_be32(s.payload), load_be64(s.payload + 4));
    }
    return out;
  }
  Region* target;
};

TEST_F(AtomicPeer, the_request_byte_by_byte) {
  post_atomic(q, WrOpcode::kCompareSwap, mem->sge(0, 8), 0x0102030405060708, 0x11121314, {0x21, 0x31});
  post_atomic(q, WrOpcode::kFetchAdd, mem->sge(0, 8), 0x10, 7, {0x41, 0x51});
  const auto out = settle(2'000);
  ASSERT_EQ(2u, out.size());
  const DdpSegment s = segment(out[0]);
  EXPECT_EQ(USIW_RDMAP_ATOMIC_REQ, s.rdmap_opcode);
  EXPECT_EQ(1u, s.qn);
  EXPECT_EQ(1u, s.msn);
  EXPECT_TRUE(s.last);
  const uint8_t expected[kAtomicReqBytes] = {
      0, 0, 0, 2, 0, 0, 0, 1, 0x11, 0x12, 0x13, 0x14, 1, 2, 3, 4, 5, 6, 7, 8,
      0, 0, 0, 0, 0, 0, 0, 0x31, 255, 255, 255, 255, 255, 255, 255, 255,
      0, 0, 0, 0, 0, 0, 0, 0x21, 255, 255, 255, 255, 255, 255, 255, 255};
  ASSERT_EQ(kAtomicReqBytes, s.len);
  EXPECT_EQ(0, std::memcmp(expected, s.payload, s.len));
  const AtomicRequest add = decode_atomic_request(segment(out[1]).payload);
  EXPECT_EQ(uint32_t{USIW_ATOMIC_FETCH_ADD}, add.opcode);
  EXPECT_EQ(2u, add.id);
  EXPECT_EQ(0x41u, add.add_swap);
  EXPECT_EQ(0u, add.add_swap_mask | add.compare | add.compare_mask) << "what is not used is 0";
}

TEST_F(AtomicPeer, repeated_requests_are_done_once_and_responses_repeated) {
  const Datagram r = request(kRcv, 1, adding(5));
  inject(r);
  const auto first = responses(settle(50'000));
  ASSERT_EQ(1u, first.size());
  EXPECT_EQ(std::pair(uint32_t{0x99}, uint64_t{0}), first[0]);
  for (int i = 0; i < 3; ++i) inject(r);
  word(target) = 1000;  // the program goes on with it
  const auto again = responses(settle(60 * kMs));
  ASSERT_FALSE(again.empty()) << "it was not acknowledged";
  for (const auto& a : again) EXPECT_EQ(first[0], a) << "what was found the first time";
  EXPECT_EQ(1000u, word(target));
}

TEST_F(AtomicPeer, an_early_one_waits_for_its_turn) {
  inject(request(kRcv + 1, 1, adding(5)));
  settle();
  EXPECT_EQ(0u, word(target));
  inject(data(kRcv, write_seg(0, true), bytes("x")));
  EXPECT_EQ(1u, responses(settle()).size());
  EXPECT_EQ(5u, word(target));
}

TEST_F(AtomicPeer, requests_that_are_refused) {
  AtomicRequest masked = adding(1), swap = adding(1), unknown = adding(1);
  masked.add_swap_mask = 0x8000;
  swap.opcode = USIW_ATOMIC_CMP_SWAP;
  swap.add_swap_mask = ~uint64_t{0};
  swap.compare_mask = 0xff;
  unknown.opcode = 1;
  DdpSegment odd{};
  odd.last = true;
  odd.rdmap_opcode = USIW_RDMAP_ATOMIC_REQ;
  odd.qn = USIW_DDP_QN_READ_REQ;
  odd.msn = 1;
  const std::pair<Datagram, TermCode> bad[] = {{request(kRcv, 1, masked), term::kRdmapOpcode},
                                               {request(kRcv, 1, swap), term::kRdmapOpcode},
                                               {request(kRcv, 1, unknown), term::kRdmapOpcode},
                                               {request(kRcv, 2, adding(1)), term::kDdpMsnRange},
                                               {data(kRcv, odd, bytes("short")), term::kRdmapStream}};
  for (const auto& [datagram, code] : bad) {
    w.a.engine.qp_reset(q);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(q, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    inject(datagram);
    EXPECT_EQ(code, terminate_in(settle()).code);
  }
  EXPECT_EQ(0u, word(target));
}

TEST_F(AtomicPeer, more_than_ird_are_refused) {
  for (uint32_t i = 0; i < 5; ++i) inject(request(kRcv + i, 1 + i, adding(1)));
  EXPECT_EQ(term::kDdpNoBuffer, terminate_in(settle()).code);
  EXPECT_EQ(4u, word(target));
}

// The peer may have all of the oldest response though no acknowledgement has said so: its next request is taken later.
TEST_F(AtomicPeer, one_beyond_ird_waits_until_a_response_is_known_to_have_arrived) {
  send(q, mem->sge(0, 8));  // has the first PSN, and does not arrive
  settle(2'000);
  for (uint32_t i = 0; i < 4; ++i) inject(request(kRcv + i, 1 + i, adding(1)));
  EXPECT_EQ(4u, responses(settle(50'000)).size());
  inject(request(kRcv + 4, 5, adding(1)));
  EXPECT_TRUE(responses(settle(10'000)).empty());
  EXPECT_EQ(4u, word(target));
  Datagram s = trp(USIW_TRP_SACK, kSnd + 2, kSnd);  // the first response has arrived, the SEND has not
  s.push_back(std::byte{0b10});
  inject(s);
  inject(request(kRcv + 4, 5, adding(1)));
  settle(50'000);
  EXPECT_EQ(5u, word(target));
}

TEST_F(AtomicPeer, responses_that_answer_nothing) {
  const auto start = [&](WrOpcode op) {
    w.a.engine.qp_reset(q);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(q, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    if (op == WrOpcode::kRdmaRead)
      read(q, mem->sge(0, 8), 1, 2);
    else
      post_atomic(q, op, mem->sge(0, 8), 8, 7, {1, 2});
    settle(2'000);
  };
  start(WrOpcode::kFetchAdd);
  inject(response(kRcv, 1, 2, 0xdead, kSnd + 1));  // another identifier
  EXPECT_EQ(term::kRdmapStream, terminate_in(settle()).code);
  start(WrOpcode::kRdmaRead);
  inject(response(kRcv, 1, 1, 0xdead, kSnd + 1));  // of a READ
  EXPECT_EQ(term::kRdmapStream, terminate_in(settle()).code);
  start(WrOpcode::kFetchAdd);
  inject(response(kRcv, 2, 1, 0xdead, kSnd + 1));
  EXPECT_EQ(term::kDdpMsnRange, terminate_in(settle()).code);
  start(WrOpcode::kFetchAdd);
  DdpSegment as_read{};
  as_read.tagged = as_read.last = true;
  as_read.rdmap_opcode = USIW_RDMAP_READ_RESP;
  as_read.stag = 1;
  inject(data(kRcv, as_read, bytes("8 bytes."), kSnd + 1));
  EXPECT_EQ(term::kDdpInvalidStag, terminate_in(settle()).code);
  EXPECT_EQ(0u, word(mem)) << "nothing was placed";
  start(WrOpcode::kFetchAdd);
  inject(response(kRcv, 1, 1, 0xdead, kSnd + 1));
  settle();
  EXPECT_EQ(0xdeadu, word(mem)) << "and this is how it should be";
}

}  // namespace
}  // namespace usiw::sim
