// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of tools/run/libc/mapped.h: each way of looking at the process's mappings gives the same verdict, and a check
// costs what its range costs, counted in mappings asked for, bytes populated and lines read.
#include "tools/run/libc/mapped.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace usiw::run {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kManyMappings = 10'000;

/// Pages of address space of which nothing is mapped, but for what a test puts there.
class Space {
 public:
  explicit Space(uint64_t pages) : pages_(pages) {
    void* at = mmap(nullptr, pages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    base_ = reinterpret_cast<uint64_t>(at);
  }
  ~Space() { munmap(at(0), pages_ * kPage); }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  uint64_t address(uint64_t page) const { return base_ + page * kPage; }
  void* at(uint64_t page) const { return reinterpret_cast<void*>(address(page)); }
  void map(uint64_t page, uint64_t count, int rights, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1,
           uint64_t offset = 0) const {
    EXPECT_EQ(mmap(at(page), count * kPage, rights, flags | MAP_FIXED, fd, static_cast<off_t>(offset * kPage)),
              at(page));
  }
  void unmap(uint64_t page, uint64_t count) const { EXPECT_EQ(munmap(at(page), count * kPage), 0); }
  /// Pages of it that are in memory.
  uint64_t resident(uint64_t page, uint64_t count) const {
    std::vector<unsigned char> in(count);
    EXPECT_EQ(mincore(at(page), count * kPage, in.data()), 0);
    uint64_t found = 0;
    for (unsigned char each : in) found += each & 1;
    return found;
  }

 private:
  const uint64_t pages_;
  uint64_t base_;
};

class File {
 public:
  explicit File(uint64_t bytes) : fd_(memfd_create("mapped_test", MFD_CLOEXEC)) { resize(bytes); }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  void resize(uint64_t bytes) const { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0); }

 private:
  const int fd_;
};

constexpr int kRead = PROT_READ, kWrite = PROT_READ | PROT_WRITE;

class Mapped : public testing::TestWithParam<MappedBy> {
 protected:
  int check(const Space& space, uint64_t page, uint64_t count, bool write) {
    cost = {};
    return check_mapped(space.address(page), count * kPage, write, GetParam(), &cost);
  }
  MappedCost cost;
};

TEST_P(Mapped, rights_and_gaps) {
  const Space space(16);
  space.map(0, 4, kWrite);
  space.map(4, 4, kRead);
  space.unmap(8, 1);
  space.map(9, 1, kWrite);
  EXPECT_EQ(check(space, 0, 4, true), 0);
  EXPECT_EQ(check(space, 0, 8, false), 0);
  EXPECT_EQ(check(space, 0, 8, true), -EFAULT);
  EXPECT_EQ(check(space, 4, 1, true), -EFAULT);
  EXPECT_EQ(check(space, 0, 9, false), -EFAULT);
  EXPECT_EQ(check(space, 8, 1, false), -EFAULT);
  EXPECT_EQ(check(space, 8, 2, false), -EFAULT);   // begins in the gap
  EXPECT_EQ(check(space, 9, 2, false), -EFAULT);   // no right at all behind it
  // Bytes, not pages.
  EXPECT_EQ(check_mapped(space.address(4) - 1, 1, true, GetParam()), 0);
  EXPECT_EQ(check_mapped(space.address(4) - 1, 2, true, GetParam()), -EFAULT);
  EXPECT_EQ(check_mapped(space.address(8) - 1, 1, false, GetParam()), 0);
  EXPECT_EQ(check_mapped(space.address(8) - 1, 2, false, GetParam()), -EFAULT);
}

TEST_P(Mapped, what_is_no_range) {
  EXPECT_EQ(check_mapped(0, 0, true, GetParam()), 0);
  EXPECT_EQ(check_mapped(0, 1, false, GetParam()), -EFAULT);
  EXPECT_EQ(check_mapped(~uint64_t{0}, 1, false, GetParam()), -EFAULT);
  EXPECT_EQ(check_mapped(~uint64_t{0}, 2, false, GetParam()), -EFAULT);
  EXPECT_EQ(check_mapped(uint64_t{1} << 47, kPage, false, GetParam()), -EFAULT);
  EXPECT_EQ(check_mapped(kPage, ~uint64_t{0} - 2 * kPage, false, GetParam()), -EFAULT);
}

TEST_P(Mapped, end_of_file) {
  const File file(2 * kPage + 1);
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    const Space space(16);
    space.map(0, 8, kWrite, flags, file.fd());
    EXPECT_EQ(check(space, 0, 3, true), 0);
    EXPECT_EQ(check(space, 0, 4, true), -EFAULT);
    EXPECT_EQ(check(space, 0, 8, false), -EFAULT);
    EXPECT_EQ(check(space, 3, 1, false), -EFAULT);
    EXPECT_EQ(check_mapped(space.address(3) - 1, 1, false, GetParam()), 0);
    EXPECT_EQ(check_mapped(space.address(3) - 1, 2, false, GetParam()), -EFAULT);
    space.map(0, 8, kRead, flags, file.fd(), 1);  // from the file's second page on
    EXPECT_EQ(check(space, 0, 2, false), 0);
    EXPECT_EQ(check(space, 0, 3, false), -EFAULT);
  }
  const Space space(8);
  space.map(0, 8, kWrite, MAP_SHARED, file.fd());
  file.resize(8 * kPage);
  EXPECT_EQ(check(space, 0, 8, true), 0);
  file.resize(0);
  EXPECT_EQ(check(space, 0, 1, false), -EFAULT);
}

// Each mapping is held against its own file, and memory of no file may lie between.
TEST_P(Mapped, end_of_one_of_several_files) {
  const File whole(4 * kPage), cut(kPage);
  const Space space(16);
  space.map(0, 4, kWrite, MAP_SHARED, whole.fd());
  space.map(4, 4, kWrite);
  space.map(8, 4, kWrite, MAP_SHARED, cut.fd());
  space.map(12, 4, kWrite);
  EXPECT_EQ(check(space, 0, 9, true), 0);
  EXPECT_EQ(check(space, 0, 10, true), -EFAULT);
  EXPECT_EQ(check(space, 0, 16, true), -EFAULT);
  cut.resize(4 * kPage);
  EXPECT_EQ(check(space, 0, 16, true), 0);
}

// A region of a pool that has not been used yet costs no memory: 256 MiB, and of a file one page.
TEST_P(Mapped, long_ranges_are_not_populated) {
  constexpr uint64_t kPages = (uint64_t{256} << 20) / kPage;
  const Space space(2 * kPages);
  space.map(0, kPages, kWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  EXPECT_EQ(check(space, 0, kPages, true), 0);
  EXPECT_EQ(space.resident(0, kPages), 0u);
  EXPECT_EQ(cost.bytes_populated, 0u);
  const File file(kPages * kPage);
  space.map(kPages, kPages, kWrite, MAP_SHARED, file.fd());
  EXPECT_EQ(check(space, 0, 2 * kPages, true), 0);
  EXPECT_EQ(cost.bytes_populated, kPage);
  EXPECT_LE(space.resident(kPages, kPages), 512u);  // a huge page, where shared memory has them
}

std::string name_of(const testing::TestParamInfo<MappedBy>& way) {
  return way.param == MappedBy::kQuery ? "query" : way.param == MappedBy::kPopulate ? "populate" : "read";
}
INSTANTIATE_TEST_SUITE_P(EachWay, Mapped, testing::Values(MappedBy::kQuery, MappedBy::kPopulate, MappedBy::kRead),
                         name_of);

/// Ten thousand mappings, which no neighbour joins.
class ManyMappings : public testing::Test {
 protected:
  void SetUp() override {
    for (uint64_t i = 0; i < kManyMappings; ++i) space_.map(i, 1, i % 2 == 0 ? kWrite : kRead);
  }
  bool can_query() {
    MappedCost cost;
    check_mapped(space_.address(0), 1, false, MappedBy::kQuery, &cost);
    return cost.bytes_populated == 0 && cost.lines == 0;
  }
  Space space_{kManyMappings};
};

TEST_F(ManyMappings, one_question_for_each_of_the_range) {
  if (!can_query()) GTEST_SKIP() << "this kernel has no PROCMAP_QUERY";
  for (const uint64_t mappings : {1, 2, 100}) {
    MappedCost cost;
    EXPECT_EQ(check_mapped(space_.address(50), mappings * kPage, false, MappedBy::kQuery, &cost), 0);
    EXPECT_EQ(cost.queries, mappings);
    EXPECT_EQ(cost.bytes_populated, 0u);
    EXPECT_EQ(cost.lines, 0u);
  }
}

TEST_F(ManyMappings, short_ranges_are_populated_on_older_kernels) {
  MappedCost cost;
  EXPECT_EQ(check_mapped(space_.address(50) + 10, 100, true, MappedBy::kPopulate, &cost), 0);
  EXPECT_EQ(cost.bytes_populated, 2 * kPage);  // once for each right
  EXPECT_EQ(cost.lines, 0u);
  cost = {};
  EXPECT_EQ(check_mapped(space_.address(0), kPopulateBytes, false, MappedBy::kPopulate, &cost), 0);
  EXPECT_EQ(cost.bytes_populated, kPopulateBytes);
  EXPECT_EQ(cost.lines, 0u);
  cost = {};
  EXPECT_EQ(check_mapped(space_.address(0), kPopulateBytes + 1, false, MappedBy::kPopulate, &cost), 0);
  EXPECT_EQ(cost.bytes_populated, 0u);
  EXPECT_GT(cost.lines, kPopulateBytes / kPage);
}

}  // namespace
}  // namespace usiw::run
