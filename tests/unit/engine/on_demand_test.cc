// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file on_demand_test.cc
/// Regions that are registered on demand, the one of all addresses among them: what is mapped works as elsewhere, what
/// is not is an error of the work request or of the peer's, and never one of the process.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "base/machine.h"
#include "engine/mr_table.h"
#include "fixture.h"

namespace {

/// A message that a peer writes to memory on demand, and its trailing word.
struct WatchedMessage {
  const std::byte *expected = nullptr, *at = nullptr;
  size_t before = 0, word = 0;
  bool word_alone = false;  ///< the kernel got the word as a piece of its own
  bool word_last = false;   ///< the bytes before the word were there already

  void about_to_copy(const iovec& piece) {
    if (expected == nullptr || piece.iov_base != at + before || piece.iov_len != word) return;
    word_alone = true;
    word_last = std::equal(expected, expected + before, at);
  }
};
WatchedMessage watched;

}  // namespace

/// Replaces libc's for the engine: copies the pieces one after the other, as the kernel does, and looks before each.
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* from, unsigned long from_count, const iovec* to,
                                     unsigned long to_count, unsigned long flags) noexcept {
  if (from_count != 1) return syscall(SYS_process_vm_writev, pid, from, from_count, to, to_count, flags);
  ssize_t copied = 0;
  for (unsigned long i = 0; i < to_count; ++i) {
    watched.about_to_copy(to[i]);
    const iovec part{static_cast<std::byte*>(from->iov_base) + copied, to[i].iov_len};
    const ssize_t n = syscall(SYS_process_vm_writev, pid, &part, 1, &to[i], 1, flags);
    if (n < 0 && copied == 0) return n;
    if (n > 0) copied += n;
    if (n != static_cast<ssize_t>(part.iov_len)) break;
  }
  return copied;
}

namespace usiw::sim {
namespace {

const size_t kPage = page_size();
constexpr uint32_t kRights = Host::kAllRights | kAccessRemoteAtomic | kAccessMwBind | kAccessOnDemand;

/// Pages that are mapped at first, with a number in each byte.
class Pages {
 public:
  explicit Pages(size_t n) : size_(n * kPage) {
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(MAP_FAILED, at);
    at_ = static_cast<std::byte*>(at);
    for (size_t i = 0; i < size_; ++i) at_[i] = value(i);
  }
  ~Pages() { munmap(at_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  static std::byte value(size_t i) { return static_cast<std::byte>(i * 7 % 251 + 1); }
  /// Takes a page away. Nobody gets the address meanwhile, as the next malloc() might after munmap().
  void unmap(size_t page) { map(page, PROT_NONE); }
  void protect(size_t page) { ASSERT_EQ(0, mprotect(at_ + page * kPage, kPage, PROT_READ)); }
  void map_again(size_t page) { map(page, PROT_READ | PROT_WRITE); }
  std::byte* data() { return at_; }
  uint64_t addr(size_t offset = 0) const { return reinterpret_cast<uint64_t>(at_) + offset; }
  size_t size() const { return size_; }

 private:
  void map(size_t page, int rights) {
    void* at = at_ + page * kPage;
    ASSERT_EQ(at, mmap(at, kPage, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  }

  std::byte* at_;
  size_t size_;
};

/// Both ends name their pages by a region of just these, or by that of all addresses.
class OnDemand : public EngineTest, public ::testing::WithParamInterface<bool> {
 protected:
  OnDemand() {
    // Datagrams get lost: what is sent again is read again.
    w.wire.faults.loss = 0.05;
    connect();
    la = add(w.a, a);
    lb = add(w.b, b);
  }
  void connect() { std::tie(qa, qb) = w.connect(); }
  uint32_t add(Host& h, Pages& pages) {
    const uint32_t stag = h.next_stag++ << 8 | 0x5a;
    const MrAttr mr = GetParam() ? MrAttr{stag, Host::kPd, kRights, 0, UINT64_MAX, 0}
                                 : MrAttr{stag, Host::kPd, kRights, pages.addr(), pages.size(), pages.addr()};
    EXPECT_EQ(0, h.engine.mr_add(mr));
    return stag;
  }
  Sge from(size_t offset, size_t length) const { return {a.addr(offset), static_cast<uint32_t>(length), la}; }
  Sge into(size_t offset, size_t length) const { return {b.addr(offset), static_cast<uint32_t>(length), lb}; }
  WcStatus status_of_a() { return wait(w.a, w.a.send_cq, 1)[0].status; }
  /// Both ends are in error and empty; a new connection then.
  void again() {
    w.a.engine.qp_abort(qa);
    w.b.engine.qp_abort(qb);
    for (Host* h : {&w.a, &w.b}) {
      h->poll(h->send_cq);
      h->poll(h->recv_cq);
      h->events.failed.clear();
    }
    connect();
  }

  Pages a{8}, b{8};
  uint32_t la, lb;
  Qp *qa, *qb;
};
INSTANTIATE_TEST_SUITE_P(Regions, OnDemand, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "all_addresses" : "some"; });

TEST_P(OnDemand, what_is_mapped_works_as_elsewhere) {
  for (const size_t n : {size_t{1}, size_t{8}, size_t{64}, size_t{1400}, size_t{6000}, size_t{3 * kPage}}) {
    std::fill(b.data(), b.data() + b.size(), std::byte{0});
    write(qa, from(5, n), b.addr(100), lb);
    ASSERT_EQ(kSuccess, status_of_a()) << n;
    EXPECT_TRUE(std::equal(a.data() + 5, a.data() + 5 + n, b.data() + 100)) << n;
    EXPECT_EQ(std::byte{0}, b.data()[99]);
    EXPECT_EQ(std::byte{0}, b.data()[100 + n]);

    post_recv(qb, {into(4 * kPage, 3), into(4 * kPage + 10, n)});
    send(qa, from(7, n));
    ASSERT_EQ(kSuccess, status_of_a()) << n;
    EXPECT_EQ(n, wait(w.b, w.b.recv_cq, 1)[0].byte_len);
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(Pages::value(7 + i), b.data()[4 * kPage + (i < 3 ? i : 7 + i)]) << n << " " << i;

    std::copy_n(a.data(), n, b.data() + 9);
    read(qa, from(5 * kPage, n), b.addr(9), lb);
    ASSERT_EQ(kSuccess, status_of_a()) << n;
    EXPECT_TRUE(std::equal(a.data(), a.data() + n, a.data() + 5 * kPage)) << n;
  }
}

TEST_P(OnDemand, atomics_and_windows) {
  auto& word = *reinterpret_cast<uint64_t*>(b.data() + 3 * kPage - 8);
  word = 40;
  ASSERT_EQ(0, qa->post_send({.wr_id = 1, .opcode = WrOpcode::kFetchAdd, .flags = kWrSignaled,
                              .remote_addr = b.addr(3 * kPage - 8), .rkey = lb, .operands = {2, 0}},
                             std::vector{from(16, 8)}));
  qa->ring_send();
  ASSERT_EQ(kSuccess, status_of_a());
  EXPECT_EQ(42u, word);
  EXPECT_EQ(40u, *reinterpret_cast<uint64_t*>(a.data() + 16));

  const uint32_t mw = uint32_t{USIW_MAX_MR} << 8;
  ASSERT_EQ(0, w.b.engine.mw_add({mw, Host::kPd, true}));
  ASSERT_EQ(0, qb->post_send({.wr_id = 2, .opcode = WrOpcode::kBindMw, .flags = kWrSignaled,
                              .remote_addr = b.addr(kPage), .rkey = mw, .imm = 1,
                              .bind = {kPage, kAccessRemoteWrite, lb}}, {}));
  qb->ring_send();
  ASSERT_EQ(kSuccess, wait(w.b, w.b.send_cq, 1)[0].status);
  write(qa, from(0, 2000), b.addr(kPage + 1), mw);
  ASSERT_EQ(kSuccess, status_of_a());
  EXPECT_TRUE(std::equal(a.data(), a.data() + 2000, b.data() + kPage + 1));
  b.unmap(1);
  write(qa, from(0, 2000), b.addr(kPage + 1), mw);
  EXPECT_EQ(kRemAccessErr, status_of_a());
  b.map_again(1);
  again();
}

TEST_P(OnDemand, a_hole_at_the_requester) {
  for (const size_t n : {size_t{8}, size_t{1400}, size_t{6000}}) {
    a.unmap(2);
    for (const auto op : {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead}) {
      post_recv(qb, {into(0, 3 * kPage)});
      post(qa, op, {from(3 * kPage - n, n)}, 1, kWrSignaled, b.addr(), lb);
      EXPECT_EQ(kLocProtErr, status_of_a()) << n << " " << static_cast<int>(op);
      again();
      // The hole begins within a datagram.
      post_recv(qb, {into(0, 3 * kPage)});
      post(qa, op, {from(2 * kPage - n + 3, n)}, 1, kWrSignaled, b.addr(), lb);
      EXPECT_EQ(kLocProtErr, status_of_a()) << n << " " << static_cast<int>(op);
      again();
    }
    a.map_again(2);
    write(qa, from(2 * kPage, n), b.addr(), lb);
    EXPECT_EQ(kSuccess, status_of_a()) << n;
  }
}

TEST_P(OnDemand, a_hole_at_the_peer) {
  for (const size_t n : {size_t{8}, size_t{1400}, size_t{6000}}) {
    b.unmap(2);
    for (const auto op : {WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead}) {
      post(qa, op, {from(0, n)}, 1, kWrSignaled, b.addr(2 * kPage - n / 2), lb);
      EXPECT_EQ(kRemAccessErr, status_of_a()) << n << " " << static_cast<int>(op);
      again();
    }
    post_recv(qb, {into(2 * kPage - n / 2, n)});
    send(qa, from(0, n));
    EXPECT_EQ(kLocProtErr, wait(w.b, w.b.recv_cq, 1)[0].status) << n;
    EXPECT_EQ(kRemOpErr, status_of_a()) << n;
    again();
    for (const auto op : {WrOpcode::kFetchAdd, WrOpcode::kCompareSwap}) {
      post(qa, op, {from(0, 8)}, 1, kWrSignaled, b.addr(2 * kPage + 16), lb);
      EXPECT_EQ(kRemAccessErr, status_of_a()) << n;
      again();
    }
    b.map_again(2);
  }
}

TEST_P(OnDemand, pages_that_cannot_be_written_stay_as_they_are) {
  b.protect(1);
  const auto value = b.data()[kPage];
  for (const auto op : {WrOpcode::kRdmaWrite, WrOpcode::kFetchAdd}) {
    post(qa, op, {from(0, 8)}, 1, kWrSignaled, b.addr(kPage), lb);
    EXPECT_EQ(kRemAccessErr, status_of_a()) << static_cast<int>(op);
    again();
  }
  post_recv(qb, {into(kPage, 100)});
  send(qa, from(0, 100));
  EXPECT_EQ(kLocProtErr, wait(w.b, w.b.recv_cq, 1)[0].status);
  again();
  EXPECT_EQ(value, b.data()[kPage]);
  read(qa, from(0, 8), b.addr(kPage), lb);
  EXPECT_EQ(kSuccess, status_of_a());
  EXPECT_EQ(value, a.data()[0]);
}

// Of the end of a WRITE the bytes before the hole may have come, the last byte has not.
TEST_P(OnDemand, the_last_byte_of_a_write_comes_last) {
  b.unmap(1);
  b.data()[kPage - 1] = std::byte{0};
  write(qa, from(0, 1000), b.addr(kPage - 999), lb);
  EXPECT_EQ(kRemAccessErr, status_of_a());
  EXPECT_EQ(a.data()[998], b.data()[kPage - 1]);
  b.map_again(1);
  EXPECT_EQ(std::byte{0}, b.data()[kPage]);
  again();
}

// A program may poll the trailing word of the message, here too.
TEST_P(OnDemand, the_kernel_copies_the_trailing_word_last) {
  w.wire.faults.loss = 0;
  for (const size_t word : {1u, 2u, 4u, 8u}) {
    for (const size_t n : {8u, 9u, 33u, 64u, 1000u, 1448u, 6000u}) {
      std::fill(b.data(), b.data() + b.size(), std::byte{0});
      // The end address is a multiple of the word and of nothing larger.
      const size_t to = 2 * kPage + 16 + word - n;
      watched = {.expected = a.data() + 3, .at = b.data() + to, .before = n - word, .word = word};
      write(qa, from(3, n), b.addr(to), lb);
      ASSERT_EQ(kSuccess, status_of_a());
      EXPECT_TRUE(watched.word_alone) << "n " << n << ", word " << word;
      EXPECT_TRUE(watched.word_last) << "n " << n << ", word " << word;
      EXPECT_TRUE(std::equal(a.data() + 3, a.data() + 3 + n, b.data() + to));
    }
  }
  watched = {};
}

TEST(MrTable, region_of_all_addresses) {
  auto t = std::make_unique<MrTable>();
  MrFault why;
  ASSERT_EQ(0, t->add({0x300, 1, kRights, 0, UINT64_MAX, 0}));
  std::byte here{1};
  const auto at = reinterpret_cast<uint64_t>(&here);
  EXPECT_EQ(&here, t->resolve(0x300, 1, 0, at, 1, why).address());
  EXPECT_EQ(nullptr, t->resolve(0x300, 1, 0, at, 1, why).direct()) << "a pointer that may be dereferenced";
  EXPECT_FALSE(t->resolve(0x300, 1, 0, 0, 8, why));
  EXPECT_EQ(MrFault::kBounds, why);
  EXPECT_FALSE(t->resolve(0x300, 1, 0, UINT64_MAX - 3, 8, why));
  EXPECT_EQ(MrFault::kWrap, why);
  EXPECT_FALSE(t->resolve(0x300, 2, 0, at, 1, why));
  EXPECT_EQ(MrFault::kPd, why);
  const UserMemory kernel = t->resolve(0x300, 1, 0, UINT64_MAX - 4096, 8, why);
  std::byte out[8];
  EXPECT_TRUE(kernel);
  EXPECT_FALSE(kernel.read(out, 8)) << "what is not the process's";
  EXPECT_FALSE(kernel.write(out, 8));
  EXPECT_FALSE(kernel.write_end(out, 8));
  EXPECT_EQ(nullptr, kernel.word());
  // It changes into one that is always mapped, and back.
  ASSERT_EQ(0, t->change(0x300, {0x301, 1, Host::kAllRights, at, 1, at}));
  EXPECT_EQ(&here, t->resolve(0x301, 1, 0, at, 1, why).direct());
  EXPECT_FALSE(t->resolve(0x301, 1, 0, at, 2, why));
  ASSERT_EQ(0, t->change(0x301, {0x302, 1, kRights, 0, UINT64_MAX, 0}));
  EXPECT_EQ(nullptr, t->resolve(0x302, 1, 0, at, 1, why).direct());
  EXPECT_TRUE(t->resolve(0x302, 1, 0, at, 1, why).read(out, 1));
  EXPECT_EQ(here, out[0]);
}

/// A filter as that of a container that forbids a system call.
void forbid(int call) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(code), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(3);
}

TEST(UserMemory, needs_the_kernel_to_copy) {
  EXPECT_TRUE(UserMemory::can_be_on_demand());
  for (const int call : {SYS_process_vm_readv, SYS_process_vm_writev}) {
    const pid_t child = fork();
    if (child == 0) {
      forbid(call);
      _exit(UserMemory::can_be_on_demand() ? 1 : 0);
    }
    int status;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status) << call;
  }
}

}  // namespace
}  // namespace usiw::sim
