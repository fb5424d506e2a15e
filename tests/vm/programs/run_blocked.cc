// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Threads that block in ibv_get_cq_event(3), for usiw-run: they drive the engine there, and nothing of that may show.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "rig.h"
#include "run_thread.h"

namespace {

/// Blocks until @p channel has an event and acknowledges it: 0 or an errno value.
int block(ibv_comp_channel* channel) {
  ibv_cq* cq;
  void* of;
  if (ibv_get_cq_event(channel, &cq, &of) != 0) return errno;
  ibv_ack_cq_events(cq, 1);
  return 0;
}

/// Blocks until @p cq has a completion, armed as a program does it.
ibv_wc blocking_wc(ibv_cq* cq, ibv_comp_channel* channel) {
  for (;;) {
    ibv_wc wc = {};
    for (int looks = 0; looks < 2; looks++) {
      const int n = ibv_poll_cq(cq, 1, &wc);
      CHECK(n >= 0);
      if (n == 1) return wc;
      if (looks == 0) CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    }
    CHECK_EQ(block(channel), 0);
  }
}

/// Echoes what comes to @p e, of which it takes @p count messages, each by a thread that blocks.
void echo(Endpoint& e, Region& memory, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    CHECK_EQ(blocking_wc(e.recv_cq, e.recv_channel).status, IBV_WC_SUCCESS);
    e.recv(i, {memory.sge(0, 64)});
    e.send({.wr_id = i, .sges = {memory.sge(0, 64)}});
    CHECK_EQ(blocking_wc(e.send_cq, e.send_channel).status, IBV_WC_SUCCESS);
  }
}

struct sigaction handler(int flags) {
  struct sigaction act = {};
  act.sa_handler = [](int) {};
  act.sa_flags = flags;
  return act;
}

}  // namespace

CASE(peers, "blocked/whatever-the-other-end-does", .seconds = 120) {
  constexpr unsigned kRounds = 300;
  Options options;
  options.with_channel = true;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  p.a.recv(0, {at_a.sge()});
  Thread echoing([&] { echo(p.a, at_a, 4 * kRounds); });
  const auto exchange = [&](const std::function<void()>& wait) {
    for (unsigned i = 0; i < kRounds; i++) {
      p.b.recv(i, {at_b.sge()});
      p.b.send({.wr_id = i, .sges = {at_b.sge()}});
      wait();
    }
  };
  const auto both = [&](const std::function<ibv_wc(ibv_cq*, ibv_comp_channel*)>& wc) {
    CHECK_EQ(wc(p.b.recv_cq, p.b.recv_channel).status, IBV_WC_SUCCESS);
    CHECK_EQ(wc(p.b.send_cq, p.b.send_channel).status, IBV_WC_SUCCESS);
  };
  exchange([&] { both([](ibv_cq* cq, ibv_comp_channel*) { return wait_wc(cq); }); });
  exchange([&] { both(blocking_wc); });
  exchange([&] {
    both([](ibv_cq* cq, ibv_comp_channel* channel) {
      for (ibv_wc wc;;) {
        CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
        if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
        CHECK(wait_cq_event(channel, kWaitMs));
      }
    });
  });
  exchange([&] {  // elsewhere for longer than anybody waits for it
    usleep(3000);
    both(blocking_wc);
  });
  CHECK(!echoing.was_cancelled());
  p.close();
}

CASE(cancelled, "blocked/cancelled-in-traffic", .seconds = 60) {
  Options options;
  options.with_channel = true;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (unsigned round = 0; round < 20; round++) {
    Thread blocked([&] {
      for (;;) {
        CHECK_EQ(ibv_req_notify_cq(p.a.recv_cq, 0), 0);
        block(p.a.recv_channel);
      }
    });
    for (unsigned i = 0; i < round; i++) {
      p.a.recv(i, {at_a.sge()});
      p.b.send({.wr_id = i, .sges = {at_b.sge()}});
      expect_wc(p.b.send_cq, i);
    }
    blocked.cancel();
    CHECK(blocked.was_cancelled());
    for (unsigned i = 0; i < round; i++) expect_wc(p.a.recv_cq, i);
  }
  exercise(p);
  // An event that was on its way to a thread that has gone is still there: each of the CQ's has to be acknowledged.
  while (wait_cq_event(p.a.recv_channel, 10)) {
  }
  p.close();
}

CASE(closed, "blocked/its-device-is-closed", .seconds = 60) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  CHECK(count > 0);
  for (int round = 0; round < 10; round++) {
    ibv_context* open = ibv_open_device(list[0]);
    CHECK(open != nullptr);
    ibv_comp_channel* channel = ibv_create_comp_channel(open);
    CHECK(channel != nullptr);
    const int fd = channel->fd;
    Thread blocked([&] {
      uint64_t event[4];
      [[maybe_unused]] ssize_t n = read(fd, event, sizeof event);  // ibv_get_cq_event() would use what is gone
    });
    if (round % 2 == 0) settle();
    CHECK_EQ(ibv_close_device(open), 0);
    blocked.cancel();
    CHECK(blocked.was_cancelled());
    close(fd);
  }
  ibv_free_device_list(list);
  Pair p;
  exercise(p);
  p.close();
}

/// A thread blocks: three times @p restarting does not end that, @p ending does. @p between is called ahead of that
/// one.
template <typename Between>
static void ends_by_signal(int restarting, int ending, Between between) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context());
  std::atomic<int> ended{-1};
  Thread blocked([&] { ended = block(channel); });
  for (int i = 0; i < 3; i++) {
    settle();
    pthread_kill(blocked.id(), restarting);
  }
  settle();
  CHECK_EQ(ended, -1);
  between();
  pthread_kill(blocked.id(), ending);
  CHECK(!blocked.was_cancelled());
  CHECK_EQ(ended, EINTR);
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

static void handle(int signal, int flags) {
  const struct sigaction act = handler(flags);
  CHECK_EQ(sigaction(signal, &act, nullptr), 0);
}

CASE(signals, "blocked/signals", .seconds = 30) {
  handle(SIGUSR1, SA_RESTART);
  ends_by_signal(SIGUSR1, SIGUSR1, [] { handle(SIGUSR1, 0); });
}

/// Handlers of both kinds: which of them has run decides.
CASE(mixed, "blocked/signals-of-both-kinds", .seconds = 30) {
  handle(SIGUSR1, SA_RESTART);
  handle(SIGUSR2, 0);
  ends_by_signal(SIGUSR1, SIGUSR2, [] {});
}
