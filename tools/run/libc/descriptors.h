// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file descriptors.h
/// A program that has used up its descriptors must still get the ones that the library makes for it. Connections in
/// LINGER hold sockets that may be closed at any time (conn/udp_socket.h), so these are closed before a call fails.
#ifndef USIW_RUN_DESCRIPTORS_H
#define USIW_RUN_DESCRIPTORS_H

#include <cerrno>

namespace usiw::run {

/// [big lock] Closes descriptors that the library does not need. Returns false if there was none. Null until conn/ has
/// set it.
inline bool (*close_spare_descriptors)() = nullptr;

/// [big lock] Returns what @p make returns: a descriptor, or -1 with errno. If no descriptor is left, closes the spare
/// ones and calls @p make once more.
template <typename Make>
int with_descriptors(Make make) {
  const int fd = make();
  if (fd >= 0 || (errno != EMFILE && errno != ENFILE)) return fd;
  return close_spare_descriptors != nullptr && close_spare_descriptors() ? make() : fd;
}

}  // namespace usiw::run

#endif  // USIW_RUN_DESCRIPTORS_H
