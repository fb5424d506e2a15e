// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/shm_ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <random>
#include <vector>

namespace usiw {
namespace {

constexpr uint32_t kMax = 9188;

/// A ring as two processes have it: the memory twice in a row.
class ShmRing : public ::testing::Test {
 protected:
  void SetUp() override {
    int fd = memfd_create("ring", MFD_CLOEXEC);
    ASSERT_EQ(0, ftruncate(fd, kShmRingBytes));
    memory = static_cast<std::byte*>(mmap(nullptr, 2 * kShmRingBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t copy = 0; copy < 2; copy++)
      ASSERT_NE(MAP_FAILED, mmap(memory + copy * kShmRingBytes, kShmRingBytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_FIXED, fd, 0));
    close(fd);
    writer = ShmWriter(&shared, memory);
    reader = ShmReader(&shared, memory, kMax);
  }
  void TearDown() override { munmap(memory, 2 * kShmRingBytes); }

  bool push(uint32_t number, size_t size, uint8_t fill) {
    std::vector<std::byte> data(size + 1, std::byte{fill});  // never null
    const std::span all(data.data(), size);
    const size_t head = size / 3;  // whatever the pieces are
    return writer.push(number, all.first(head), all.subspan(head));
  }
  bool pop() {
    got.assign(kMax, std::byte{0});
    if (!reader.pop(got.data(), len, flow)) return false;
    got.resize(len);
    return true;
  }
  ShmRecord* record(size_t at) { return reinterpret_cast<ShmRecord*>(memory + at % kShmRingBytes); }

  ShmRingShared shared{};
  std::byte* memory = nullptr;
  ShmWriter writer;
  ShmReader reader;
  std::vector<std::byte> got;
  uint32_t len = 0, flow = 0;
};

TEST_F(ShmRing, what_is_pushed_is_popped_in_order) {
  EXPECT_FALSE(reader.ready());
  EXPECT_FALSE(pop());
  ASSERT_TRUE(push(7, 100, 1));
  ASSERT_TRUE(push(8, 0, 2));
  ASSERT_TRUE(push(9, kMax, 3));
  EXPECT_TRUE(reader.ready());
  ASSERT_TRUE(pop());
  EXPECT_EQ(7u, flow);
  EXPECT_EQ(std::vector<std::byte>(100, std::byte{1}), got);
  ASSERT_TRUE(pop());
  EXPECT_EQ(8u, flow);
  EXPECT_EQ(0u, len);
  ASSERT_TRUE(pop());
  EXPECT_EQ(std::vector<std::byte>(kMax, std::byte{3}), got);
  EXPECT_FALSE(pop());
  EXPECT_FALSE(reader.broken());
}

TEST_F(ShmRing, many_rounds_of_all_sizes) {
  std::mt19937 rng(1);
  std::deque<std::pair<uint32_t, uint8_t>> expected;
  for (uint32_t n = 0; n < 20000; n++) {
    const uint32_t size = rng() % 4 == 0 ? rng() % (kMax + 1) : rng() % 200;
    const auto value = static_cast<uint8_t>(n);
    if (push(n, size, value)) expected.emplace_back(size, value);
    const bool drain = rng() % 50 == 0;
    while (!expected.empty() && (drain || expected.size() > rng() % 60)) {
      ASSERT_TRUE(pop());
      ASSERT_EQ(expected.front().first, len);
      for (std::byte b : got) ASSERT_EQ(std::byte{expected.front().second}, b);
      expected.pop_front();
    }
  }
}

TEST_F(ShmRing, full_until_something_is_taken) {
  size_t count = 0;
  while (push(0, kMax, static_cast<uint8_t>(count))) count++;
  EXPECT_GE(count, 50u);
  EXPECT_FALSE(writer.broken());
  ASSERT_TRUE(pop());
  EXPECT_TRUE(push(0, kMax, 99));
  EXPECT_FALSE(push(0, kMax, 99));
  for (size_t i = 1; i <= count; i++) ASSERT_TRUE(pop()) << i;
  EXPECT_FALSE(pop());
}

TEST_F(ShmRing, the_reader_is_woken_once) {
  ASSERT_TRUE(push(0, 10, 0));
  EXPECT_FALSE(writer.wake_wanted());
  EXPECT_FALSE(reader.arm()) << "something is there";
  ASSERT_TRUE(pop());
  ASSERT_TRUE(push(0, 10, 0));
  EXPECT_FALSE(writer.wake_wanted()) << "nobody fell asleep";
  ASSERT_TRUE(pop());
  EXPECT_TRUE(reader.arm());
  ASSERT_TRUE(push(0, 10, 0));
  EXPECT_TRUE(writer.wake_wanted());
  ASSERT_TRUE(push(0, 10, 0));
  EXPECT_FALSE(writer.wake_wanted());
}

/// The one that takes a record need not be the one that sleeps: that one is woken all the same, be it
/// by this record or by the next.
TEST_F(ShmRing, a_sleeper_is_woken_though_another_took_the_record) {
  EXPECT_TRUE(reader.arm());
  ASSERT_TRUE(push(0, 10, 0));
  ASSERT_TRUE(pop()) << "before the writer has looked whether somebody sleeps";
  EXPECT_TRUE(writer.wake_wanted());
  EXPECT_TRUE(reader.arm());
  for (int i = 0; i < 3; i++) {
    ASSERT_TRUE(push(0, 10, 0));
    ASSERT_TRUE(pop());
  }
  EXPECT_TRUE(writer.wake_wanted());
  EXPECT_FALSE(writer.wake_wanted());
}

// ---- The other end is hostile -------------------------------------------------------------------

TEST_F(ShmRing, too_long_a_record_breaks_it) {
  ASSERT_TRUE(push(0, 10, 0));
  for (uint32_t bad : {kMax + 1, uint32_t{1} << 20, 0x7fffffffu}) {
    ShmReader fresh(&shared, memory, kMax);
    record(0)->word.store(ShmRecord::kComplete | bad);
    got.resize(kMax);
    EXPECT_FALSE(fresh.pop(got.data(), len, flow));
    EXPECT_TRUE(fresh.broken());
    EXPECT_FALSE(fresh.ready());
    EXPECT_FALSE(fresh.pop(got.data(), len, flow));
  }
}

TEST_F(ShmRing, a_record_that_is_not_complete_breaks_it) {
  record(0)->word.store(10);
  EXPECT_FALSE(pop());
  EXPECT_TRUE(reader.broken());
}

TEST_F(ShmRing, nonsense_about_what_was_consumed_breaks_it) {
  for (uint64_t nonsense : {UINT64_MAX, uint64_t{1} << 40, uint64_t{kShmRingBytes} * 2}) {
    ShmWriter fresh(&shared, memory);
    shared.consumed.store(nonsense);
    std::vector<std::byte> data(kMax);
    size_t count = 0;
    while (count < 1000 && fresh.push(0, data, {})) count++;
    EXPECT_LT(count, kShmRingBytes / kMax + 1);
    EXPECT_TRUE(fresh.broken());
  }
}

TEST_F(ShmRing, consumed_that_goes_back_breaks_it) {
  std::vector<std::byte> data(kMax);
  shared.consumed.store(0);
  while (writer.push(0, data, {})) {}
  ASSERT_TRUE(pop());
  ASSERT_TRUE(pop());
  ASSERT_TRUE(push(0, kMax, 0));
  while (push(0, kMax, 0)) {}
  shared.consumed.store(0);
  EXPECT_FALSE(push(0, kMax, 0));
  EXPECT_TRUE(writer.broken());
}

TEST_F(ShmRing, random_contents) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 200; round++) {
    for (size_t at = 0; at < kShmRingBytes; at += 64)
      record(at)->word.store(rng() % 8 == 0 ? static_cast<uint32_t>(rng()) : ShmRecord::kComplete | rng() % (kMax + 9));
    ShmReader fresh(&shared, memory, kMax);
    auto out = std::make_unique<std::byte[]>(kMax);  // of its own, so that a sanitizer sees one byte more
    for (int i = 0; i < 1000 && fresh.pop(out.get(), len, flow); i++) ASSERT_LE(len, kMax);
  }
}

}  // namespace
}  // namespace usiw
