// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/watcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "cm/usiw_cm.h"
#include "tools/run/conn/watch_table.h"
#include "tools/run/host/fd.h"

namespace usiw::run {
namespace {

/// Number of tries to bind to the ports of the dead process, and the pause between two tries, us. The kernel closes
/// the descriptors of a dead process one after another, so a port may stay taken for a moment.
constexpr int kTries = 100;
constexpr useconds_t kTryUs = 10'000;
/// Number of tries before the watcher shares the port (SO_REUSEPORT). Sharing is necessary if a forked child of the
/// dead process keeps the data socket open; processes of the same user can share its port. The watcher shares the port
/// in later tries only, because another process could have it as well. Until the watcher's socket is connected, that
/// socket may receive datagrams for the other process.
constexpr int kTriesAlone = 10;

/// Sends RESET from the port of the dead process. @p share: the port may be shared. Returns false if the port is taken,
/// by the dead process still or by another process. Returns true otherwise, even if nothing could be sent.
bool reset(const WatchEntry& e, bool share) {
  usiw_cm_conn cm{};
  uint8_t datagram[USIW_CM_MAX_DATAGRAM];
  cm.local_isn = e.local_isn;
  cm.peer_isn = e.peer_isn;
  cm.peer_known = 1;
  cm.tx_opcode = USIW_TRP_RESET;
  uint32_t len = usiw_cm_build(&cm, datagram);

  sockaddr_storage local, remote;
  socklen_t local_len = endpoint_to(e.ends.local, local);
  socklen_t remote_len = endpoint_to(e.ends.remote, remote);
  const Fd fd(socket(local.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return true;
  if (const int on = 1; share) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  bool bound = bind(fd, reinterpret_cast<sockaddr*>(&local), local_len) == 0;
  bool taken = !bound && errno == EADDRINUSE;
  if (bound && connect(fd, reinterpret_cast<sockaddr*>(&remote), remote_len) == 0)
    for (int copies = 0; copies < 2; copies++) send(fd, datagram, len, MSG_DONTWAIT | MSG_NOSIGNAL);
  return !taken;
}

}  // namespace

int watcher_main() {
  setsid();  // the watcher gets no signals to the group of the process
  [[maybe_unused]] int rc = chdir("/");
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(null, fd);
  close_range(kWatchMemory + 1, ~0u, 0);
  struct stat memory{};
  fstat(kWatchMemory, &memory);
  void* at = mmap(nullptr, static_cast<size_t>(memory.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, kWatchMemory, 0);
  if (at == MAP_FAILED) return 1;
  pollfd end{kWatchSocket, POLLIN, 0};
  while (poll(&end, 1, -1) < 0 && errno == EINTR) {
  }
  const std::span table(static_cast<WatchEntry*>(at), static_cast<size_t>(memory.st_size) / sizeof(WatchEntry));
  for (int tries = 0; tries < kTries; tries++) {
    bool again = false;
    for (WatchEntry& e : table) {
      if (e.live.load(std::memory_order_acquire) == 0) continue;
      if (reset(e, tries >= kTriesAlone))
        e.live.store(0, std::memory_order_relaxed);
      else
        again = true;
    }
    if (!again) break;
    usleep(kTryUs);
  }
  return 0;
}

}  // namespace usiw::run
