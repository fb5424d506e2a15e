// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file progress.h
/// Who drives the engine. The engine is single-threaded; the right to call it is a token
/// that application threads and one progress thread take in turns:
///
///  - an application thread drives inline, right after posting and whenever it finds a
///    completion queue empty: a ping-pong then needs one core;
///  - a thread that blocks until a completion event comes drives while it waits, if it can
///    say so (drive_until(): of usiw-run): a packet then wakes the thread that it is for;
///  - the progress thread drives when nobody else does, and sleeps when there is nothing
///    to do.
///
/// States of the progress thread
///  POLLING   there was work within the last kPollWindowNs, yielding returns promptly, and no
///            application thread that polls needs the core.
///  STANDBY   an application thread has been driving without a gap for kStreakNs: the thread
///            leaves it alone and looks every 1 to 4 ms whether it still does.
///  SLEEPING  nothing to do: poll(2) on control fds, the ports' packet sockets and the
///            doorbell, until the engine's next deadline (for ever when it has none).
///            Woken by packets while somebody else holds the engine, it naps without
///            looking at them: the holder may be the very thread that it has preempted.
///  BEHIND    a blocked thread drives, or has just left and will be back: the thread leaves it the
///            packets and looks every 1 to 4 ms. When the other one has left and not come back
///            for a whole nap, or has not run for 50 ms, or somebody rings, it goes on as before.
///
/// A blocked thread drives if it is the only one that blocks: of several the one that has an
/// event leaves the others alone, so they are the progress thread's. No packet depends on it:
///  - BEHIND, the progress thread drives at each look that finds the blocked thread idle or gone;
///  - SLEEPING, it watches the packets, too, whoever blocks. Woken by them it lets the blocked
///    thread have them, and takes them itself if they are still there 0.1 ms later.
/// So a blocked thread that was stopped, or that a signal handler has jumped away with, costs naps.
/// One that left and let packets wait (it computes between two events) is not trusted for a while.
/// With no traffic both sleep until the engine's next deadline.
///
/// No lost wake-up. Posting: write the ring, then try the token; failing that, count a
/// "kick" and try again. Whoever releases the token looks at the kicks afterwards and drives
/// once more if they moved since its last run began. The failed second try read the token
/// as taken, so it precedes that release, and the kick precedes the try (all of it
/// seq_cst): the holder sees the kick. Going to sleep: the thread first announces SLEEPING
/// and the time it will wake, then drives once more; whoever drives after that compares
/// the engine's deadline with the announced time and rings the doorbell if it is too late.
/// A blocked thread announces the time it will wake in the same way (blocked_until_), and drives
/// after that; while the progress thread is BEHIND, whoever drives compares with this time, and
/// rings the blocked thread. What it waits for is a word in memory: it says that it is about to
/// poll(2), then looks at the word; who changes that looks afterwards whether it polls (both
/// seq_cst). When it leaves while the progress thread is SLEEPING it compares deadlines once more;
/// while that is BEHIND, what is due waits for the next look, 5 ms at most.
#ifndef USIW_PROGRESS_PROGRESS_H
#define USIW_PROGRESS_PROGRESS_H

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <vector>

#include "base/lock_rank.h"
#include "base/quiet_thread.h"
#include "engine/port.h"

namespace usiw {

/// What Progress drives: the engine, as a rule.
class EngineDriver {
 public:
  virtual ~EngineDriver() = default;
  /// [token held] One run; returns the units of work done.
  virtual unsigned drive() = 0;
  /// [token held] When drive() must run again, ns; UINT64_MAX for never.
  virtual uint64_t next_deadline_ns() = 0;
  /// [token not held] After every release: act on what the engine has reported.
  virtual void released() = 0;
  /// [token held] The thread is about to sleep on what it watches: what arrives from now on must end
  /// that. False: something has arrived already.
  virtual bool arm() { return true; }
};

/// Waits for a file descriptor in the progress thread; for a port's also in a thread that blocks.
class Watcher {
 public:
  virtual ~Watcher() = default;
  /// [token not held; of a port's descriptors two threads may call it at once] @p revents as of poll(2). False: do not
  /// watch any more.
  virtual bool ready(int fd, short revents) = 0;
};

class Progress {
 public:
  enum class Mode {
    kAdaptive,
    kThread,  ///< the thread polls always and alone
  };
  /// From USIW_PROGRESS=adaptive|thread; an unknown value gets a line on stderr.
  static Mode mode_from_environment();

  Progress(EngineDriver& driven, Clock& clock, Mode mode);
  /// Stops the thread.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts the thread unless it runs. It blocks every signal. 0 or an errno value.
  int start();

  /// Holds the engine for a control call. Thread cancellation is off meanwhile.
  class Hold {
   public:
    explicit Hold(Progress& p);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    NoCancel no_cancel_;  // outlives the hold
    Progress& progress_;
  };

  /// [any thread] Work was made visible in a ring: drive it now, or make sure that whoever
  /// holds the engine does.
  void posted();
  /// [any thread] Work was made visible in a ring behind other work, which has not completed: the run of the engine
  /// that completes that takes the new work along. Only if the other work is found not to be complete after this call:
  /// else posted() must follow.
  void posted_behind() { kicks_.fetch_add(1, std::memory_order_seq_cst); }
  /// [any thread] A completion queue was empty: drive the engine, if nobody else does.
  /// @p empty_polls: how many times in a row, for yielding where cores are scarce.
  void polled_empty(unsigned empty_polls);
  /// [any thread] The application is about to sleep (it armed a completion queue).
  void arming();

  /// What drive_until() says.
  enum class Blocked {
    kChanged,
    kElsewhere,  ///< the thread must wait in another way: it is not the only one, or must not drive
    kSignal,     ///< a signal handler has run
  };
  /// [any thread] It is going to block, with or without drive_until(), from begin_blocking() to end_blocking().
  void begin_blocking() { blocking_.fetch_add(1, std::memory_order_seq_cst); }
  void end_blocking();
  /// [a thread that blocks] Drives the engine until @p word is not @p seen any more. A cancellation point, where
  /// nothing is held.
  Blocked drive_until(const std::atomic<uint32_t>& word, uint32_t seen);
  /// [any thread] @p word has changed: wakes who waits for it in drive_until(). Does not wait.
  void changed(const std::atomic<uint32_t>& word);

  enum class Kind {
    kControl,  ///< watched in every state, by the progress thread only
    kPort,     ///< what wakes a port besides packets: watched by who drives while he sleeps, and in STANDBY
    kPacket,   ///< a port's socket: watched while nobody drives
  };
  struct Watched {
    int fd;  ///< negative: there is nothing to watch
    Kind kind;
    Watcher* watcher;
  };
  /// [any thread] Watches all of them; std::bad_alloc: none.
  void watch(std::initializer_list<Watched> all);
  void watch(int fd, Kind kind, Watcher& watcher) { watch({{fd, kind, &watcher}}); }
  /// [any thread] When it returns the watcher is not called for @p fd any more.
  void unwatch(int fd);

  /// What the thread has done so far: for tests and for people who tune.
  struct Stats {
    std::atomic<uint64_t> runs{0};       ///< of the engine by the thread
    std::atomic<uint64_t> sleeps{0};     ///< SLEEPING entered
    std::atomic<uint64_t> standbys{0};   ///< STANDBY entered
    std::atomic<uint64_t> penalties{0};  ///< STANDBY or BEHIND was a mistake
    std::atomic<uint64_t> distrusted_ns{0};  ///< for so long in all none of them was entered behind a mistake
    std::atomic<uint64_t> doorbells{0};
    std::atomic<uint64_t> behinds{0};       ///< BEHIND entered
    std::atomic<uint64_t> blocked_runs{0};  ///< of the engine by threads that block
  };
  const Stats& stats() const { return stats_; }

  /// At process exit: nobody drives any more; waits (bounded) for who does. Holds still work, and do
  /// not wait if this returns true.
  bool freeze();

 private:
  enum class State : uint32_t { kPolling, kStandby, kSleeping, kBehind };
  /// An eventfd that ends a poll(2), written to once until it is heard.
  struct Bell {
    int fd = -1;
    std::atomic<bool> rung{false};
    bool ring();  ///< false: it has been rung already
    void hear();
  };
  /// What a thread sleeps on: a bell, and of what is watched all that is of its kinds, in their order.
  struct Sleeper {
    Bell bell;
    std::vector<Watched> active;
    std::vector<pollfd> pollfds;  ///< the bell first
    uint64_t seen = 0;            ///< watch_gen_ of these; written by its thread, under watch_lock_
  };
  class Driver;

  bool try_acquire();
  bool acquire_or_kick();
  void acquire();
  void release();
  unsigned drive_held();
  bool kicked() const;
  bool drive_inline(bool polling);
  void tell_deadline(uint64_t deadline);
  void ring_doorbell();
  void wake_blocked();
  bool leaves_packets_to_others() const;
  void refresh(Sleeper& sleeper, Kind first);
  bool serve(Sleeper& sleeper, size_t count, bool* rung);
  static size_t count_up_to(const Sleeper& sleeper, Kind last);
  /// The progress thread itself, in a watcher: it looks at everything before it sleeps again.
  bool is_own_thread() const;

  static void* thread_entry(void* self);
  void run();
  bool wait(Kind last, uint64_t until_ns, bool* rung);
  void look_at_control();
  bool look();
  uint64_t mistaken(uint64_t penalty_ns);
  void standby();
  bool blocked_thread_drives();
  void behind(bool woken);
  void distrust_blocked();
  void sleep(bool crowded);
  void yield();
  unsigned thread_drive();

  EngineDriver& driven_;
  Clock& clock_;
  const Mode mode_;
  const bool scarce_cores_;

  alignas(64) std::atomic<uint32_t> token_{0};
  std::atomic<uint32_t> waiters_{0};     ///< control calls that wait for the token
  std::atomic<uint32_t> kicks_{0};       ///< posts that found the token taken
  std::atomic<uint32_t> kicks_seen_{0};  ///< kicks_ when the last run began
  std::atomic<uint32_t> inline_runs_{0};  ///< runs by application threads ...
  std::atomic<uint32_t> polled_runs_{0};  ///< ... of these, because a completion queue was empty
  std::atomic<pid_t> driver_tid_{0};      ///< the application thread that drove last
  alignas(64) std::atomic<State> state_{State::kPolling};
  std::atomic<uint64_t> sleep_until_{0};  ///< when the sleeping thread will wake, ns
  std::atomic<uint32_t> arms_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> frozen_{false};
  Stats stats_;

  // The thread that blocks and drives.
  alignas(64) std::atomic<pid_t> blocked_tid_{0};  ///< 0: there is none
  std::atomic<pid_t> blocked_last_{0};             ///< the last one
  std::atomic<uint32_t> blocked_runs_{0};
  std::atomic<uint64_t> blocked_until_{0};  ///< when it will wake, ns; 0: it does not sleep
  std::atomic<const std::atomic<uint32_t>*> blocked_word_{nullptr};  ///< it is in poll(2), or about to be, for this
  std::atomic<uint32_t> blocking_{0};        ///< threads that block, in whichever way
  std::atomic<uint64_t> refuse_until_{0};    ///< blocked threads do not drive until then, ns
  Sleeper blocked_;                          ///< of who is in blocked_tid_; its bell is anybody's
  uint64_t blocked_work_ = 0;                ///< likewise: the last work, ns

  RankedMutex<LockRank::kWatch> watch_lock_;
  std::condition_variable_any watch_changed_;
  std::vector<Watched> watched_;       ///< under watch_lock_
  std::atomic<uint64_t> watch_gen_{1};  ///< bumped under watch_lock_

  bool running_ = false;  ///< under watch_lock_
  pthread_t thread_{};

  Sleeper self_;  ///< the progress thread's; its bell, the doorbell, is anybody's

  // Of the progress thread alone.
  uint64_t now_ = 0, last_work_ = 0, last_control_ = 0;
  uint64_t crowded_until_ = 0, crowded_for_ = 0;
  bool napped_ = false;        ///< the last sleep was a nap for the holder's sake
  bool port_woke_ = false;     ///< a port's descriptor has ended it
  uint32_t blocked_runs_seen_ = 0;
  uint64_t blocked_penalty_ = 0;
  uint32_t runs_seen_ = 0, polls_seen_ = 0;
  uint32_t arms_seen_ = 0;
  uint64_t streak_since_ = 0;  ///< an application thread drives since then; 0: it does not
  unsigned streak_samples_ = 0, streak_misses_ = 0;
  uint64_t no_standby_until_ = 0, standby_penalty_ = 0;
};

}  // namespace usiw

#endif  // USIW_PROGRESS_PROGRESS_H
