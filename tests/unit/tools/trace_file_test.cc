// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_file_test.cc
/// USIW_TRACE, and the file or memfd behind a trace.
#include "runtime/trace_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "folder.h"

namespace usiw {
namespace {

namespace fs = std::filesystem;

class TraceFiles : public FolderTest {
 protected:
  std::string why_;
};

TEST(TraceSpecs, Parse) {
  EXPECT_EQ("", TraceSpec::parse(nullptr).directory);
  EXPECT_EQ("", TraceSpec::parse("").directory);
  EXPECT_EQ("/tmp", TraceSpec::parse("/tmp").directory);
  const TraceSpec full = TraceSpec::parse("/tmp,events=1000,stop-on-error");
  EXPECT_EQ(1024u, full.events);
  EXPECT_TRUE(full.stop_on_error);
  EXPECT_EQ("", full.complaint);
  EXPECT_EQ(kTraceMinEvents, TraceSpec::parse("/tmp,events=1").events);
  EXPECT_EQ(kTraceMaxEvents, TraceSpec::parse("/tmp,events=4000000000").events);
  for (const char* bad :
       {"/tmp,", "/tmp,events=", "/tmp,events=0", "/tmp,events=5x", "/tmp,events=99999999999", "/tmp,stop"})
    EXPECT_EQ(std::string(bad) == "/tmp,", TraceSpec::parse(bad).complaint.empty()) << bad;
}

TEST_F(TraceFiles, FileStaysAndIsPrivate) {
  const TraceSpec spec{.directory = folder_, .events = 64, .stop_on_error = true, .complaint = ""};
  const std::string path = folder_ + "/usiw-trace.usiw0." + std::to_string(getpid());
  auto file = TraceFile::create(spec, "usiw0", why_);
  ASSERT_NE(nullptr, file) << why_;
  const auto* header = reinterpret_cast<const TraceHeader*>(file->memory().data());
  EXPECT_EQ(kTraceMagic, header->magic);
  EXPECT_EQ(1u, header->on);
  EXPECT_EQ(uint32_t{kTraceStopOnError}, header->flags);
  file.reset();
  struct stat st;
  ASSERT_EQ(0, stat(path.c_str(), &st));
  EXPECT_EQ(0600u, st.st_mode & 0777u);
  EXPECT_EQ(trace_bytes(64), static_cast<size_t>(st.st_size));
  EXPECT_GE(static_cast<size_t>(st.st_blocks) * 512, trace_bytes(64));  // no hole to fail at later
  // The same process again: the first one is not overwritten.
  file = TraceFile::create(spec, "usiw0", why_);
  EXPECT_NE(nullptr, file);
  EXPECT_TRUE(fs::exists(path + ".1"));
}

TEST_F(TraceFiles, NothingIsFollowedOrOverwritten) {
  const std::string path = folder_ + "/usiw-trace.usiw0." + std::to_string(getpid());
  fs::create_symlink(folder_ + "/victim", path);
  auto file =
      TraceFile::create({.directory = folder_, .events = 64, .stop_on_error = false, .complaint = ""}, "usiw0", why_);
  ASSERT_NE(nullptr, file);
  EXPECT_FALSE(fs::exists(folder_ + "/victim"));
}

TEST_F(TraceFiles, NoDirectory) {
  auto file = TraceFile::create({.directory = folder_ + "/none", .events = 64, .stop_on_error = false, .complaint = ""},
                                "usiw0", why_);
  EXPECT_EQ(nullptr, file);
  EXPECT_NE(std::string::npos, why_.find("/none/")) << why_;
}

TEST_F(TraceFiles, MemfdIsOffAndCostsNothing) {
  auto file = TraceFile::create({}, "usiw0", why_);
  ASSERT_NE(nullptr, file) << why_;
  EXPECT_EQ(0u, reinterpret_cast<const TraceHeader*>(file->memory().data())->on);
  bool found = false;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone).string().find("/memfd:usiw-trace.usiw0") != 0) continue;
    found = true;
    const int fd = std::stoi(entry.path().filename().string());
    EXPECT_NE(0, fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_NE(0, ftruncate(fd, 0));  // nobody pulls it away from under the engine
    struct stat st;
    ASSERT_EQ(0, fstat(fd, &st));
    EXPECT_LE(static_cast<size_t>(st.st_blocks) * 512, size_t{64} << 10);
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace usiw
