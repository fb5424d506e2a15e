// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/send_window.h: every PSN that is outstanding is in one state, whatever happens to it.
#include "engine/send_window.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <map>
#include <random>
#include <vector>

namespace usiw {
namespace {

class SendWindowTest : public testing::Test {
 protected:
  static constexpr uint32_t kFirst = 0xfffffff0u;  // wraps soon
  SendWindowTest() { w_.start(kFirst, 1024, pkts_.data()); }

  void send(unsigned n) {
    for (unsigned i = 0; i < n; i++) w_.sent({}, ++now_);
  }
  /// The PSNs, from the first one on, that became known to have arrived.
  std::vector<uint32_t> acknowledge(uint32_t n) {
    return collect([&](auto&& news) { w_.acknowledge(kFirst + n, news); });
  }
  std::vector<uint32_t> report(std::initializer_list<uint8_t> bits) {
    std::vector<std::byte> bitmap;
    for (uint8_t b : bits) bitmap.push_back(std::byte{b});
    return collect([&](auto&& news) { w_.report(bitmap, news); });
  }
  template <typename Do>
  std::vector<uint32_t> collect(Do&& act) {
    std::vector<uint32_t> all;
    lost_ = 0;
    act([&](uint32_t psn, bool was_lost) {
      all.push_back(psn - kFirst);
      lost_ += was_lost;
    });
    EXPECT_TRUE(w_.consistent());
    return all;
  }
  using List = std::vector<uint32_t>;

  std::array<TxPkt, kWindow> pkts_{};
  SendWindow w_;
  uint64_t now_ = 0;
  unsigned lost_ = 0;  ///< of the latest news
};

TEST_F(SendWindowTest, sent__until_the_window_or_the_peer_is_full) {
  EXPECT_TRUE(w_.empty());
  w_.accept(3);
  send(2);
  EXPECT_TRUE(w_.has_room());
  EXPECT_TRUE(w_.has_room_for_one());
  send(1);
  EXPECT_FALSE(w_.has_room());
  EXPECT_EQ(w_.in_flight(), 3u);
  EXPECT_TRUE(w_.accept(5000));
  EXPECT_EQ(w_.edge(), kFirst + kWindow);
  send(kWindow - 4);
  EXPECT_TRUE(w_.has_room_for_one());
  send(1);
  EXPECT_FALSE(w_.has_room());
  EXPECT_FALSE(w_.has_credit());
  EXPECT_EQ(w_.pkt(kFirst + 1).sent_ns, 2u);
  EXPECT_EQ(w_.pkt(kFirst + 1).tx_count, 1);
}

TEST_F(SendWindowTest, acknowledge__tells_each_one_once) {
  send(6);
  EXPECT_EQ(report({0b00101100}), (List{2, 3, 5}));
  EXPECT_EQ(report({0b00101110}), List{1});
  EXPECT_EQ(w_.in_flight(), 2u);
  EXPECT_EQ(acknowledge(5), (List{0, 4}));
  EXPECT_EQ(w_.una(), kFirst + 5);
  EXPECT_EQ(w_.in_flight(), 1u);  // 5 was reported, and is expected all the same
  EXPECT_FALSE(w_.has_arrived(kFirst + 5));
}

TEST_F(SendWindowTest, lose__only_what_is_in_flight) {
  send(4);
  report({0b0100});
  EXPECT_TRUE(w_.lose(kFirst + 1));
  EXPECT_FALSE(w_.lose(kFirst + 1));
  EXPECT_FALSE(w_.lose(kFirst + 2));
  EXPECT_FALSE(w_.lose(kFirst + 4));
  EXPECT_FALSE(w_.lose(kFirst - 1));
  EXPECT_TRUE(w_.lose(kFirst));
  EXPECT_EQ(w_.lost(), 2u);
  EXPECT_EQ(w_.oldest_lost(), kFirst);
  w_.resent(kFirst);
  EXPECT_EQ(w_.oldest_lost(), kFirst + 1);
  EXPECT_EQ(w_.in_flight_from(kFirst), 0b1001u);
  EXPECT_EQ(acknowledge(4), (List{0, 1, 3}));
  EXPECT_EQ(lost_, 1u);
  EXPECT_TRUE(w_.empty());
}

TEST_F(SendWindowTest, oldest_lost__but_of_one_kind) {
  for (uint32_t i = 0; i < 200; i++) {
    TxPkt pkt{};
    pkt.kind = i == 150 ? PktKind::kReadResponse : PktKind::kSend;
    w_.sent(pkt, ++now_);
  }
  EXPECT_EQ(w_.oldest_lost_but(PktKind::kReadResponse), w_.nxt());
  for (const uint32_t i : {3, 70, 199}) w_.lose(kFirst + i);
  EXPECT_EQ(w_.oldest_lost_but(PktKind::kReadResponse), kFirst + 3);
  EXPECT_EQ(w_.oldest_lost_but(PktKind::kSend), w_.nxt());
  w_.lose(kFirst + 150);
  EXPECT_EQ(w_.oldest_lost_but(PktKind::kSend), kFirst + 150);
}

TEST_F(SendWindowTest, any_order_of_events) {
  enum State { kFlying, kLost, kArrived };
  std::mt19937 rng(7);
  std::map<uint32_t, State> model;  // by distance from kFirst
  const auto below = [&](uint32_t n) { return n == 0 ? 0 : static_cast<uint32_t>(rng() % n); };
  for (int i = 0; i < 20000; i++) {
    const uint32_t una = w_.una() - kFirst, nxt = w_.nxt() - kFirst, some = una + below(nxt - una);
    const auto news = [&](uint32_t psn, bool was_lost) {
      State& s = model[psn - kFirst];
      EXPECT_NE(s, kArrived);
      EXPECT_EQ(was_lost, s == kLost);
      s = kArrived;
    };
    switch (below(6)) {
      case 0:
        for (uint32_t n = below(40); n != 0 && w_.has_room(); n--) {
          model[w_.nxt() - kFirst] = kFlying;
          w_.sent({}, ++now_);
        }
        break;
      case 1:
        if (nxt != una && w_.lose(kFirst + some)) {
          EXPECT_EQ(model[some], kFlying);
          model[some] = kLost;
        }
        break;
      case 2:
        if (w_.lost() != 0) {
          const uint32_t psn = w_.oldest_lost();
          EXPECT_EQ(model[psn - kFirst], kLost);
          w_.resent(psn);
          model[psn - kFirst] = kFlying;
        }
        break;
      case 3: {
        w_.acknowledge(kFirst + some, news);
        if (some != nxt && model[some] == kArrived) model[some] = kFlying;  // see acknowledge()
        w_.accept(1024);
        break;
      }
      case 4: {
        std::vector<std::byte> bitmap((nxt - una + 7) / 8);
        for (uint32_t psn = 1; psn < nxt - una; psn++)
          if (below(3) == 0) bitmap[psn / 8] |= std::byte{1} << psn % 8;
        w_.report(bitmap, news);
        break;
      }
      default:
        if (below(50) == 0) {
          w_.acknowledge(w_.nxt(), news);
          w_.accept(1024);
        }
    }
    ASSERT_TRUE(w_.consistent());
    unsigned flying = 0, lost = 0;
    for (uint32_t psn = w_.una() - kFirst; psn != w_.nxt() - kFirst; psn++) {
      flying += model[psn] == kFlying;
      lost += model[psn] == kLost;
      ASSERT_EQ(w_.has_arrived(kFirst + psn), model[psn] == kArrived);
    }
    ASSERT_EQ(flying, w_.in_flight());
    ASSERT_EQ(lost, w_.lost());
  }
}

}  // namespace
}  // namespace usiw
