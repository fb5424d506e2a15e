// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/cm_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "base/quiet_thread.h"
#include "tools/run/conn/port_events.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

struct Watched {
  int fd;
  bool keeps_thread;
  std::function<void(uint32_t events)> ready;
};

struct CmThread {
  Fd epoll, wake;
  bool running = false;
  pthread_t id{};
  uint64_t last_serial = 0;
  std::map<uint64_t, Watched> watched;  ///< the key is the serial number that epoll returns
  std::set<std::pair<uint64_t, CmTimer*>> timers;
  CmWatch waking, links;

  bool is_needed() const {
    return std::any_of(watched.begin(), watched.end(), [](const auto& w) { return w.second.keeps_thread; });
  }
  /// Returns the time at which the next timer is due, us; 0 if no timer is set.
  uint64_t next_us() const { return timers.empty() ? 0 : timers.begin()->first; }
};

CmThread& cm_thread() { return never_destroyed<CmThread>(); }

/// Wakes the thread, so that it reads the timers and watches again. Does nothing if the thread itself is the caller,
/// because the thread reads timers and watches before it sleeps.
void wake_cm_thread() {
  const CmThread& t = cm_thread();
  if (!t.running || pthread_equal(t.id, pthread_self()) != 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = USIW_REAL(write)(t.wake, &one, sizeof one);
}

void reset_cm_thread() {
  CmThread& t = cm_thread();
  t.watched.clear();
  port_events_close();
  t.epoll = {};
  t.wake = {};
  t.running = false;
}

int timeout_ms() {
  const uint64_t at = cm_thread().next_us(), now = now_us();
  if (at == 0) return -1;
  return at <= now ? 0 : static_cast<int>((at - now) / 1000 + 1);
}

void* cm_thread_main(void*) {
  pthread_setname_np(pthread_self(), "usiw-cm");
  CmThread& t = cm_thread();
  for (int wait = 0;;) {
    epoll_event events[32];
    const int n = epoll_wait(t.epoll, events, 32, wait);
    HoldBigLock hold;
    for (int i = 0; i < n; i++) {
      const auto it = t.watched.find(events[i].data.u64);
      if (it == t.watched.end()) continue;
      const auto ready = it->second.ready;  // a copy, because the call may stop the watch
      ready(events[i].events);
    }
    CmTimer::run_due();
    if (!t.is_needed()) {
      reset_cm_thread();
      return nullptr;
    }
    wait = timeout_ms();
  }
}

int start_cm_thread() {
  CmThread& t = cm_thread();
  t.epoll = out_of_the_way(Fd(epoll_create1(EPOLL_CLOEXEC)));
  t.wake = out_of_the_way(Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (t.epoll < 0 || t.wake < 0) return -EMFILE;
  const auto woken = [](uint32_t) {
    uint64_t value;
    [[maybe_unused]] ssize_t got = USIW_REAL(read)(cm_thread().wake, &value, sizeof value);
  };
  if (const int error = t.waking.start(t.wake, CmWatch::kKeepsNothing, woken); error != 0) return error;
  if (const int error = start_quiet_thread(t.id, cm_thread_main, nullptr); error != 0) return -error;
  pthread_detach(t.id);
  t.running = true;
  // Ignore a failure to open or watch the socket for port events. The program then only lacks those events.
  const auto links_changed = [](uint32_t) { port_events_ready(); };
  if (const int fd = port_events_open(); fd >= 0 && t.links.start(fd, CmWatch::kKeepsNothing, links_changed) != 0)
    port_events_close();
  return 0;
}

}  // namespace

int cm_thread_start() {
  if (cm_thread().running) return 0;
  const int error = start_cm_thread();
  if (error != 0) reset_cm_thread();
  return error;
}

void cm_thread_abandon() {
  CmTimer::abandon_all();
  reset_cm_thread();
}

int CmWatch::start(int fd, Kind kind, std::function<void(uint32_t events)> ready) {
  CmThread& t = cm_thread();
  epoll_event event{.events = EPOLLIN, .data = {.u64 = ++t.last_serial}};
  if (epoll_ctl(t.epoll, EPOLL_CTL_ADD, fd, &event) != 0) return -errno;
  serial_ = t.last_serial;
  t.watched[serial_] = {fd, kind == kKeepsThread, std::move(ready)};
  return 0;
}

void CmWatch::stop() {
  if (serial_ == 0) return;
  CmThread& t = cm_thread();
  if (const auto it = t.watched.find(serial_); it != t.watched.end()) {
    epoll_ctl(t.epoll, EPOLL_CTL_DEL, it->second.fd, nullptr);
    t.watched.erase(it);
    if (!t.is_needed()) wake_cm_thread();
  }
  serial_ = 0;
}

void CmTimer::set(uint64_t at_us) {
  if (at_us == at_us_) return;
  CmThread& t = cm_thread();
  const uint64_t before = t.next_us();
  if (at_us_ != 0) t.timers.erase({at_us_, this});
  at_us_ = at_us;
  if (at_us != 0) t.timers.insert({at_us, this});
  if (at_us != 0 && (before == 0 || at_us < before)) wake_cm_thread();
}

void CmTimer::run_due() {
  CmThread& t = cm_thread();
  const uint64_t now = now_us();
  while (!t.timers.empty() && t.next_us() <= now) {
    CmTimer& timer = *t.timers.begin()->second;
    const auto run = timer.run_;  // a copy, because the call may destroy the timer
    t.timers.erase(t.timers.begin());
    timer.at_us_ = 0;
    run();
  }
}

void CmTimer::abandon_all() {
  auto& timers = cm_thread().timers;
  for (const auto& [at_us, timer] : timers) timer->at_us_ = 0;
  timers.clear();
}

}  // namespace usiw::run
