// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/cm_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/quiet_thread.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/port_events.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/host/clock.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

int g_epoll = -1, g_wake = -1;
bool g_running = false;

int timeout_ms() {
  uint64_t at = conn_next_deadline_us(), now = now_us();
  for (uint64_t other : {packets_next_deadline_us(), admissions_next_deadline_us()})
    if (other != 0 && (at == 0 || other < at)) at = other;
  if (at == 0) return -1;
  return at <= now ? 0 : static_cast<int>((at - now) / 1000 + 1);
}

void forget() {
  if (g_epoll >= 0) USIW_REAL(close)(g_epoll);
  if (g_wake >= 0) USIW_REAL(close)(g_wake);
  port_events_close();
  g_epoll = g_wake = -1;
  g_running = false;
}

void* cm_thread_main(void*) {
  pthread_setname_np(pthread_self(), "usiw-cm");
  int wait = 0;
  for (;;) {
    epoll_event events[32];
    int n = epoll_wait(g_epoll, events, 32, wait);
    HoldBigLock hold;
    for (int i = 0; i < n; i++) {
      uint64_t value;
      if (events[i].data.u64 == 0)
        [[maybe_unused]] ssize_t got = USIW_REAL(read)(g_wake, &value, sizeof value);
      else if (events[i].data.u64 == kCmThreadRoutes)
        packets_ready();
      else if (events[i].data.u64 == kCmThreadLinks)
        port_events_ready();
      else
        UdpSocket::ready(events[i].data.u64, events[i].events);
    }
    conn_run_timers();
    admissions_run();
    packets_run_timers();
    wait = timeout_ms();
    // A thread that is there for nothing would keep a process whose others have all ended. (Connections have sockets:
    // with the last of these go the deadlines, too.)
    if (!sockets_open()) {
      forget();
      break;
    }
  }
  return nullptr;
}

int start_cm_thread() {
  g_epoll = fd_out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
  g_wake = fd_out_of_the_way(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  pthread_t id;
  int error = 0;
  if (g_epoll < 0 || g_wake < 0)
    error = -EMFILE;
  else if (epoll_ctl(g_epoll, EPOLL_CTL_ADD, g_wake, &event) != 0)
    error = -errno;
  else
    error = -start_quiet_thread(id, cm_thread_main, nullptr);
  if (error != 0) {
    forget();
    return error;
  }
  pthread_detach(id);
  g_running = true;
  // Without them all else goes on.
  if (const int links = port_events_open(); links >= 0 && cm_thread_watch(links, kCmThreadLinks) != 0)
    port_events_close();
  return 0;
}

}  // namespace

int cm_thread_start() { return g_running ? 0 : start_cm_thread(); }

int cm_thread_watch(int fd, uint64_t serial) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = serial}};
  return epoll_ctl(g_epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

void cm_thread_kick() {
  if (!g_running) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = USIW_REAL(write)(g_wake, &one, sizeof one);
}

void cm_thread_abandon() { forget(); }

}  // namespace usiw::run
