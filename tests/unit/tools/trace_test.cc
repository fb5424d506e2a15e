// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_test.cc
/// `usiw trace on|off`, which root may use on processes of anybody.
#include "tools/trace.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "engine/trace.h"
#include "folder.h"

namespace usiw::tools {
namespace {

namespace fs = std::filesystem;

class TraceSwitch : public FolderTest {
 protected:
  TraceSwitch() {
    trace_.resize(trace_bytes(kTraceMinEvents));
    Tracer::format(trace_, kTraceMinEvents, false, 0, 42, 1, "usiw0");
  }

  std::string file(const char* name, std::span<const std::byte> bytes) {
    const std::string path = folder_ + "/" + name;
    FILE* f = std::fopen(path.c_str(), "w");
    std::fwrite(bytes.data(), 1, bytes.size(), f);
    std::fclose(f);
    return path;
  }
  static std::vector<std::byte> read(const std::string& path) {
    std::vector<std::byte> out(fs::file_size(path));
    FILE* f = std::fopen(path.c_str(), "r");
    EXPECT_EQ(out.size(), std::fread(out.data(), 1, out.size(), f));
    std::fclose(f);
    return out;
  }
  static int run(std::string verb, std::string path) {
    std::string command = "trace";
    char* arguments[] = {command.data(), verb.data(), path.data()};
    return trace_command(arguments);
  }
  static bool is_on(const std::string& path) {
    const auto bytes = read(path);
    return reinterpret_cast<const TraceHeader*>(bytes.data())->on != 0;
  }
  std::vector<std::byte> trace_;
};

TEST_F(TraceSwitch, OnAndOff) {
  const std::string path = file("usiw-trace.usiw0.1", trace_);
  EXPECT_EQ(0, run("on", path));
  EXPECT_TRUE(is_on(path));
  EXPECT_EQ(0, run("off", path));
  EXPECT_EQ(trace_, read(path));
}

TEST_F(TraceSwitch, WhatIsNoTraceIsLeftAlone) {
  std::vector<std::byte> other = trace_;
  other[0] ^= std::byte{1};
  const std::string path = file("other", other);
  EXPECT_EQ(1, run("on", path));
  EXPECT_EQ(other, read(path));
}

// Somebody puts another file in the place of the trace, and back, all the time.
TEST_F(TraceSwitch, WritesToWhatItHasRead) {
  std::vector<std::byte> other(trace_.size());
  const std::string path = file("usiw-trace.usiw0.1", trace_), victim = file("victim", other);
  const int victim_fd = open(victim.c_str(), O_RDONLY | O_CLOEXEC);
  const int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC), before = dup(2);
  dup2(quiet, 2);
  std::atomic<bool> stop = false;
  std::thread swaps([&] {
    while (!stop) renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, victim.c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 1000; ++i) run("on", path);
  stop = true;
  swaps.join();
  dup2(before, 2);
  for (int fd : {quiet, before}) close(fd);
  EXPECT_EQ(static_cast<ssize_t>(other.size()), pread(victim_fd, other.data(), other.size(), 0));
  close(victim_fd);
  EXPECT_EQ(std::vector<std::byte>(other.size()), other);
}

}  // namespace
}  // namespace usiw::tools
