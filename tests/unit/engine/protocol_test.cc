// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file protocol_test.cc
/// One engine, and a peer played by the test: receive X, expect Y, for datagrams of the
/// past, the present and the future, and for those that no honest peer sends.
#include <algorithm>

#include "played_peer.h"

namespace usiw::sim {
namespace {

TEST_F(Protocol, present_past_and_duplicate) {
  inject(data(kRcv, write_seg(0, true), bytes("one")));
  EXPECT_EQ(kRcv + 1, sacked(settle()));
  EXPECT_EQ("one", memory(0, 3));
  inject(data(kRcv, write_seg(0, true), bytes("two")));  // the past: acknowledged, not placed
  EXPECT_EQ(kRcv + 1, sacked(settle()));
  EXPECT_EQ("one", memory(0, 3));
  EXPECT_EQ(1u, w.a.count(USIW_CNT_RX_DUP));
}

TEST_F(Protocol, time_stamp_tells_that_a_repetition_was_needless_if_nothing_else_has) {
  const auto come = [&](uint32_t psn, uint16_t stamp, uint16_t flags) {
    Datagram d = data(psn, write_seg(0, true), bytes("x"), kSnd, flags);
    TrpHeader h = header(d);
    h.echo = stamp;
    encode_trp(d.data(), h);
    inject(d);
  };
  const auto stamped = [&](uint32_t psn, uint16_t stamp, uint16_t flags) {
    come(psn, stamp, flags);
    return header(settle().back());
  };
  EXPECT_EQ(111, stamped(kRcv, 111, 0).echo);
  EXPECT_EQ(222, stamped(kRcv, 222, USIW_TRP_F_RETRANS).echo) << "what acknowledged it may be lost, like all behind it";
  EXPECT_EQ(333, stamped(kRcv + 2, 333, 0).echo);
  EXPECT_EQ(444, stamped(kRcv + 2, 444, USIW_TRP_F_RETRANS).echo);
  EXPECT_EQ(555, stamped(kRcv + 1, 555, USIW_TRP_F_RETRANS).echo) << "the repetition was the first to come";
  come(kRcv + 3, 666, 0);
  come(kRcv + 3, 777, USIW_TRP_F_RETRANS);
  EXPECT_EQ(666, header(settle().back()).echo) << "not acknowledged yet";
}

TEST_F(Protocol, acknowledgement_waits_for_a_reply_but_not_long) {
  inject(data(kRcv, write_seg(0, true), bytes("x")));
  w.run_for(2'000);
  EXPECT_TRUE(sent.empty());
  write(q, mem->sge(0, 8), 1, 2);
  const auto out = settle(2'000);
  ASSERT_EQ(1u, out.size()) << "the reply carries it";
  EXPECT_EQ(USIW_TRP_DATA, header(out[0]).opcode);
  EXPECT_EQ(kRcv + 1, header(out[0]).ack_psn);
}

TEST_F(Protocol, acknowledgement_rides_on_the_end_of_the_reply) {
  inject(data(kRcv, write_seg(0, true), bytes("x")));
  w.run_for(2'000);
  write(q, mem->sge(0, 4000), 1, 2);
  const auto out = settle(2'000);
  ASSERT_EQ(3u, out.size());
  EXPECT_EQ(kRcv, header(out[0]).ack_psn);
  EXPECT_EQ(kRcv, header(out[1]).ack_psn);
  EXPECT_EQ(kRcv + 1, header(out[2]).ack_psn);
}

TEST_F(Protocol, acknowledgement_that_is_due_does_not_wait_for_the_end_of_what_is_sent) {
  for (int i = 0; i < 2; ++i) write(q, mem->sge(0, 60'000), 1, 2);
  const auto window = static_cast<uint32_t>(settle(2'000).size());
  inject(data(kRcv, write_seg(0, true), bytes("x"), kSnd + window, USIW_TRP_F_ACK_REQ));
  const auto out = settle(2'000);
  ASSERT_FALSE(out.empty());
  for (const Datagram& d : out) {
    EXPECT_EQ(USIW_TRP_DATA, header(d).opcode);
    EXPECT_EQ(kRcv + 1, header(d).ack_psn);
  }
}

TEST_F(Protocol, what_was_posted_does_not_wait_for_what_has_come) {
  inject(data(kRcv, write_seg(0, true), bytes("x")));
  write(q, mem->sge(0, 8), 1, 2);
  const auto out = settle(2'000);
  ASSERT_EQ(1u, out.size());
  EXPECT_EQ(kRcv, header(out[0]).ack_psn);
  EXPECT_EQ(kRcv + 1, sacked(settle()));
}

TEST_F(Protocol, ack_req_is_answered_at_once) {
  inject(data(kRcv, write_seg(0, false), bytes("x"), kSnd, USIW_TRP_F_ACK_REQ));
  w.step();
  EXPECT_EQ(1u, sent.size());
  sent.clear();
  inject(trp(USIW_TRP_SACK, kSnd, kSnd, USIW_TRP_F_ACK_REQ));
  EXPECT_EQ(kRcv + 1, sacked(settle()));
}

TEST_F(Protocol, future_is_placed_but_not_the_end_of_a_tagged_message) {
  inject(data(kRcv + 1, write_seg(4, false), bytes("BBBB")));
  inject(data(kRcv + 2, write_seg(8, true), bytes("CCCC")));
  const auto out = settle();
  EXPECT_EQ("BBBB", memory(4, 4));
  EXPECT_EQ(std::string(4, '\0'), memory(8, 4)) << "the last segment came early";
  const TrpHeader h = header(out.back());
  EXPECT_EQ(kRcv, h.ack_psn);
  EXPECT_EQ(kRcv + 3, h.psn);
  ASSERT_EQ(kTrpBytes + 1, out.back().size());
  EXPECT_EQ(std::byte{0b110}, out.back()[kTrpBytes]);
  inject(data(kRcv + 2, write_seg(8, true), bytes("XXXX")));  // duplicate of a held one
  settle();
  inject(data(kRcv, write_seg(0, false), bytes("AAAA")));
  EXPECT_EQ(kRcv + 3, sacked(settle()));
  EXPECT_EQ("AAAABBBBCCCC", memory(0, 12));
}

TEST_F(Protocol, send_ahead_completes_in_turn) {
  for (int i = 0; i < 3; ++i) post_recv(q, {mem->sge(100 * i, 100)}, i);
  inject(data(kRcv + 1, send_seg(2, 0, true), bytes("second")));
  inject(data(kRcv + 2, send_seg(3, 0, true), bytes("third")));
  settle();
  EXPECT_TRUE(w.a.poll(w.a.recv_cq).empty());
  EXPECT_EQ("second", memory(100, 6));
  inject(data(kRcv, send_seg(1, 0, true), bytes("first")));
  const auto got = wait(w.a, w.a.recv_cq, 3);
  EXPECT_EQ(5u, got[0].byte_len);
  EXPECT_EQ(6u, got[1].byte_len);
  EXPECT_EQ(2u, got[2].wr_id);
}

TEST_F(Protocol, future_send_without_receive_is_not_accepted) {
  inject(data(kRcv + 1, send_seg(2, 0, true), bytes("second")));
  const auto out = settle();
  EXPECT_EQ(kRcv, header(out.back()).psn) << "nothing arrived";
}

/// The peer has taken the READ and gone, and its kernel says of the SEND behind it that nothing is ready.
TEST_F(Protocol, a_read_ahead_of_what_is_not_received_is_not_at_fault) {
  read(q, mem->sge(0, 8), 0x1000, 0x77);
  send(q, mem->sge(8, 8), 2);
  settle();
  w.a.engine.qp_shutdown(q);
  for (int i = 0; i < 300 && w.a.events.failed.empty(); ++i) {
    inject(trp(USIW_TRP_SACK, kSnd + 1, kSnd + 1, USIW_TRP_F_NOT_READY));
    settle(10 * kMs);
  }
  ASSERT_EQ(1u, w.a.events.failed.size());
  EXPECT_EQ(-ETIMEDOUT, w.a.events.failed[0].error);
  EXPECT_EQ((std::vector{kWrFlushErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 2));
}

TEST_F(Protocol, not_ready_and_go_on) {
  inject(data(kRcv, send_seg(1, 0, true), bytes("hello")));
  auto out = settle();
  EXPECT_EQ(kRcv, sacked(out));
  EXPECT_TRUE(header(out.back()).flags & USIW_TRP_F_NOT_READY);
  post_recv(q, {mem->sge(0, 64)});
  out = settle();
  EXPECT_EQ(kRcv, sacked(out));
  EXPECT_FALSE(header(out.back()).flags & USIW_TRP_F_NOT_READY);
  inject(data(kRcv, send_seg(1, 0, true), bytes("hello")));
  EXPECT_EQ(kRcv + 1, sacked(settle()));
  EXPECT_EQ(5u, wait(w.a, w.a.recv_cq, 1)[0].byte_len);
}

TEST_F(Protocol, outside_the_window) {
  for (uint32_t psn : {kRcv + kWindow, kRcv + 0x80000000, kRcv - kWindow - 1})
    inject(data(psn, write_seg(0, true), bytes("evil")));
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(3u, w.a.count(USIW_CNT_DROP_WINDOW));
  inject(data(kRcv, write_seg(0, true), bytes("evil"), kSnd + 1));  // acknowledges the unsent
  inject(data(kRcv, write_seg(0, true), bytes("evil"), kSnd - kWindow - 1));
  inject(trp(USIW_TRP_SACK, kSnd + 5, kSnd + 5));
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(6u, w.a.count(USIW_CNT_DROP_WINDOW));
  EXPECT_EQ('\0', memory(0, 1)[0]);
  EXPECT_EQ(QpState::kRts, q->state());
}

TEST_F(Protocol, credit_bounds_what_is_sent) {
  inject(trp(USIW_TRP_SACK, kSnd, kSnd, 0, 3));
  settle();
  write(q, mem->sge(0, 20'000), 1, 2);
  auto out = settle(20'000);
  ASSERT_EQ(3u, out.size());
  EXPECT_TRUE(header(out[2]).flags & USIW_TRP_F_ACK_REQ) << "asks for more";
  inject(trp(USIW_TRP_SACK, kSnd + 3, kSnd + 3, 0, 2));
  out = settle(20'000);
  EXPECT_EQ(2u, out.size());
  inject(trp(USIW_TRP_SACK, kSnd + 5, kSnd + 5, 0, 0));
  out = settle(3 * kSec);
  ASSERT_FALSE(out.empty());
  for (const Datagram& d : out) EXPECT_EQ(USIW_TRP_SACK, header(d).opcode) << "zero-window probe";
}

TEST_F(Protocol, sack_resends_only_the_gap) {
  write(q, mem->sge(0, 1440 * 10), 8, 2);
  auto out = settle(5'000);
  ASSERT_EQ(10u, out.size());
  Datagram s = trp(USIW_TRP_SACK, kSnd + 10, kSnd + 2);  // 0,1 and 3..9 have arrived; 2 not
  s.push_back(std::byte{0b11111110});
  inject(s);
  out = settle(5'000);
  ASSERT_EQ(1u, out.size());
  EXPECT_EQ(kSnd + 2, header(out[0]).psn);
  EXPECT_TRUE(header(out[0]).flags & USIW_TRP_F_RETRANS);
  inject(trp(USIW_TRP_SACK, kSnd + 10, kSnd + 10));
  EXPECT_EQ(kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
}

TEST_F(Protocol, malformed_sacks) {
  write(q, mem->sge(0, 1440 * 10), 8, 2);
  settle(5'000);
  const auto sack = [&](uint32_t end, std::vector<uint8_t> bits) {
    Datagram d = trp(USIW_TRP_SACK, end, kSnd);
    for (uint8_t b : bits) d.push_back(std::byte{b});
    inject(d);
  };
  sack(kSnd + 4, {});                      // too short
  sack(kSnd + 4, {0b1000, 0});             // too long
  sack(kSnd + 4, {0b1001});                // the expected one has arrived?
  sack(kSnd + 4, {0b0100});                // the last one has not
  sack(kSnd + 4, {0b11000});               // beyond the last
  sack(kSnd - 1, {});                      // negative
  settle(5'000);
  EXPECT_EQ(6u, w.a.count(USIW_CNT_DROP_MALFORMED));
  sack(kSnd + 11, {0, 0b100});             // never sent
  settle(5'000);
  EXPECT_EQ(1u, w.a.count(USIW_CNT_DROP_WINDOW));
}

TEST_F(Protocol, garbage_is_counted) {
  for (size_t n = 0; n < kTrpBytes; ++n) inject(Datagram(n));
  inject(trp(USIW_TRP_DATA, kRcv, kSnd));              // no DDP header
  inject(trp(15, kRcv, kSnd));                         // no such opcode
  Datagram shutdown = trp(USIW_TRP_SHUTDOWN, kRcv, kSnd);
  shutdown.resize(kTrpBytes + 1);
  inject(shutdown);                                    // with a payload
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(kTrpBytes + 3, w.a.count(USIW_CNT_DROP_MALFORMED));
  for (uint8_t op : {USIW_TRP_REQ, USIW_TRP_ACCEPT, USIW_TRP_REJECT, USIW_TRP_CONFIRM, USIW_TRP_RESET})
    inject(trp(op, kRcv, kSnd));                       // the kernel's
  EXPECT_TRUE(settle().empty());
  FlowKey other = flow;
  other.remote_port ^= 1;
  w.wire.inject(0, data(kRcv, write_seg(0, true), bytes("x")), other);
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ(1u, w.a.count(USIW_CNT_DROP_NO_CONN));
  EXPECT_EQ(QpState::kRts, q->state());
}

TEST_F(Protocol, reset_must_verify) {
  write(q, mem->sge(0, 8), 1, 2);
  settle(5'000);
  inject(trp(USIW_TRP_RESET, kRcv + 1, kSnd, USIW_TRP_F_STRAY));  // acknowledged more than it got
  inject(trp(USIW_TRP_RESET, kRcv - kWindow - 1, kSnd, USIW_TRP_F_STRAY));
  inject(trp(USIW_TRP_RESET, kRcv, kSnd + 1, USIW_TRP_F_STRAY));  // not sent
  settle(5'000);
  EXPECT_EQ(3u, w.a.count(USIW_CNT_DROP_RESET));
  EXPECT_EQ(QpState::kRts, q->state());
  inject(trp(USIW_TRP_RESET, kRcv, kSnd, USIW_TRP_F_STRAY));
  settle(5'000);
  expect_failed(w.a, -ECONNRESET, AsyncEvent::kNone);
  EXPECT_EQ(kWrFlushErr, wait(w.a, w.a.send_cq, 1)[0].status);
}

TEST_F(Protocol, shutdown_is_acknowledged_again_and_again) {
  post_recv(q, {mem->sge(0, 8)});
  inject(trp(USIW_TRP_SHUTDOWN, kRcv, kSnd));
  EXPECT_EQ(kRcv + 1, sacked(settle()));
  EXPECT_EQ(1u, w.a.events.peer_closed.size());
  EXPECT_EQ(kWrFlushErr, wait(w.a, w.a.recv_cq, 1)[0].status);
  for (int i = 0; i < 3; ++i) {
    inject(trp(USIW_TRP_SHUTDOWN, kRcv, kSnd));
    EXPECT_EQ(kRcv + 1, sacked(settle()));
  }
  EXPECT_EQ(1u, w.a.events.peer_closed.size());
  inject(data(kRcv + 1, write_seg(0, true), bytes("late")));
  EXPECT_TRUE(settle().empty());
  EXPECT_EQ('\0', memory(0, 1)[0]);
}

TEST_F(Protocol, early_shutdown_waits_for_its_turn) {
  inject(trp(USIW_TRP_SHUTDOWN, kRcv + 1, kSnd));
  settle();
  EXPECT_TRUE(w.a.events.peer_closed.empty());
  inject(data(kRcv, write_seg(0, true), bytes("x")));
  EXPECT_EQ(kRcv + 2, sacked(settle()));
  EXPECT_EQ(1u, w.a.events.peer_closed.size());
}

// ---- Refused segments ----

TEST_F(Protocol, refused_segments_and_their_terminate) {
  const auto read_stag = [&](uint32_t stag, uint32_t len, uint64_t to) {
    DdpSegment s = write_seg(0, true);
    s.rdmap_opcode = USIW_RDMAP_READ_RESP;
    s.stag = stag;
    s.to = to;
    s.len = len;
    return s;
  };
  std::vector<std::tuple<const char*, DdpSegment, TermCode>> cases;
  DdpSegment s = write_seg(0, true);
  s.stag ^= 1;
  cases.emplace_back("write with a wrong key", s, term::kDdpInvalidStag);
  s = write_seg(64 * 1024, true);
  cases.emplace_back("write behind the end", s, term::kDdpBounds);
  s = write_seg(0, true);
  s.to = UINT64_MAX;
  cases.emplace_back("write around the top", s, term::kDdpToWrap);
  s = write_seg(0, true);
  s.rdmap_opcode = USIW_RDMAP_SEND;
  cases.emplace_back("tagged SEND", s, term::kRdmapOpcode);
  s = send_seg(1, 0, true);
  s.rdmap_opcode = USIW_RDMAP_WRITE;
  cases.emplace_back("untagged WRITE", s, term::kRdmapOpcode);
  s = send_seg(1, 0, true);
  s.rdmap_opcode = USIW_RDMAP_SEND_INV;
  cases.emplace_back("SEND with Invalidate of nothing", s, term::kRdmapCannotInvalidate);
  s = send_seg(2, 0, true);
  cases.emplace_back("SEND with a later MSN", s, term::kDdpMsnRange);
  s = send_seg(1, 4, true);
  cases.emplace_back("SEND with a hole", s, term::kDdpInvalidMo);
  s = send_seg(1, 0xfffffff0, true);
  cases.emplace_back("SEND far behind the buffer", s, term::kDdpTooLong);
  s = send_seg(1, 0, true);
  s.qn = 4;
  cases.emplace_back("queue 4", s, term::kDdpInvalidQn);
  s.qn = USIW_DDP_QN_ATOMIC_RESP;
  cases.emplace_back("SEND on the queue of atomic responses", s, term::kRdmapOpcode);
  s = send_seg(1, 0, true);
  s.qn = USIW_DDP_QN_READ_REQ;
  cases.emplace_back("SEND on the READ queue", s, term::kRdmapOpcode);
  s.rdmap_opcode = USIW_RDMAP_READ_REQ;
  cases.emplace_back("short READ request", s, term::kRdmapStream);
  cases.emplace_back("READ response to no READ", read_stag(1, 1, 0), term::kDdpInvalidStag);
  for (const auto& [name, seg, code] : cases) {
    SCOPED_TRACE(name);
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    Qp* p = w.a.qp(attr);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    post_recv(p, {mem->sge(0, 64)});
    w.a.events.failed.clear();
    // Ahead of its turn it is not accepted, and nothing else happens. (A hole shows only in turn.)
    const bool hole = code == term::kDdpInvalidMo;
    if (!hole) inject(data(kRcv + 1, seg, bytes("evil")));
    settle(50'000);
    ASSERT_EQ(QpState::kRts, p->state());
    inject(data(kRcv, seg, bytes("evil")));
    const auto out = settle(50'000);
    EXPECT_EQ(code, terminate_in(out).code);
    EXPECT_EQ(kRcv, header(out[0]).ack_psn) << "the refused datagram is not acknowledged";
    inject(trp(USIW_TRP_SACK, kSnd + 1, kSnd + 1));
    settle(50'000);
    ASSERT_EQ(1u, w.a.events.failed.size());
    EXPECT_EQ(-EPROTO, w.a.events.failed[0].error);
    EXPECT_EQ(QpState::kError, p->state());
    // What names an STag that cannot be invalidated has been placed by then.
    if (code != term::kRdmapCannotInvalidate) {
      EXPECT_EQ(std::string(64, '\0'), memory(hole ? 64 : 0, 64));
    }
    std::fill(mem->bytes.begin(), mem->bytes.end(), std::byte{0});
    w.a.poll(w.a.recv_cq);
    w.a.engine.qp_destroy(p);
  }
}

TEST_F(Protocol, versions) {
  const struct {
    bool tagged;
    size_t at;
    std::byte flip;
    TermCode code;
  } cases[] = {{true, 0, std::byte{2}, term::kDdpTaggedVersion},
               {false, 0, std::byte{2}, term::kDdpUntaggedVersion},
               {true, 1, std::byte{0x80}, term::kRdmapVersion},
               {false, 1, std::byte{0x80}, term::kRdmapVersion}};
  for (const auto& c : cases) {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    Qp* p = w.a.qp(attr);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    Datagram d = data(kRcv, c.tagged ? write_seg(0, true) : send_seg(1, 0, true), bytes("x"));
    d[kTrpBytes + c.at] ^= c.flip;
    inject(d);
    EXPECT_EQ(c.code, terminate_in(settle(50'000)).code);
    w.a.engine.qp_destroy(p);
  }
}

TEST_F(Protocol, terminate_is_given_up_on) {
  inject(data(kRcv, send_seg(9, 0, true), bytes("x")));
  settle(2 * kSec);
  expect_failed(w.a, -EPROTO, AsyncEvent::kQpFatal);
}

TEST_F(Protocol, hostile_read_responses) {
  const auto response = [&](uint32_t psn, uint32_t stag, uint64_t to, size_t n, bool last) {
    DdpSegment s = write_seg(0, last);
    s.rdmap_opcode = USIW_RDMAP_READ_RESP;
    s.stag = stag;
    s.to = to;
    return data(psn, s, std::vector<std::byte>(n, std::byte{0xbb}), kSnd + 1);
  };
  struct {
    uint64_t to;
    size_t n;
  } bad[] = {{0, 101}, {100, 1}, {UINT64_MAX, 2}, {50, 51}, {0x100000000, 1}};
  for (const auto& b : bad) {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    Qp* p = w.a.qp(attr);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    read(p, mem->sge(1000, 100), 1, 2);
    const auto out = settle(5'000);
    const uint32_t stag = decode_read_request(segment(out[0]).payload).sink_stag;
    inject(response(kRcv, stag, 0, 60, false));
    inject(response(kRcv + 1, stag, 0, 60, false));  // twice the same: more bytes than asked for
    inject(response(kRcv + 1, stag, b.to, b.n, false));
    inject(response(kRcv + 2, stag, b.to, b.n, true));
    settle(5'000);
    EXPECT_EQ(std::byte{0}, mem->bytes[999]);
    EXPECT_EQ(std::byte{0}, mem->bytes[1100]);
    EXPECT_TRUE(w.a.poll(w.a.send_cq).empty()) << "no success";
    w.a.engine.qp_destroy(p);
  }
}

TEST_F(Protocol, incomplete_read_response_is_no_success) {
  read(q, mem->sge(1000, 100), 1, 2);
  settle(5'000);
  DdpSegment s = write_seg(0, true);
  s.rdmap_opcode = USIW_RDMAP_READ_RESP;
  s.stag = 1;
  s.to = 0;
  inject(data(kRcv, s, std::vector<std::byte>(99), kSnd + 1));
  EXPECT_EQ(term::kRdmapStream, terminate_in(settle(50'000)).code);
}

TEST_F(Protocol, read_requests_are_bounded_by_ird) {
  for (uint32_t i = 0; i < 5; ++i) inject(read_request(kRcv + i, i + 1, 1));
  const auto out = settle(50'000);
  EXPECT_EQ(term::kDdpNoBuffer, terminate_in(out).code);
}

// Two responses are lost. The source of the second one is deregistered first, so the second one becomes a Terminate
// first, which names the second READ. Then the source of the first response is deregistered, too: it becomes a
// Terminate that names the first READ, and this is the one that the peer takes, since it takes PSNs in order. The
// engine asks the peer three times before the first Terminate.
TEST_F(Protocol, of_two_reads_that_cannot_be_served_again_the_first_in_order_is_named) {
  constexpr uint32_t kFirst = 100, kSecond = 200;
  Region* const other = w.a.region(4096);
  inject(read_request(kRcv, 1, kFirst));
  inject(read_request(kRcv + 1, 2, kSecond, *other));
  settle(5'000);
  ASSERT_EQ(0, w.a.engine.mr_remove(other->stag));
  const auto named = [&](uint32_t psn, const std::vector<Datagram>& datagrams) {
    for (const Datagram& d : datagrams)
      if (header(d).opcode == USIW_TRP_DATA && header(d).psn == psn &&
          segment(d).rdmap_opcode == USIW_RDMAP_TERMINATE) {
        const TermInfo t = terminate_in({d});
        EXPECT_TRUE(t.has_read);
        return decode_read_request(t.read).size;
      }
    return 0u;
  };
  // Each SEND that arrives overtakes both, and what has been sent of them again.
  unsigned questions = 0, arrived = 0;
  uint32_t name = 0;
  for (; name == 0 && arrived < 8; ++arrived) {
    post(q, WrOpcode::kSend, {mem->sge(0, 8)}, arrived);
    settle(100'000);
    Datagram s = trp(USIW_TRP_SACK, kSnd + 3 + arrived, kSnd);
    s.push_back(static_cast<std::byte>(((2u << arrived) - 1) << 2));
    inject(s);
    const auto after = settle(100'000);
    for (const Datagram& d : after)
      questions += header(d).opcode == USIW_TRP_SACK && (header(d).flags & USIW_TRP_F_ACK_REQ) != 0;
    name = named(kSnd + 1, after);
    EXPECT_EQ(0u, named(kSnd, after));
  }
  EXPECT_EQ(kSecond, name);
  EXPECT_EQ(3u, questions);
  ASSERT_EQ(0, w.a.engine.mr_remove(mem->stag));
  EXPECT_EQ(kFirst, named(kSnd, settle(3000 * kMs)));
}

// The peer could not place the trailing word of a WRITE by one store if it lay in two segments.
TEST_F(Protocol, trailing_word_of_a_write_is_in_its_last_segment) {
  for (const uint64_t address : {0x1000u, 0x1001u, 0x1004u, 0x1007u}) {
    // Each way of cutting: the first segment by the general way, those after it by the one for the middle.
    for (uint32_t length = 1440 * 6 - 9; length <= 1440 * 6 + 9; ++length) {
      write(q, mem->sge(0, length), address, 2);
      const auto out = settle(2'000);
      ASSERT_GE(out.size(), 6u);
      uint64_t to = address;
      for (const Datagram& d : out) {
        const DdpSegment s = segment(d);
        EXPECT_EQ(to, s.to);
        EXPECT_TRUE(to == address || to % 8 == 0) << to;
        to += s.len;
        EXPECT_EQ(to == address + length, s.last);
      }
      EXPECT_EQ(address + length, to);
      inject(trp(USIW_TRP_SACK, header(out.back()).psn + 1, header(out.back()).psn + 1, 0));
      EXPECT_EQ(kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
      sent.clear();
    }
  }
}

TEST_F(Protocol, read_response_bytes) {
  fill(mem->bytes, 3);
  inject(read_request(kRcv, 1, 3000));
  const auto out = settle(20'000);
  ASSERT_GE(out.size(), 3u);
  uint64_t to = 0x1000;
  for (int i = 0; i < 3; ++i) {
    const DdpSegment s = segment(out[i]);
    EXPECT_TRUE(s.tagged);
    EXPECT_EQ(USIW_RDMAP_READ_RESP, s.rdmap_opcode);
    EXPECT_EQ(0x77u, s.stag);
    EXPECT_EQ(to, s.to);
    EXPECT_EQ(i == 2, s.last);
    EXPECT_EQ(0, std::memcmp(s.payload, &mem->bytes[to - 0x1000], s.len));
    to += s.len;
  }
  EXPECT_EQ(0x1000u + 3000, to);
}

TEST_F(Protocol, last_byte_of_a_write_is_the_last_to_change) {
  // 40 messages of 3 segments, all datagrams in every kind of random order: when the last
  // byte of a message is there, all before it in PSN order is there.
  std::mt19937 rng(8);
  for (int round = 0; round < 200; ++round) {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    Qp* p = w.a.qp(attr);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    std::fill(mem->bytes.begin(), mem->bytes.end(), std::byte{0});
    std::vector<uint32_t> order(120);
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), rng);
    for (uint32_t i : order) {
      inject(data(kRcv + i, write_seg(i * 8, i % 3 == 2), std::vector<std::byte>(8, std::byte{0xcc})));
      w.a.engine.progress();
      size_t present = 0;
      while (present < order.size() && mem->bytes[present * 8] != std::byte{0}) ++present;
      for (size_t k = 2; k < order.size(); k += 3) {
        if (mem->bytes[k * 8 + 7] != std::byte{0}) {
          ASSERT_GE(present, k + 1) << "message " << k / 3 << " is complete too early";
        }
      }
    }
    w.run_for(5'000);
    for (size_t k = 0; k < order.size() * 8; ++k) ASSERT_EQ(std::byte{0xcc}, mem->bytes[k]);
    w.a.engine.qp_destroy(p);
  }
}

}  // namespace
}  // namespace usiw::sim
