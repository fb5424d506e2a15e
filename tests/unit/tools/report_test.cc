// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The parts of `usiw report`: a part that fails, hangs or floods costs one line and ends in time.
#include "tools/report.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "tools/bounded.h"

namespace usiw::tools {
namespace {

using namespace std::chrono_literals;

TEST(Bounded, PrintsWhatTheChildPrints) {
  const auto print = [] { return std::puts("out"), std::fflush(stdout), std::fputs("err", stderr), 0; };
  EXPECT_EQ("out\nerr\n", bounded(print, 10s));
  EXPECT_EQ("(nothing)\n", bounded([] { return 0; }, 10s));
}

TEST(Bounded, AFailureIsOneLine) {
  EXPECT_EQ("half\n(this part failed: exit status 3)\n", bounded([] { return std::puts("half"), 3; }, 10s));
  EXPECT_EQ("(this part was killed: Killed)\n", bounded([] { return raise(SIGKILL); }, 10s));
}

TEST(Bounded, AChildThatHangsIsKilledWithItsOwnChildren) {
  const auto start = std::chrono::steady_clock::now();
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  const std::string out = bounded(
      [] {
        std::puts("begun");
        std::fflush(stdout);
        if (fork() == 0) pause();
        return pause();
      },
      2s);
  close(ends[1]);
  EXPECT_EQ("begun\n(this part did not end in time)\n", out);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  pollfd other{ends[0], POLLIN, 0};
  poll(&other, 1, 5000);
  EXPECT_EQ(POLLHUP, other.revents);  // no process has the other end any more
  close(ends[0]);
}

TEST(Bounded, AChildThatClosesItsOutputAndHangsIsKilled) {
  const std::string out = bounded([] { return close(1), close(2), pause(); }, 300ms);
  EXPECT_EQ("(this part did not end in time)\n", out);
}

TEST(Bounded, AFloodIsCut) {
  const std::string out = bounded(
      [] {
        for (;;) std::puts("again");
        return 0;
      },
      10s);
  EXPECT_EQ(0u, out.find("again\n"));
  EXPECT_NE(std::string::npos, out.find("\n(this part printed more than is shown here)\n"));
  EXPECT_LT(out.size(), kBoundedOutput + 100);
}

TEST(Report, LinesOfTheKernelThatNameUsiw) {
  EXPECT_EQ("[   12.000345] usiw: usiw0 on eth0", kernel_line("6,301,12000345,-;usiw: usiw0 on eth0\n DEVICE=+x\n"));
  EXPECT_EQ("[    0.000001] a;usiw?b", kernel_line("4,1,1,-;a;usiw\33b"));
  EXPECT_EQ("", kernel_line("6,301,12000345,-;eth0: up\n SUBSYSTEM=usiw\n"));
  EXPECT_EQ("", kernel_line("30,301,12000345,-;systemd[1]: Hostname set to <usiw-host>.\n"));  // not the kernel's own
  for (const char* wrong : {"", ";", "6,301;usiw", "x,1,1,-;usiw", "6,1,1 usiw"}) EXPECT_EQ("", kernel_line(wrong));
}

}  // namespace
}  // namespace usiw::tools
