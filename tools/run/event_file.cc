// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "event_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "real.h"

namespace usiw::run {
namespace {

long futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value, nullptr,
                 nullptr, 0);
}

/// Waits while @p word has @p value; false if a signal has ended that. Without a time-out the kernel restarts it behind
/// handlers with SA_RESTART, as it does read(2). The thread may be cancelled here, at any instruction: so this is a frame
/// of its own, in which nothing needs to be undone.
[[gnu::noinline]] bool futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  int type;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  const bool interrupted = futex(word, FUTEX_WAIT, value) != 0 && errno == EINTR;
  pthread_setcanceltype(type, nullptr);
  return !interrupted;
}

}  // namespace

int EventFile::open(const std::shared_ptr<EventFile>& file) {
  int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return -errno;
  int own = USIW_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0);
  own = fd_out_of_the_way(own);
  if (own < 0 || !file_install(fd, file)) {
    USIW_REAL(close)(fd);
    if (own >= 0) USIW_REAL(close)(own);
    return -EMFILE;
  }
  World hold(world());
  file->own_fd_ = own;
  if (file->readable_) {  // something came before there was a descriptor
    file->readable_ = false;
    file->set_readable(true);
  }
  return fd;
}

EventFile::~EventFile() {
  NoCancel no_cancel;
  if (own_fd_ >= 0) USIW_REAL(close)(own_fd_);
}

void EventFile::set_readable(bool readable) {
  if (readable) {
    changes_.fetch_add(1, std::memory_order_release);
    futex(changes_, FUTEX_WAKE, INT_MAX);
  }
  if (readable == readable_) return;
  readable_ = readable;
  if (own_fd_ < 0) return;
  uint64_t value = 1;  // the counter is 0 or 1, so neither call can block
  if (readable)
    [[maybe_unused]] ssize_t n = USIW_REAL(write)(own_fd_, &value, sizeof value);
  else
    [[maybe_unused]] ssize_t n = USIW_REAL(read)(own_fd_, &value, sizeof value);
}

ssize_t EventFile::wait_for(const std::function<ssize_t()>& take) {
  for (;;) {
    uint32_t seen;
    {
      World hold(world());
      ssize_t n = take();
      if (n != -EAGAIN) return n;
      seen = changes_.load(std::memory_order_acquire);
    }
    // The program's descriptor may be closed by another thread meanwhile, which does not end a read.
    int flags = USIW_REAL(fcntl)(own_fd_, F_GETFL);
    if ((flags & O_NONBLOCK) != 0) return -EAGAIN;
    if (!futex_wait(changes_, seen)) return -EINTR;
  }
}

}  // namespace usiw::run
