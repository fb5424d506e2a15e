// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/shm_channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/file_limit.h"
#include "base/machine.h"
#include "base/say.h"

namespace usiw {
namespace {

/// One page for both ShmRingShared, the ring of the end that connected, the other end's. Both ends run on one kernel,
/// so their pages have one size.
size_t memory_bytes() { return page_size() + 2 * kShmRingBytes; }
/// In this process every ring is there twice.
size_t mapped_bytes() { return page_size() + 4 * kShmRingBytes; }
static_assert(2 * sizeof(ShmRingShared) <= 4096 && kShmRingBytes % (64 << 10) == 0, "pages are 4 to 64 KiB");

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

/// Memory that can neither shrink nor grow: no access to it ever faults.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int make_memory() {
  int fd = memfd_create("usiw-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  const int error = resize_memory(fd, memory_bytes());
  if (error == 0 && fcntl(fd, F_ADD_SEALS, kSeals) == 0) return fd;
  close(fd);
  if (error == -EFBIG)
    say_once("UDP sockets in place of shared memory: the file size limit (ulimit -f) is below " +
             std::to_string(memory_bytes() / 1024) + " KiB");
  return -1;
}

/// What came from another process: sealed as above, and of the right size.
bool is_good_memory(int fd) {
  struct stat st;
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
         static_cast<size_t>(st.st_size) == memory_bytes();
}

ucred credentials_of(int fd) {
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t len = sizeof peer;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
  return peer;
}

bool is_own_user(int fd) { return credentials_of(fd).uid == geteuid(); }

}  // namespace

// ---- Names ------------------------------------------------------------------------------------

socklen_t ShmEnd::name(sockaddr_un& out) const {
  out = {};
  out.sun_family = AF_UNIX;
  char* at = out.sun_path + 1;  // behind a NUL: abstract
  at += sprintf(at, "usiw-shm1-");  // 1: what this file and shm_ring.h say about memory and messages
  for (uint8_t byte : addr) at += sprintf(at, "%02x", byte);
  at += sprintf(at, "-%u", static_cast<unsigned>(__builtin_bswap16(port)));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + static_cast<size_t>(at - out.sun_path));
}

int ShmEnd::listen() const {
  sockaddr_un sa;
  socklen_t len = name(sa);
  int fd = socket(AF_UNIX, kSocketType, 0);
  if (fd < 0) return -errno;
  if (bind(fd, reinterpret_cast<sockaddr*>(&sa), len) == 0 && ::listen(fd, 64) == 0) return fd;
  const int error = errno;
  close(fd);
  return -error;
}

// ---- Life -------------------------------------------------------------------------------------

std::unique_ptr<ShmChannel> ShmChannel::connect(const ShmEnd& peer, uint32_t max_datagram) {
  sockaddr_un sa;
  socklen_t len = peer.name(sa);
  int fd = socket(AF_UNIX, kSocketType, 0);
  if (fd < 0) return nullptr;
  std::unique_ptr<ShmChannel> channel(new ShmChannel(fd, max_datagram));
  if (::connect(fd, reinterpret_cast<sockaddr*>(&sa), len) != 0 || !is_own_user(fd)) return nullptr;
  channel->connected_here_ = true;
  channel->peer_ = peer;
  channel->process_ = credentials_of(fd).pid;
  return channel;
}

bool ShmChannel::begin() {
  unsent_memory_ = make_memory();
  return unsent_memory_ >= 0 && map(unsent_memory_);
}

std::unique_ptr<ShmChannel> ShmChannel::accept(int listener, uint32_t max_datagram, int& error) {
  int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  error = fd >= 0 ? 0 : errno;
  if (fd < 0) return nullptr;
  std::unique_ptr<ShmChannel> channel(new ShmChannel(fd, max_datagram));
  if (!is_own_user(fd)) return nullptr;
  return channel;
}

ShmChannel::~ShmChannel() {
  shutdown(fd_, SHUT_RDWR);  // the peer sees the end also while a child of fork() holds the socket
  close(fd_);
  if (unsent_memory_ >= 0) close(unsent_memory_);
  if (base_ != nullptr) munmap(base_, mapped_bytes());
}

bool ShmChannel::map(int memory) {
  void* all = mmap(nullptr, mapped_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return false;
  auto* at = static_cast<std::byte*>(all);
  const size_t page = page_size();
  // With its pages: without MAP_POPULATE the first messages of a channel pay for them, a page fault in each 32.
  auto place = [&](size_t where, size_t size, size_t offset) {
    return mmap(at + where, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, memory,
                static_cast<off_t>(offset)) != MAP_FAILED;
  };
  bool good = place(0, page, 0);
  for (size_t ring = 0; ring < 2; ring++)
    for (size_t copy = 0; copy < 2; copy++)
      good = good && place(page + (2 * ring + copy) * kShmRingBytes, kShmRingBytes, page + ring * kShmRingBytes);
  if (!good) {
    munmap(all, mapped_bytes());
    return false;
  }
  madvise(all, mapped_bytes(), MADV_DONTFORK);
  base_ = at;
  auto* shared = reinterpret_cast<ShmRingShared*>(base_);
  std::byte* rings[2] = {base_ + page, base_ + page + 2 * kShmRingBytes};
  const size_t own = connected_here_ ? 0 : 1, others = 1 - own;
  writer_ = ShmWriter(shared + own, rings[own]);
  reader_ = ShmReader(shared + others, rings[others], max_);
  return true;
}

// ---- The socket ---------------------------------------------------------------------------------

bool ShmChannel::send(const ShmMessage& message) {
  ShmMessage copy = message;
  iovec vec{&copy, sizeof copy};
  msghdr msg{};
  msg.msg_iov = &vec;
  msg.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (unsent_memory_ >= 0) {
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &unsent_memory_, sizeof(int));
  }
  if (sendmsg(fd_, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof copy) return false;
  if (unsent_memory_ >= 0) close(unsent_memory_);
  unsent_memory_ = -1;
  return true;
}

void ShmChannel::wake() {
  // Should there be no room: the peer has not read what was to wake it before.
  const char one = 1;
  [[maybe_unused]] ssize_t n = ::send(fd_, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ShmChannel::Got ShmChannel::receive(ShmMessage& message) {
  iovec vec{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  msghdr msg{};
  msg.msg_iov = &vec;
  msg.msg_iovlen = 1;
  msg.msg_control = control;
  msg.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(fd_, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Got::kNothing;
  if (n < 0) return Got::kEnd;
  // Descriptors come with a message of no bytes, too.
  bool good = n != 0 && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
      good = good && !connected_here_ && base_ == nullptr && is_good_memory(fd) && map(fd);
      close(fd);
    }
  }
  if (!good) return Got::kEnd;
  if (n == 1) return Got::kWake;
  if (n != sizeof message || base_ == nullptr || message.number >= kMaxFlows) return Got::kEnd;
  if (message.kind != (connected_here_ ? ShmMessage::kFlowOk : ShmMessage::kFlow)) return Got::kEnd;
  return Got::kMessage;
}

// ---- Flows ------------------------------------------------------------------------------------

void ShmChannel::set_flow(uint32_t number, uint32_t flow) {
  flow_count_ += (flow != kNoFlow) - (flows_[number] != kNoFlow);
  flows_[number] = flow;
}

void ShmChannel::forget(uint32_t flow) {
  for (uint32_t number = 0; number < kMaxFlows; number++)
    if (flows_[number] == flow) set_flow(number, kNoFlow);
}

uint32_t ShmChannel::free_number() {
  for (uint32_t tries = 0; tries < kMaxFlows; tries++) {
    const uint32_t number = next_number_++ % kMaxFlows;
    if (flows_[number] == kNoFlow) return number;
  }
  return kNoFlow;
}

}  // namespace usiw
