// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file random_bytes.h
/// Random bytes that nobody can guess, also where getrandom(2) is forbidden.
#ifndef USIW_BASE_RANDOM_BYTES_H
#define USIW_BASE_RANDOM_BYTES_H

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace usiw {

/// A seccomp profile may forbid getrandom(2), and then says so at once; /dev/urandom gives the same bytes. False: there
/// is neither.
inline bool random_bytes(void* out, size_t size) {
  ssize_t got;
  while ((got = getrandom(out, size, 0)) < 0 && errno == EINTR) {
  }
  if (got == static_cast<ssize_t>(size)) return true;
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  got = read(fd, out, size);
  close(fd);
  return got == static_cast<ssize_t>(size);
}

}  // namespace usiw

#endif  // USIW_BASE_RANDOM_BYTES_H
