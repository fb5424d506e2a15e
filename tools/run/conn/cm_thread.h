// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_thread.h
/// The thread of the emulated kernel. A program calls librdmacm only now and then, but handshakes, timeouts and changes
/// of routes do not wait for its calls. So this thread sleeps in epoll_wait(2) until a watched descriptor is readable
/// or a timer is due. Then it takes the big lock and calls the function that belongs to the descriptor or the timer.
///
/// The owners of the watches and timers define those functions: sockets, connections, admissions and others. The thread
/// ends when no watch of the kind kKeepsThread is left. Otherwise a thread without work would keep a process alive
/// whose other threads have all ended.
#ifndef USIW_RUN_CM_THREAD_H
#define USIW_RUN_CM_THREAD_H

#include <cstdint>
#include <functional>
#include <utility>

namespace usiw::run {

/// [big lock] Starts the thread if it does not run. Returns 0 or -errno.
int cm_thread_start();
/// [big lock] In a child of fork(): forgets the thread, its watches and its timers.
void cm_thread_abandon();

/// A watch of a descriptor. The thread calls a function while the descriptor is readable or has an error.
class CmWatch {
 public:
  /// The thread runs at least as long as a watch of the kind kKeepsThread exists.
  enum Kind { kKeepsThread, kKeepsNothing };

  CmWatch() = default;
  CmWatch(const CmWatch&) = delete;
  ~CmWatch() { stop(); }
  /// [big lock] Starts to watch @p fd. @p ready gets the events of epoll(7). Call cm_thread_start() before. Returns 0
  /// or -errno.
  int start(int fd, Kind kind, std::function<void(uint32_t events)> ready);
  /// [big lock] Ends the watch. Call it before the descriptor is closed.
  void stop();

 private:
  uint64_t serial_ = 0;  ///< 0: no watch
};

/// A timer. The thread calls the function of the timer once, at the time that was passed to the latest set().
class CmTimer {
 public:
  explicit CmTimer(std::function<void()> run) : run_(std::move(run)) {}
  CmTimer(const CmTimer&) = delete;
  ~CmTimer() { set(0); }
  /// [big lock] Sets the time of the call to @p at_us, in the time of now_us(). 0 stops the timer.
  void set(uint64_t at_us);
  uint64_t at_us() const { return at_us_; }
  /// [big lock, cm thread] Calls the functions of all timers that are due.
  static void run_due();
  /// [big lock] In a child of fork(): stops all timers.
  static void abandon_all();

 private:
  const std::function<void()> run_;
  uint64_t at_us_ = 0;
};

}  // namespace usiw::run

#endif  // USIW_RUN_CM_THREAD_H
