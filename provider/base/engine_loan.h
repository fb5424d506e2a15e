// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_loan.h
/// Between the provider and libusiw-run.so, which plays the kernel in the same process: a thread that blocks there
/// until a completion event comes may drive the provider's engine while it waits, and raises that event itself. The
/// real kernel cannot let it.
#ifndef USIW_BASE_ENGINE_LOAN_H
#define USIW_BASE_ENGINE_LOAN_H

#include <atomic>
#include <cstdint>

extern "C" {

/// The engine of a context, for who blocks. Belongs to the provider.
struct usiw_engine_loan {
  void* engine;
  void* borrower;  ///< libusiw-run.so's
  /// A thread is going to block from begin() to end(), whichever way it waits. Neither waits.
  void (*begin)(void* engine);
  void (*end)(void* engine);
  /// Drives until @p word is not @p seen any more: 0. EAGAIN: the thread must wait in another way. EINTR: a signal
  /// handler has run. A cancellation point: where the thread is unwound from, nothing is held.
  int (*drive_until)(void* engine, const std::atomic<uint32_t>* word, uint32_t seen);
  /// @p word has changed. Does not wait.
  void (*changed)(void* engine, const std::atomic<uint32_t>* word);
};

/// All are libusiw-run.so's; where it is not loaded they are null. @p loan lives until it is taken back. False: not
/// wanted, and nothing is to be taken back.
[[gnu::weak, gnu::visibility("default")]] bool usiw_run_lend(int cmd_fd, usiw_engine_loan* loan);
/// When it returns no thread is in the engine by way of @p loan, nor will be.
[[gnu::weak, gnu::visibility("default")]] void usiw_run_take_back(usiw_engine_loan* loan);

/// As USIW_METHOD_CQ_EVENT, which costs more than all else that a completion event needs here. 0 or an errno value.
[[gnu::weak, gnu::visibility("default")]] int usiw_run_cq_event(int cmd_fd, uint32_t cq_handle, uint32_t kind);

}  // extern "C"

#endif  // USIW_BASE_ENGINE_LOAN_H
