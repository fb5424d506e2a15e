// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file file.h
/// Device files of the program. Each is a real descriptor of the kernel, an eventfd or a memfd. So poll(2), epoll(7),
/// fcntl(2), mmap(2), dup(2) and close-on-exec are the kernel's own. Only read, write and ioctl are done here.
#ifndef USIW_RUN_FILE_H
#define USIW_RUN_FILE_H

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <memory>

#include "tools/run/host/fd.h"

namespace usiw::run {

/// An open file, which dup'ed descriptors share, as after open(2). Calls return the result of the system call, with
/// -errno for an error.
class File {
 public:
  virtual ~File() = default;
  virtual ssize_t read(int, void*, size_t) { return -EINVAL; }
  virtual ssize_t write(int, const void*, size_t) { return -EINVAL; }
  virtual int ioctl(int, unsigned long, void*) { return -ENOTTY; }
  /// The last descriptor has been closed. Called once, without the big lock.
  virtual void closed() {}
  /// Returns the number of the character device that fstat(2) shows, or 0 if it shows the descriptor as it is.
  virtual dev_t device() const { return 0; }
};

/// Makes @p fd, which the caller owns, a descriptor of @p file. Returns false and changes nothing if the number is
/// higher than the table can have.
bool file_install(int fd, std::shared_ptr<File> file);
/// Returns the file of @p fd, or null. For a descriptor of the program's own this costs one load.
std::shared_ptr<File> file_of(int fd);
/// Notes that @p to is a duplicate of @p from now, which may be a descriptor of the program's own.
void file_dup(int from, int to);
/// Forgets @p fd, which is about to be closed or replaced.
void file_forget(int fd);
/// Closes a descriptor of this library.
void file_close(int fd);
void files_forget_range(unsigned first, unsigned last);
/// [big lock] Around fork(). A thread that holds this lock does not take the big lock.
void files_lock();
void files_unlock();
/// In a child of fork(), locked: forgets the files, which are the parent's. Their descriptors stay open.
void files_abandon();

// ---- Descriptors of the library's own ----

/// Moves a descriptor for the library's own use above those that the program gets, so that the program does not see its
/// own numbers change. The new one is close-on-exec. errno stays as it is.
Fd out_of_the_way(Fd fd);

/// [big lock] Closes descriptors that the library does not need: sockets that only connections in LINGER hold
/// (conn/udp_socket.h). Returns false if there was none. Null until conn/ has set it.
inline bool (*close_spare_descriptors)() = nullptr;

/// [big lock] Returns what @p make returns: a descriptor, or -1 with errno. A program that has used up its descriptors
/// must still get those that the library makes for it. So if none is left, closes the spare ones and calls @p make once
/// more.
template <typename Make>
int with_descriptors(Make make) {
  const int fd = make();
  if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
  return close_spare_descriptors != nullptr && close_spare_descriptors() ? make() : fd;
}

}  // namespace usiw::run

#endif  // USIW_RUN_FILE_H
