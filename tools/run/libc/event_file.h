// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file event_file.h
/// A file from which the program reads events. Its descriptor is an eventfd, so that poll(2) and epoll(7) work. The
/// eventfd is readable while an event waits, unless the thread that added the event is about to take it itself. A call
/// takes the event under the big lock: read(2), or a command of rdma_cm by write(2). A thread that has to wait sleeps
/// on a futex without the lock, or drives the lent engine meanwhile.
#ifndef USIW_RUN_EVENT_FILE_H
#define USIW_RUN_EVENT_FILE_H

#include <atomic>
#include <functional>
#include <memory>

#include "tools/run/libc/file.h"
#include "tools/run/libc/lent_engine.h"

namespace usiw::run {

class EventFile : public File, private LentEngine::Waiter {
 public:
  /// [big lock] Makes a descriptor of @p file for the program, always with O_CLOEXEC. Call it before the first event.
  /// Returns the descriptor or -errno.
  static int open(const std::shared_ptr<EventFile>& file);
  ~EventFile() override;

 protected:
  EventFile() = default;
  /// Makes a file whose waiting threads drive @p engine, if the provider has lent it and if the threads can.
  explicit EventFile(std::shared_ptr<LentEngine> engine) : engine_(std::move(engine)) {}
  /// [big lock] Sets whether there is an event to read. If there is, wakes the threads that wait for it.
  void set_readable(bool readable);
  /// Calls @p take under the big lock until the result is not -EAGAIN, and returns that result. Between two calls the
  /// thread waits. If the descriptor is non-blocking, returns -EAGAIN instead. A signal ends the wait as it ends a
  /// read(2): with -EINTR, or not at all if its handler has SA_RESTART.
  ssize_t wait_for(const std::function<ssize_t()>& take);

 private:
  void wake() override;
  void show_rest() override {
    if (readable_ && !shown_) show();
  }
  void show();
  bool sleep(uint32_t seen);
  bool wait(LentEngine::Use& engine, uint32_t seen);

  const std::shared_ptr<LentEngine> engine_;  ///< or null
  Fd own_fd_;                                 ///< another descriptor of the eventfd, open as long as this object exists
  bool readable_ = false;
  bool shown_ = false;                 ///< the eventfd is readable too
  std::atomic<uint32_t> sleepers_{0};  ///< at least the number of threads that wait by futex
  std::atomic<uint32_t> changes_{0};   ///< futex; seq_cst, because drive_until() of the engine needs that
};

}  // namespace usiw::run

#endif  // USIW_RUN_EVENT_FILE_H
