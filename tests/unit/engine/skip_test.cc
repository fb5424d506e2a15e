// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file skip_test.cc
/// Messages for which no receive is posted, and the responses behind them (engine/skip.cc). More of it with bad wires:
/// Storm.receives_come_late.
#include "played_peer.h"

namespace usiw::sim {
namespace {

constexpr uint16_t kAsks = USIW_TRP_F_RETRANS | USIW_TRP_F_SKIP;

class Skip : public Protocol {
 protected:
  static bool says(const std::vector<Datagram>& ds, uint16_t flag) {
    EXPECT_FALSE(ds.empty());
    return !ds.empty() && (header(ds.back()).flags & flag) != 0;
  }
  /// The peer's first SEND finds no receive, and counts as arrived.
  void skipped() {
    inject(data(kRcv, send_seg(1, 0, true), bytes("hello")));
    EXPECT_TRUE(says(settle(), USIW_TRP_F_NOT_READY));
    inject(data(kRcv, send_seg(1, 0, true), bytes("hello"), kSnd, kAsks));
    const auto out = settle();
    EXPECT_EQ(kRcv + 1, sacked(out));
    EXPECT_TRUE(says(out, USIW_TRP_F_SKIPPED));
    EXPECT_FALSE(says(out, USIW_TRP_F_NOT_READY));
  }
  static DdpSegment response(uint32_t msn, uint64_t to, bool last) {
    DdpSegment s{};
    s.tagged = true;
    s.last = last;
    s.rdmap_opcode = USIW_RDMAP_READ_RESP;
    s.stag = msn;
    s.to = to;
    return s;
  }
};

// ---- The end without a receive ----

TEST_F(Skip, requests_are_thrown_away_until_the_message_comes_again) {
  skipped();
  inject(data(kRcv + 1, write_seg(0, true), bytes("early"), kSnd, USIW_TRP_F_ACK_REQ));
  EXPECT_EQ(kRcv + 2, sacked(settle()));
  EXPECT_EQ(std::string(5, '\0'), memory(0, 5));
  inject(read_request(kRcv + 2, 1, 8));
  for (const Datagram& d : settle(10 * kMs)) EXPECT_EQ(USIW_TRP_SACK, header(d).opcode);
  for (const DdpSegment& other : {send_seg(1, 5, true), send_seg(2, 0, true), send_seg(2, 5, false)})
    inject(data(kRcv + 3 + (other.mo == 0) + 2 * (other.msn == 2 && other.mo == 5), other, bytes("other")));
  EXPECT_EQ(kRcv + 6, sacked(settle()));

  inject(data(kRcv + 6, send_seg(1, 0, true), bytes("hello")));
  auto out = settle();
  EXPECT_EQ(kRcv + 6, sacked(out));
  EXPECT_TRUE(says(out, USIW_TRP_F_NOT_READY) && says(out, USIW_TRP_F_SKIPPED));
  post_recv(q, {mem->sge(100, 64)});
  out = settle();
  EXPECT_FALSE(says(out, USIW_TRP_F_NOT_READY));
  EXPECT_TRUE(says(out, USIW_TRP_F_SKIPPED));
  inject(data(kRcv + 6, send_seg(1, 0, true), bytes("hello")));
  out = settle();
  EXPECT_EQ(kRcv + 7, sacked(out));
  EXPECT_FALSE(says(out, USIW_TRP_F_SKIPPED));
  EXPECT_EQ(5u, wait(w.a, w.a.recv_cq, 1)[0].byte_len);
  EXPECT_EQ("hello", memory(100, 5));
  inject(data(kRcv + 7, write_seg(0, true), bytes("later")));
  settle();
  EXPECT_EQ("later", memory(0, 5));
}

TEST_F(Skip, again_and_again) {
  skipped();
  for (uint32_t n = 1; n < 5; ++n) {
    inject(data(kRcv + n, send_seg(1, 0, true), bytes("hello"), kSnd, kAsks));
    const auto out = settle();
    EXPECT_EQ(kRcv + n + 1, sacked(out));
    EXPECT_TRUE(says(out, USIW_TRP_F_SKIPPED));
  }
  post_recv(q, {mem->sge(0, 64)});
  inject(data(kRcv + 5, send_seg(1, 0, true), bytes("hello"), kSnd, kAsks));
  EXPECT_FALSE(says(settle(), USIW_TRP_F_SKIPPED));
  EXPECT_EQ(5u, wait(w.a, w.a.recv_cq, 1)[0].byte_len);
}

TEST_F(Skip, a_message_with_a_receive_is_taken) {
  post_recv(q, {mem->sge(0, 64)});
  inject(data(kRcv, send_seg(1, 0, true), bytes("hello"), kSnd, kAsks));
  EXPECT_FALSE(says(settle(), USIW_TRP_F_SKIPPED));
  EXPECT_EQ(5u, wait(w.a, w.a.recv_cq, 1)[0].byte_len);
}

TEST_F(Skip, responses_go_on_ahead_of_their_turn_and_requests_do_not) {
  read(q, mem->sge(200, 10), 0x1000, 0x77);
  settle();
  skipped();
  inject(data(kRcv + 2, write_seg(0, false), bytes("XXXXXXXX"), kSnd + 1));
  EXPECT_EQ(kRcv + 1, header(settle().back()).psn) << "not accepted";
  inject(data(kRcv + 2, write_seg(0, false), {}, kSnd + 1));  // empty
  EXPECT_EQ(kRcv + 3, header(settle().back()).psn);
  inject(data(kRcv + 3, response(1, 0, true), bytes("0123456789"), kSnd + 1));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ("0123456789", memory(200, 10));
  EXPECT_EQ(std::string(8, '\0'), memory(0, 8));
}

/// A request that had come early is thrown away in its turn.
TEST_F(Skip, what_came_early_is_thrown_away_too) {
  inject(data(kRcv + 1, write_seg(0, true), bytes("end")));
  inject(read_request(kRcv + 2, 1, 8));
  settle();
  inject(data(kRcv, send_seg(1, 0, true), bytes("hello"), kSnd, kAsks));
  const auto out = settle(10 * kMs);
  EXPECT_EQ(kRcv + 3, sacked(out));
  for (const Datagram& d : out) EXPECT_EQ(USIW_TRP_SACK, header(d).opcode);
  EXPECT_EQ(std::string(3, '\0'), memory(0, 3));
}

TEST_F(Skip, ends_like_any_connection) {
  skipped();
  inject(trp(USIW_TRP_SHUTDOWN, kRcv + 1, kSnd));
  settle(10 * kMs);
  EXPECT_EQ(1u, w.a.events.peer_closed.size());
}

// ---- The end whose message waits ----

class Skipping : public Skip {
 protected:
  static constexpr uint16_t kCredit = 8;
  /// A SEND waits, and responses to a READ have filled the window behind it, which has room for kCredit in all.
  void fill_window(unsigned sends = 1) {
    for (unsigned n = 0; n < sends; ++n) send(q, mem->sge(100, 50), n);
    settle(50'000);
    inject(trp(USIW_TRP_SACK, kSnd, kSnd, USIW_TRP_F_NOT_READY, kCredit));
    settle(20'000);
    Datagram request = read_request(kRcv, 1, 40'000);
    store_be16(request.data() + offsetof(usiw_trp_hdr, credit), kCredit);
    inject(std::move(request));
  }
  /// That datagram of @p ds, the last time; nullptr: it is not among them.
  static const Datagram* find(const std::vector<Datagram>& ds, uint32_t psn) {
    const Datagram* found = nullptr;
    for (const Datagram& d : ds)
      if (header(d).opcode == USIW_TRP_DATA && header(d).psn == psn) found = &d;
    return found;
  }
};

TEST_F(Skipping, asks_once_the_window_is_full) {
  fill_window();
  const auto out = settle(5 * kMs);
  ASSERT_NE(find(out, kSnd + kCredit - 1), nullptr);
  EXPECT_EQ(find(out, kSnd + kCredit), nullptr);
  const Datagram* asks = find(out, kSnd);
  ASSERT_NE(asks, nullptr);
  EXPECT_EQ(kAsks, header(*asks).flags & kAsks);
}

TEST_F(Skipping, sends_the_message_again_as_a_new_datagram) {
  fill_window();
  settle(5 * kMs);
  inject(trp(USIW_TRP_SACK, kSnd + kCredit, kSnd + kCredit, USIW_TRP_F_SKIPPED, kCredit));
  const auto out = settle(1 * kMs);
  const Datagram* again = find(out, kSnd + kCredit);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(segment(*again).msn, 1u);
  EXPECT_EQ(segment(*again).qn, uint32_t{USIW_DDP_QN_SEND});
  EXPECT_EQ(segment(*again).len, 50u);
  const Datagram* next = find(out, kSnd + kCredit + 1);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(segment(*next).rdmap_opcode, USIW_RDMAP_READ_RESP) << "responses go on";
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  inject(trp(USIW_TRP_SACK, kSnd + kCredit + 1, kSnd + kCredit + 1, 0, kCredit));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(Skipping, a_peer_that_has_taken_it_after_all) {
  fill_window();
  settle(5 * kMs);
  inject(trp(USIW_TRP_SACK, kSnd + 1, kSnd + 1, 0, kCredit));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(Skipping, a_peer_that_was_not_asked) {
  send(q, mem->sge(100, 50));
  settle();
  inject(trp(USIW_TRP_SACK, kSnd + 1, kSnd + 1, USIW_TRP_F_SKIPPED, kCredit));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

/// One that does not know the flag says NOT_READY again, and all goes on as soon as it has a receive.
TEST_F(Skipping, a_peer_that_does_not_know_the_flag) {
  fill_window();
  for (int n = 0; n < 20; ++n) {
    inject(trp(USIW_TRP_SACK, kSnd, kSnd, USIW_TRP_F_NOT_READY, kCredit));
    EXPECT_EQ(find(settle(10 * kMs), kSnd + kCredit), nullptr);
  }
  inject(trp(USIW_TRP_SACK, kSnd, kSnd, 0, kCredit));
  settle(1 * kMs);
  inject(trp(USIW_TRP_SACK, kSnd + kCredit, kSnd + kCredit, 0, kCredit));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

/// Those behind the message fill the PSNs that they had, and are sent again, too.
TEST_F(Skipping, what_was_lost_behind_the_message_is_sent_without_bytes) {
  fill_window(3);
  settle(5 * kMs);
  inject(trp(USIW_TRP_SACK, kSnd + 1, kSnd + 1, USIW_TRP_F_SKIPPED, kCredit));
  const auto out = settle(50 * kMs);
  for (const uint32_t psn : {kSnd + 1, kSnd + 2}) {
    const Datagram* d = find(out, psn);
    ASSERT_NE(d, nullptr);
    EXPECT_TRUE(segment(*d).tagged && !segment(*d).last && segment(*d).len == 0);
  }
  const Datagram* again = find(out, kSnd + kCredit);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(segment(*again).msn, 1u);
  inject(trp(USIW_TRP_SACK, kSnd + kCredit, kSnd + kCredit, USIW_TRP_F_SKIPPED | USIW_TRP_F_NOT_READY, kCredit));
  settle(50'000);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  uint32_t msn = 1, acked = kSnd + kCredit + 1;  // it is taken, and the other two follow
  for (int n = 0; n < 50; ++n) {
    inject(trp(USIW_TRP_SACK, acked, acked, 0, kCredit));
    for (const Datagram& d : settle(5 * kMs)) {
      if (header(d).opcode != USIW_TRP_DATA || header(d).psn < acked) continue;
      acked = header(d).psn + 1;
      if (!segment(d).tagged && segment(d).msn == msn + 1) ++msn;
    }
  }
  EXPECT_EQ(msn, 3u);
  EXPECT_EQ((Statuses{kSuccess, kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 3));
}

}  // namespace
}  // namespace usiw::sim
