// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file file.h
/// The device files that usiw-run emulates for the program. The descriptor of each is a real one, of an eventfd or a
/// memfd. So poll(2), epoll(7), fcntl(2), mmap(2), dup(2) and close-on-exec are those of the kernel. This library only
/// handles read, write and ioctl, changes the result of fstat, and follows the calls that duplicate or close a
/// descriptor.
#ifndef USIW_RUN_FILE_H
#define USIW_RUN_FILE_H

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <memory>

#include "tools/run/host/fd.h"

namespace usiw::run {

/// An open file, which duplicated descriptors share, as after open(2). read(), write() and ioctl() return the result of
/// the system call, or -errno.
class File {
 public:
  virtual ~File() = default;
  virtual ssize_t read(int, void*, size_t) { return -EINVAL; }
  virtual ssize_t write(int, const void*, size_t) { return -EINVAL; }
  virtual int ioctl(int, unsigned long, void*) { return -ENOTTY; }
  /// Handles the close of the last descriptor. Called once. An override may take the big lock.
  virtual void closed() {}
  /// Returns the device number that fstat(2) shows, with the type of a character device. 0: fstat(2) is not changed.
  virtual dev_t device() const { return 0; }
};

/// Makes @p fd, which the caller owns, a descriptor of @p file. Returns false and changes nothing if the number is
/// negative or too high for the table.
bool file_install(int fd, std::shared_ptr<File> file);
/// Returns the file of @p fd, or null if @p fd has none. In that case the call costs one load.
std::shared_ptr<File> file_of(int fd);
/// Makes @p to a descriptor of the file of @p from, because the program has duplicated @p from. Does nothing if @p from
/// has no file.
void file_dup(int from, int to);
/// Removes @p fd from the table, because it is about to be closed or replaced. Calls closed() if @p fd was the last
/// descriptor of its file, so the caller must not hold the big lock if that closed() takes it. Does nothing if @p fd
/// has no file.
void file_forget(int fd);
/// Calls file_forget(), then closes @p fd.
void file_close(int fd);
/// Calls file_forget() for the descriptors from @p first to @p last.
void files_forget_range(unsigned first, unsigned last);
/// [big lock] Lock and unlock the table, around fork(). A thread that holds this lock does not take the big lock.
void files_lock();
void files_unlock();
/// In a child of fork(), with files_lock() held: forgets the parent's files. Their descriptors stay open.
void files_abandon();

// ---- Descriptors of the library's own ----

/// [big lock] The lowest number that out_of_the_way() returns, or 0 for that of its own choice (raised_file_limit.h).
inline int least_own_descriptor = 0;

/// Moves a descriptor of the library to a high number, so that the program gets the same low numbers as without the
/// library. Returns the new descriptor, which is close-on-exec, or @p fd if no high number is free. Does not change
/// errno.
Fd out_of_the_way(Fd fd);

/// [big lock] Closes descriptors that the library can do without: sockets whose connections are all in LINGER
/// (conn/udp_socket.h). Returns false if there was none. Null until conn/ has set it.
inline bool (*close_spare_descriptors)() = nullptr;

/// [big lock] Calls @p make, and returns its result: a descriptor, or -1 with errno. If the process has no descriptors
/// left, closes those that the library can do without, and calls @p make once more.
template <typename Make>
int with_descriptors(Make make) {
  const int fd = make();
  if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
  return close_spare_descriptors != nullptr && close_spare_descriptors() ? make() : fd;
}

}  // namespace usiw::run

#endif  // USIW_RUN_FILE_H
