// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file netdev_guard.cc
/// What DPDK's af_packet driver must not do to a netdev that stays the kernel's, and to a
/// thread that must not sleep. The provider is linked with --wrap for these functions,
/// so that every call from DPDK's archives comes through here:
///  - starting a port writes the MAC address back and clears IFF_PROMISC: every listener of
///    the netdev would see an address change (and lo refuses it);
///  - its transmit function sleeps in poll(POLLOUT) without a limit while the ring is full;
///  - it joins a PACKET_FANOUT group named (pid ^ ifindex) even with one queue: two ports on
///    one netdev, or two processes whose numbers fall together, would share the datagrams out
///    between them, or one could not be made;
///  - it maps its rings MAP_LOCKED, for which RLIMIT_MEMLOCK has no room where there is no
///    CAP_IPC_LOCK. They are the kernel's pages, which stay in memory anyway;
///  - it makes sockets by libc's function, before which a preloaded library may stand that means the program's:
///    librspreload made an rsocket of the one by which the driver asks for a netdev's flags, and closing that waited
///    for ever. The call is the kernel's here, and such a library does not know the descriptor.
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

extern "C" {

int __real_ioctl(int fd, unsigned long request, ...);
int __real_poll(pollfd* fds, nfds_t count, int timeout_ms);
int __real_setsockopt(int fd, int level, int name, const void* value, socklen_t len);
void* __real_mmap64(void* at, size_t size, int prot, int flags, int fd, off64_t offset);

int __wrap_ioctl(int fd, unsigned long request, ...) {
  va_list args;
  va_start(args, request);
  void* arg = va_arg(args, void*);
  va_end(args);
  switch (request) {
    case SIOCSIFHWADDR:
    case SIOCSIFFLAGS:
    case SIOCSIFMTU:
      return 0;
    default:
      return __real_ioctl(fd, request, arg);
  }
}

int __wrap_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  return __real_poll(fds, count, timeout_ms < 0 ? 0 : timeout_ms);
}

int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t len) {
  if (level == SOL_PACKET && name == PACKET_FANOUT) return 0;
  return __real_setsockopt(fd, level, name, value, len);
}

int __wrap_socket(int family, int type, int protocol) {
  return static_cast<int>(syscall(SYS_socket, family, type, protocol));
}

void* __wrap_mmap64(void* at, size_t size, int prot, int flags, int fd, off64_t offset) {
  if (fd >= 0) flags &= ~MAP_LOCKED;
  return __real_mmap64(at, size, prot, flags, fd, offset);
}

}  // extern "C"
