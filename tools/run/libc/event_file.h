// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file event_file.h
/// A file that is read: an eventfd whose readiness says whether something waits, and a way for
/// threads to wait for it as in a blocking read(2).
#ifndef USIW_RUN_EVENT_FILE_H
#define USIW_RUN_EVENT_FILE_H

#include <atomic>
#include <functional>
#include <memory>

#include "tools/run/libc/borrowed.h"
#include "tools/run/libc/file.h"

namespace usiw::run {

class EventFile : public File {
 public:
  /// [big lock] Makes the descriptor of @p file, before anything is to be read: O_CLOEXEC always. The program's fd or
  /// -errno.
  static int open(const std::shared_ptr<EventFile>& file);
  ~EventFile() override;
  /// [big lock] Wakes who waits, as if something had come.
  void look_again();
  /// [big lock] A thread that has driven for this file leaves: what it has not taken is for others.
  void show_rest() {
    if (readable_ && !shown_) show();
  }

 protected:
  EventFile() = default;
  /// Threads that wait drive @p engine meanwhile, if they can.
  explicit EventFile(std::shared_ptr<BorrowedEngine> engine) : engine_(std::move(engine)) {}
  /// [big lock] Sets whether there is something to read. If there is, wakes the threads that wait for it.
  void set_readable(bool readable);
  /// Runs @p take under the lock until it does not answer -EAGAIN, waiting in between unless the
  /// descriptor is non-blocking. A signal ends the wait as it ends a read(2): -EINTR, or, for a
  /// handler with SA_RESTART, not at all.
  ssize_t wait_for(const std::function<ssize_t()>& take);

 private:
  void show();
  bool sleep(uint32_t seen);
  bool wait(BorrowedEngine::Use& engine, uint32_t seen);

  const std::shared_ptr<BorrowedEngine> engine_;  ///< or null
  int own_fd_ = -1;  ///< the same eventfd, kept while the file lives
  bool readable_ = false;
  bool shown_ = false;  ///< ... by the eventfd, too
  std::atomic<uint32_t> sleepers_{0};  ///< threads that wait for the next one by futex; at times one too many
  std::atomic<uint32_t> changes_{0};  ///< futex; seq_cst, as who drives the engine wants it
};

}  // namespace usiw::run

#endif  // USIW_RUN_EVENT_FILE_H
