// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file file.h
/// Device files of the program. Each is a real descriptor of the kernel's (an eventfd or a
/// memfd), so that poll(2), epoll, fcntl(2), mmap(2), dup(2) and close-on-exec are the kernel's
/// own; what read, write and ioctl do on it is decided here.
#ifndef USIW_RUN_FILE_H
#define USIW_RUN_FILE_H

#include <sys/types.h>

#include <cstddef>
#include <memory>

namespace usiw::run {

/// An open file (in the sense of open(2): dup'ed descriptors share it). Calls return what the
/// system call would, with -errno for an error.
class File {
 public:
  virtual ~File() = default;
  virtual ssize_t read(int fd, void* buf, size_t count);
  virtual ssize_t write(int fd, const void* buf, size_t count);
  virtual int ioctl(int fd, unsigned long request, void* arg);
  /// The last descriptor is closed. Called once, without the big lock.
  virtual void closed() {}
  /// A character device to fstat(2), with this number; 0: what the descriptor is.
  virtual dev_t device() const { return 0; }
};

/// Makes @p fd (which the caller owns) a descriptor of @p file. False, with nothing changed, if
/// the number is beyond what can be kept track of.
bool file_install(int fd, std::shared_ptr<File> file);
/// The file of @p fd, or null: one load for a descriptor that is none of ours.
std::shared_ptr<File> file_of(int fd);
/// @p to is a duplicate of @p from now (which may be none of ours).
void file_dup(int from, int to);
/// @p fd is about to be closed, or is about to be replaced.
void file_forget(int fd);
/// Closes one of ours.
void file_close(int fd);
void files_forget_range(unsigned first, unsigned last);
/// [big lock] Around fork(). A thread that holds this lock does not take the big lock.
void files_lock();
void files_unlock();
/// In a child of fork(), locked: the files are the parent's. Their descriptors stay open.
void files_abandon();

/// A descriptor for the library's own use: close-on-exec, and above those that the program gets,
/// so that it does not see its own numbers change. Takes @p fd; -errno if it is negative.
int fd_out_of_the_way(int fd);

}  // namespace usiw::run

#endif  // USIW_RUN_FILE_H
