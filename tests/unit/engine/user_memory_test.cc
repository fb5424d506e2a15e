// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The end of a WRITE in memory: a program that polls the trailing word sees all bytes before it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "engine/user_memory.h"

namespace usiw {
namespace {

std::byte* at(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

TEST(UserMemory, the_trailing_word_divides_the_end_address) {
  EXPECT_EQ(8u, UserMemory::last_word(at(0x1000), 64));
  EXPECT_EQ(8u, UserMemory::last_word(at(0x1003), 13));
  EXPECT_EQ(4u, UserMemory::last_word(at(0x1000), 12));
  EXPECT_EQ(2u, UserMemory::last_word(at(0x1000), 102));
  EXPECT_EQ(1u, UserMemory::last_word(at(0x1000), 101));
  // A message shorter than the word.
  EXPECT_EQ(4u, UserMemory::last_word(at(0x1004), 4));
  EXPECT_EQ(2u, UserMemory::last_word(at(0x1005), 3));
  EXPECT_EQ(1u, UserMemory::last_word(at(0x1007), 1));
}

/// Two pages, the second of which cannot be written until a write to it has been caught. The handler keeps what the
/// first page had at that moment.
class TwoPages {
 public:
  TwoPages() {
    size_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    pages_ = static_cast<std::byte*>(
        mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      caught_ = caught_ + 1;
      fault_ = static_cast<std::byte*>(info->si_addr);
      std::memcpy(seen_, pages_ + size_ - sizeof seen_, sizeof seen_);
      mprotect(pages_, 2 * size_, PROT_READ | PROT_WRITE);
    };
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~TwoPages() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(pages_, 2 * size_);
  }
  /// The end of the first page.
  std::byte* edge() const { return pages_ + size_; }
  void protect() {
    caught_ = 0;
    std::memset(pages_, 0, 2 * size_);
    mprotect(edge(), size_, PROT_READ);
  }
  int caught() const { return caught_; }
  std::byte* fault() const { return fault_; }
  /// The last bytes of the first page when the second one was written first.
  const std::byte* seen_end() const { return seen_ + sizeof seen_; }

 private:
  static inline volatile sig_atomic_t caught_;
  static inline std::byte* fault_;
  static inline std::byte* pages_;
  static inline size_t size_;
  static inline std::byte seen_[2048];
  struct sigaction before_;
};

TEST(UserMemory, the_trailing_word_of_a_write_is_stored_last) {
  TwoPages pages;
  std::vector<std::byte> message(2048);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(1 + i % 251);
  for (const size_t word : {1u, 2u, 4u, 8u}) {
    for (const size_t n : {9u, 16u, 33u, 64u, 100u, 128u, 256u, 1000u, 1448u, 2040u}) {
      pages.protect();
      std::byte* const to = pages.edge() + word - n;
      ASSERT_TRUE(UserMemory::mapped(to).write_end(message.data(), n));
      ASSERT_EQ(1, pages.caught()) << "n " << n << ", word " << word;
      EXPECT_EQ(pages.edge(), pages.fault());
      EXPECT_EQ(0, std::memcmp(pages.seen_end() - (n - word), message.data(), n - word))
          << "n " << n << ", word " << word << ": bytes in front of the word came later";
      EXPECT_EQ(0, std::memcmp(to, message.data(), n));
    }
  }
}

}  // namespace
}  // namespace usiw
