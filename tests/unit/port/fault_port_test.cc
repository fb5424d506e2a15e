// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fault_port_test.cc
/// Faults on demand, in front of a socket port.
#include <memory>
#include <numeric>
#include <vector>

#include "port/fault_port.h"
#include "socket_ports.h"

namespace usiw {
namespace {

TEST(FaultsParse, all_keys) {
  Faults f;
  ASSERT_TRUE(Faults::parse("loss=0.01,reorder=0.05,delay-us=50.5,seed=7,kill-after=65536,fail-wr=3", f));
  EXPECT_DOUBLE_EQ(0.01, f.loss);
  EXPECT_DOUBLE_EQ(0.05, f.reorder);
  EXPECT_EQ(50'500u, f.delay_ns);
  EXPECT_EQ(7u, f.seed);
  EXPECT_EQ(65536u, f.kill_after);
  EXPECT_EQ(3u, f.fail_wr);
  EXPECT_TRUE(f.on_wire());
  ASSERT_TRUE(Faults::parse("fail-wr=3,seed=1", f));
  EXPECT_FALSE(f.on_wire());
}

TEST(FaultsParse, nonsense) {
  Faults f;
  for (const char* text : {"loss", "loss=", "loss=2", "loss=-1", "loss=nan", "nonesuch=1", "seed=x", "loss=0.1=2"})
    EXPECT_FALSE(Faults::parse(text, f)) << text;
}

class FaultyPorts : public SocketPorts {
 protected:
  /// Which of @p count datagrams arrive, in order of arrival, by their first byte.
  std::vector<int> arriving(const Faults& faults, size_t count) {
    FaultPort faulty(std::move(a), faults);
    for (size_t i = 0; i < count; i++) {
      TxBuf buf;
      EXPECT_EQ(1u, faulty.tx_alloc({&buf, 1}));
      buf.len = 20;
      buf.path = &path;
      buf.data[0] = static_cast<std::byte>(i);
      faulty.tx({&buf, 1});
    }
    RxBuf none[1];
    for (int i = 0; i < 20; i++) {  // as the engine runs: what was held back goes out
      usleep(500);
      faulty.rx_free({none, faulty.rx(none)});
    }
    std::vector<int> got;
    for (Got& g : receive(*b, count, kShortly)) got.push_back(static_cast<int>(g.bytes[0]));
    return got;
  }
};

TEST_P(FaultyPorts, the_same_seed_loses_the_same_datagrams) {
  std::vector<int> first = arriving({.loss = 0.3, .seed = 5}, 100);
  SetUp();
  std::vector<int> second = arriving({.loss = 0.3, .seed = 5}, 100);
  SetUp();
  std::vector<int> other = arriving({.loss = 0.3, .seed = 6}, 100);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_LT(first.size(), 100u);
  EXPECT_GT(first.size(), 40u);
}

TEST_P(FaultyPorts, reordering_loses_nothing) {
  std::vector<int> got = arriving({.reorder = 0.3, .seed = 1}, 100);
  std::vector<int> sorted(100);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(sorted, got);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(sorted, got);
}

TEST_P(FaultyPorts, delay_keeps_the_order) {
  std::vector<int> got = arriving({.delay_ns = 1'000'000}, 50);
  std::vector<int> sorted(50);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_EQ(sorted, got);
}

TEST_P(FaultyPorts, over_the_limit_a_reset_comes_back) {
  FaultPort faulty(std::move(a), {.kill_after = 100});
  ASSERT_EQ(1u, send(faulty, path, {60}));
  RxBuf buf[1];
  EXPECT_EQ(0u, faulty.rx(buf));
  ASSERT_EQ(1u, send(faulty, path, {60}));
  ASSERT_EQ(1u, faulty.rx(buf));
  EXPECT_EQ(14u, buf[0].len);
  EXPECT_EQ(std::byte{0x70}, buf[0].data[8]);  // RESET, stray
  EXPECT_EQ(std::byte{0x10}, buf[0].data[9]);
  EXPECT_TRUE(path.flow == buf[0].flow);
  faulty.rx_free(buf);
  EXPECT_EQ(1u, receive(*b, 2, kShortly).size());
}

INSTANTIATE_TEST_SUITE_P(, FaultyPorts, ::testing::Bool(), family);

}  // namespace
}  // namespace usiw
