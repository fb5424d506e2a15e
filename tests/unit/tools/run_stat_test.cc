// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The memory of programs under usiw-run, as `usiw stat` reads it: whatever a process has made of it.
#include "tools/run_stat.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tools/run/conn/stat_page.h"
#include "tools/stat.h"

namespace usiw::tools {
namespace {

using run::MappedPage;
using run::StatKind;
using run::StatPage;

uint64_t value(const Values& values, const char* name) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == name; });
  return found == values.end() ? ~uint64_t{0} : found->second;
}

class RunStat : public ::testing::Test {
 protected:
  RunStat() { resize(1); }
  ~RunStat() override { close(fd_); }

  void resize(uint64_t pages) { ASSERT_EQ(0, ftruncate(fd_, static_cast<off_t>(pages * USIW_COUNTERS_SIZE))); }
  void count(uint32_t page, uint32_t counter, uint64_t n) {
    ASSERT_EQ(8, pwrite(fd_, &n, 8, static_cast<off_t>(page * USIW_COUNTERS_SIZE + counter * 8)));
  }
  void mark(const run::StatMark& mark) {
    ASSERT_EQ(static_cast<ssize_t>(sizeof mark), pwrite(fd_, &mark, sizeof mark, offsetof(StatPage, mark)));
  }
  bool read() {
    device_ = {};
    return read_run_context(fd_, static_cast<uint32_t>(getpid()), device_);
  }

  int fd_ = memfd_create(run::kCountersMemfd, MFD_CLOEXEC);
  DeviceSample device_;
};

TEST_F(RunStat, AContextAndItsQpsAreSummed) {
  resize(3);
  MappedPage context(fd_, 0), qp(fd_, 2);
  context.show_context("usiw7");
  qp.show_qp(42);
  qp.set_state(3);
  count(0, USIW_CNT_RX_PKTS, 1);
  count(2, USIW_CNT_RX_PKTS, 10);
  ASSERT_TRUE(read());
  EXPECT_EQ("usiw7", device_.name);
  EXPECT_EQ(11u, value(device_.counters, "rx_pkts"));
  ASSERT_EQ(1u, device_.qps.size());
  EXPECT_EQ(42u, device_.qps[0].info.qpn);
  EXPECT_EQ(3, device_.qps[0].info.state);
  EXPECT_EQ(10u, value(device_.qps[0].info.values, "rx_pkts"));
  EXPECT_EQ(0u, value(device_.qps[0].info.values, "srtt_ns"));
}

/// KiB of shared memory that this process has in its page tables.
long shared_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssShmem:")) return std::stol(line.substr(9));
  return -1;
}

TEST_F(RunStat, AShownQpTakesNoPageBesideTheProvidersOwn) {
  constexpr uint32_t kQps = 64;
  resize(1 + kQps);
  const long before = shared_kib();
  ASSERT_GE(before, 0);
  std::vector<MappedPage> qps;
  for (uint32_t i = 1; i <= kQps; i++) {
    qps.emplace_back(fd_, i).show_qp(i);
    qps.back().set_state(3);
  }
  EXPECT_LT(shared_kib() - before, kQps * 4 / 2);
}

TEST_F(RunStat, WhatADestroyedQpCountedStays) {
  resize(2);
  MappedPage context(fd_, 0), qp(fd_, 1);
  context.show_context("usiw0");
  qp.show_qp(42);
  count(1, USIW_CNT_TX_BYTES, 500);
  context.retire(qp);
  qp.hide();
  ASSERT_TRUE(read());
  EXPECT_EQ(500u, value(device_.counters, "tx_bytes"));
  EXPECT_TRUE(device_.qps.empty());
}

TEST_F(RunStat, AContextThatIsClosedOrAnotherProcesssIsNotShown) {
  EXPECT_FALSE(read()) << "no context yet";
  MappedPage context(fd_, 0);
  context.show_context("usiw0");
  EXPECT_TRUE(read());
  EXPECT_FALSE(read_run_context(fd_, static_cast<uint32_t>(getpid()) + 1, device_)) << "a child of fork()";
  context.hide();
  EXPECT_FALSE(read());
}

TEST_F(RunStat, HostileMemoryIsReadWithinItsBounds) {
  run::StatMark bad{
      run::kStatMagic, static_cast<uint32_t>(StatKind::kContext), static_cast<uint32_t>(getpid()), ~0u, ~0u, {}, {}};
  std::memset(bad.device, 'x', sizeof bad.device);  // no NUL
  mark(bad);
  resize(uint64_t{1} << 30);  // most of it a hole
  ASSERT_TRUE(read());
  EXPECT_EQ(std::string(sizeof bad.device, 'x'), device_.name);
  EXPECT_TRUE(device_.qps.empty());

  resize(2);
  MappedPage qp(fd_, 1);
  qp.show_qp(~0u);
  qp.set_state(~0u);
  count(0, USIW_CNT_RTO, ~uint64_t{0});
  count(1, USIW_CNT_RTO, 2);
  ASSERT_TRUE(read());
  EXPECT_EQ(1u, value(device_.counters, "rto")) << "wraps";
  EXPECT_NE(std::string::npos, stat_text({device_}).find("state ? pid"));

  ASSERT_EQ(0, ftruncate(fd_, 100));
  EXPECT_FALSE(read()) << "no whole page";
}

TEST_F(RunStat, ItIsFoundInThisProcess) {
  MappedPage context(fd_, 0);
  context.show_context("run_stat_test");
  const int twice = dup(fd_);
  const Sample all = run_sample();
  const auto mine = std::find_if(all.begin(), all.end(), [](const auto& d) { return d.name == "run_stat_test"; });
  close(twice);
  ASSERT_NE(all.end(), mine);
  EXPECT_NE(std::string::npos, stat_json({*mine}).find("\"by\":\"usiw-run\""));
  EXPECT_EQ("link run_stat_test/1 by usiw-run\n", stat_text({*mine}));
}

TEST(RunStatFolder, WhatIsNoProcessIsSkipped) {
  EXPECT_TRUE(run_sample("/nonesuch").empty());
  EXPECT_TRUE(run_sample("/sys").empty());
}

}  // namespace
}  // namespace usiw::tools
