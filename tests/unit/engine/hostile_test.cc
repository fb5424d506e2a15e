// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file hostile_test.cc
/// Input that means harm, by the thousand: datagrams and ring contents. Nothing crashes,
/// nothing outside of what is registered changes, other connections go on.
#include "played_peer.h"

namespace usiw::sim {
namespace {

using Hostile = Protocol;

// ---- Anything at all ----

TEST_F(Hostile, random_and_mutated_datagrams) {
  Region* guard = w.a.region(4096, kAccessLocalWrite | kAccessRemoteRead);  // must never change
  std::mt19937_64 rng(11);
  const FlowKey base = flow;
  for (int round = 0; round < 400; ++round) {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    attr.max_send_sge = attr.max_recv_sge = 2;
    Qp* p = w.a.qp(attr);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    for (int i = 0; i < 4; ++i) post_recv(p, {mem->sge(1000 * i, 500), mem->sge(1000 * i + 500, 500)});
    read(p, mem->sge(9000, 600), 1, 2);
    write(p, mem->sge(9000, 600), 1, 2);
    send(p, mem->sge(9000, 600));
    uint32_t psn = kRcv, msn = 1, read_msn = 1;
    for (int i = 0; i < 60; ++i) {
      Datagram d;
      const std::vector<std::byte> payload(rng() % 1400, std::byte(rng()));
      const uint32_t ack = kSnd + rng() % 4;
      switch (rng() % 7) {
        case 0: d = data(psn, write_seg(rng() % 60'000, rng() % 2), payload, ack); break;
        case 1: d = data(psn, send_seg(msn++, 0, true), payload, ack); break;
        case 2: d = read_request(psn, read_msn++, rng() % 5000, ack); break;
        case 3: {
          DdpSegment s = write_seg(0, rng() % 2);
          s.rdmap_opcode = USIW_RDMAP_READ_RESP;
          s.stag = 1 + rng() % 2;
          s.to = rng() % 700;
          d = data(psn, s, payload, ack);
          break;
        }
        case 4:
          d = trp(USIW_TRP_SACK, ack + rng() % 4, ack, rng() & 0x1f, rng() % 2000);
          for (size_t k = rng() % 3; k != 0; --k) d.push_back(std::byte(rng()));
          break;
        case 5: {
          DdpSegment s = send_seg(1, 0, true);
          s.qn = USIW_DDP_QN_TERMINATE;
          s.rdmap_opcode = USIW_RDMAP_TERMINATE;
          d = data(psn, s, payload, ack);
          if (rng() % 4) d = trp(USIW_TRP_SHUTDOWN, psn, ack);
          if (rng() % 4) d = trp(USIW_TRP_DATA, psn, ack);
          break;
        }
        default:
          d.resize(rng() % 200);
          for (auto& b : d) b = std::byte(rng());
      }
      psn += rng() % 3;
      for (int k = rng() % 3; k != 0 && !d.empty(); --k) {
        if (rng() % 8 == 0) d.resize(rng() % d.size());
        if (!d.empty()) d[rng() % std::min<size_t>(d.size(), 60)] = std::byte(rng());
      }
      inject(std::move(d));
      if (rng() % 4 == 0) w.a.engine.progress();
    }
    w.run_for(100'000);
    sent.clear();
    while (!w.a.poll(w.a.send_cq).empty() || !w.a.poll(w.a.recv_cq).empty()) {
    }
    if (rng() % 2) w.a.engine.qp_shutdown(p);
    w.a.engine.qp_destroy(p);
    for (std::byte b : guard->bytes) ASSERT_EQ(std::byte{0}, b);
  }
  // An untouched neighbour is still alive.
  flow = base;
  inject(data(kRcv, write_seg(0, true), bytes("alive")));
  settle();
  EXPECT_EQ("alive", memory(0, 5));
}

// ---- Hostile rings: the producer's side writes what post_send() would refuse ----

TEST_F(Hostile, hostile_slots) {
  std::mt19937_64 rng(12);
  struct Ring : Qp {
    using Qp::rq_;
    using Qp::sq_;
  };
  for (int round = 0; round < 300; ++round) {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    attr.max_send_sge = attr.max_recv_sge = 2;
    attr.max_inline = 64;
    Qp* p = w.a.qp(attr);
    auto& sq = p->*(&Ring::sq_);
    auto& rq = p->*(&Ring::rq_);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    for (uint32_t i = 0; i < 8; ++i) {
      for (std::byte* b = reinterpret_cast<std::byte*>(&sq.at(i)) + 4, *e = b + 28 + sq.tail_bytes(); b != e; ++b)
        *b = std::byte(rng());
      for (std::byte* b = reinterpret_cast<std::byte*>(&rq.at(i)) + 4, *e = b + 12 + rq.tail_bytes(); b != e; ++b)
        *b = std::byte(rng());
      if (rng() % 2) sq.at(i).opcode = static_cast<uint8_t>(rng() % 10);
      if (rng() % 2) sq.at(i).count = static_cast<uint16_t>(rng() % 3);
      for (int k = 0; k < 2; ++k)
        if (rng() % 2) sq.at(i).sges()[k] = mem->sge(rng() % 60'000, rng() % 9000);
      sq.at(i).valid.store(1 + static_cast<uint32_t>(rng() % 5));
      rq.at(i).valid.store(1 + static_cast<uint32_t>(rng() % 5));
    }
    p->ring_send();
    for (uint32_t i = 0; i < 4; ++i) inject(data(kRcv + i, send_seg(i + 1, 0, true), bytes("hello")));
    w.run_for(20'000);
    // Changed after the checks, while it is being sent.
    for (uint32_t i = 0; i < 8; ++i)
      for (std::byte* b = reinterpret_cast<std::byte*>(&sq.at(i)) + 4, *e = b + 28 + sq.tail_bytes(); b != e; ++b)
        *b = std::byte(rng());
    w.run_for(20 * kMs);
    sent.clear();
    w.a.engine.qp_destroy(p);
    w.a.poll(w.a.send_cq);
    w.a.poll(w.a.recv_cq);
  }
}

}  // namespace
}  // namespace usiw::sim
