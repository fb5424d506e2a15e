// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Ends of connections: from either side, from both, by objects or processes that go away.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "rig.h"

namespace {

void settle(Pair& p) {
  wait_until("QP A in state ERROR", [&] { return p.a.state() == IBV_QPS_ERR; });
  wait_until("QP B in state ERROR", [&] { return p.b.state() == IBV_QPS_ERR; });
  // Exactly one DISCONNECTED at each end.
  CHECK(!p.a.events.ready(50));
  CHECK(!p.b.events.ready(0));
}

}  // namespace

CASE(close_client, "close/by-client", .core = true) {
  Pair p;
  exercise(p);
  CHECK_CALL(rdma_disconnect(p.a.id));
  CHECK_EQ(p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED).status, 0);
  CHECK_EQ(p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED).status, 0);
  settle(p);
}

CASE(close_server, "close/by-server", .core = true) {
  Pair p;
  exercise(p);
  CHECK_CALL(rdma_disconnect(p.b.id));
  CHECK_EQ(p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED).status, 0);
  CHECK_EQ(p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED).status, 0);
  settle(p);
}

CASE(close_both, "close/by-both-at-once", .core = true) {
  for (int i = 0; i < 10; ++i) {
    Pair p;
    if (i % 2) exercise(p);
    CHECK_CALL(rdma_disconnect(p.a.id));
    CHECK_CALL(rdma_disconnect(p.b.id));
    p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    settle(p);
  }
}

/// What runs when the program's static objects go: this one was made before any other library's.
struct AtTheEnd {
  ~AtTheEnd() {
    if (!body) return;
    int status = 1;
    try {
      body();
      status = 0;
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
      std::fflush(stdout);
    }
    _exit(status);
  }
  std::function<void()> body;
} at_the_end;

constexpr char kChild[] = "USIW_CASE_CHILD";

/// This program again, with one case only and @p progress as USIW_PROGRESS; its exit status.
int run_again(const char* name, const char* progress) {
  std::string words[] = {"again", name};
  std::string settings[] = {std::string(kChild) + "=1", std::string("USIW_PROGRESS=") + progress};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  std::vector<char*> environment{settings[0].data(), settings[1].data()};
  for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
  environment.push_back(nullptr);
  std::fflush(stdout);
  pid_t child = 0;
  CHECK_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv, environment.data()), 0);
  int status = 0;
  try {
    wait_until("the end of the child", [&] { return waitpid(child, &status, WNOHANG) == child; });
  } catch (...) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    throw;
  }
  return status;
}

// exit(3) has been called: exit handlers made later have run, and this object's turn has come.
CASE(close_in_destructor, "close/in-a-static-destructor", .core = true) {
  if (std::getenv(kChild) == nullptr) {
    for (const char* progress : {"adaptive", "thread"})
      CHECK_EQ(run_again("close/in-a-static-destructor", progress), 0);
    return;
  }
  auto* p = new Pair;
  exercise(*p);
  at_the_end.body = [p] {
    exercise(*p);
    CHECK_CALL(rdma_disconnect(p->a.id));
    p->b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    p->a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    p->a.destroy();
    p->b.destroy();
  };
}

// A SEND for which the peer has no receive holds the orderly end back. When that has taken its time (2 s) the peer is
// told all the same; it does not have to find out by itself, which takes six times as long.
CASE(close_behind_rnr, "close/behind-a-send-that-is-not-received", .core = true) {
  Pair p;
  Region source(p.a.pd, 64);
  p.a.send({.wr_id = 1, .sges = {source.sge()}});
  CHECK_CALL(rdma_disconnect(p.a.id));
  const ibv_wc wc = wait_wc(p.a.send_cq);
  CHECK(wc.wr_id == 1 && wc.status != IBV_WC_SUCCESS);
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED, kWaitMs / 3);
  settle(p);
}

CASE(close_destroy_qp, "close/by-destroying-the-qp", .core = true) {
  Pair p;
  exercise(p);
  p.a.destroy_qp();
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

CASE(close_destroy_id, "close/by-destroying-everything", .core = true) {
  Pair p;
  exercise(p);
  p.b.destroy();
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

CASE(close_at_once, "close/right-after-established", .core = true) {
  for (int i = 0; i < 20; ++i) {
    Pair p;
    CHECK_CALL(rdma_disconnect(i % 2 ? p.a.id : p.b.id));
    p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  }
}

// A second disconnect is harmless, and so is one behind the peer's.
// The server ends the connection before the client's program has read that there is one. On the RoCE face librdmacm
// moves the client's QP at that event, when its connection has ended already.
CASE(close_before_read, "close/before-the-client-reads-established", .core = true) {
  Endpoint a, b;
  a.resolve(site_a().ip, site_b().ip, shared_listener().port());
  a.create_qp({});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(a.id, &param));
  b.adopt(shared_listener().wait_request().id);
  b.create_qp({});
  CHECK_CALL(rdma_accept(b.id, &param));
  b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  CHECK_CALL(rdma_disconnect(b.id));
  wait_until("QP A in state ERROR", [&] { return a.state() == IBV_QPS_ERR; });
  a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  CHECK_EQ(a.events.expect(RDMA_CM_EVENT_DISCONNECTED).status, 0);
  CHECK_EQ(a.state(), IBV_QPS_ERR);
  b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

CASE(close_twice, "close/twice", .core = true) {
  Pair p;
  CHECK_CALL(rdma_disconnect(p.a.id));
  CHECK_CALL(rdma_disconnect(p.a.id));
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  CHECK_CALL(rdma_disconnect(p.a.id));
  CHECK_CALL(rdma_disconnect(p.b.id));
  settle(p);
}

// The id of a closed connection may be destroyed in any order with the QP, the CQs and the peer.
CASE(close_listener, "close/listener-before-connection", .core = true) {
  Endpoint a, b;
  {
    Listener listener(site_b().ip);
    Options options;
    connect_pair(a, b, listener, site_a().ip, site_b().ip, options, options);
  }
  Region source(a.pd, 100), sink(b.pd, 100);
  source.fill(1);
  b.recv(1, {sink.sge()});
  a.send({.wr_id = 1, .sges = {source.sge()}});
  expect_wc(b.recv_cq, 1);
  sink.check(1, 0, 100);
  expect_wc(a.send_cq, 1);
  CHECK_CALL(rdma_disconnect(b.id));
  a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

// A listener that goes away with requests nobody has taken: their clients are refused. iw_cm silently drops a
// request that is in its work queue at that moment; only the driver's limit for undecided requests (60 s) ends it.
CASE(close_listener_pending, "close/listener-with-pending-requests", .seconds = 120) {
  auto listener = std::make_unique<Listener>(site_b().ip);
  Options options;
  Endpoint clients[3];
  for (Endpoint& c : clients) {
    c.resolve(site_a().ip, site_b().ip, listener->port());
    c.create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(c.id, &param));
  }
  CHECK(listener->events().ready(kWaitMs));
  listener.reset();
  for (Endpoint& c : clients) {
    const CmEvent event = c.events.wait(80000);
    if (event.type != RDMA_CM_EVENT_REJECTED && event.type != RDMA_CM_EVENT_UNREACHABLE)
      FAIL("%s (status %d)", rdma_event_str(event.type), event.status);
  }
}
