// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// rdma_migrate_id(3): events go with the id, whatever happens around it.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "cm_tools.h"

namespace {

void resolve_only(rdma_cm_id* id) {
  CHECK_CALL(rdma_resolve_addr(id, nullptr, Address(site_b().ip, 4000).get(), 2000));
}

}  // namespace

CASE(migrate_pending, "migrate/with-events-pending", .core = true) {
  EventChannel from, to;
  rdma_cm_id* const id = from.create_id();
  rdma_cm_id* const other = from.create_id();
  resolve_only(other);
  CHECK(from.ready(kWaitMs));
  resolve_only(id);
  // There and back, while the event comes.
  for (int i = 0; i < 50; ++i) {
    CHECK_CALL(rdma_migrate_id(id, to.get()));
    CHECK_CALL(rdma_migrate_id(id, from.get()));
  }
  CHECK_CALL(rdma_migrate_id(id, to.get()));
  CHECK(to.wait().id == id);
  CHECK(from.wait().id == other);
  CHECK(!from.ready(50) && !to.ready(0));
  // From now on they come there.
  CHECK_CALL(rdma_resolve_route(id, 2000));
  CHECK(to.wait().type == RDMA_CM_EVENT_ROUTE_RESOLVED);
  CHECK(!from.ready(0));
  CHECK_CALL(rdma_destroy_id(id));
  CHECK_CALL(rdma_destroy_id(other));
}

// A connection goes to a channel of its own, then to none: it is synchronous from then on.
CASE(migrate_sync, "migrate/to-synchronous-and-back", .core = true) {
  Pair pair;
  EventChannel back;
  CHECK_CALL(rdma_migrate_id(pair.a.id, nullptr));
  greet(pair.a, pair.b);
  CHECK_CALL(rdma_disconnect(pair.a.id));  // returns once it is DISCONNECTED
  pair.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  CHECK_CALL(rdma_migrate_id(pair.a.id, back.get()));
  CHECK(!back.ready(50));
}

// A listener that moves: what asks from then on is told there. A request that has not been read meanwhile is, on Linux,
// of use to nobody: its own id stays where it was made, so librdmacm throws it away and looks for the next event.
CASE(migrate_listener, "migrate/listener", .seconds = 60) {
  auto here = std::make_unique<EventChannel>();
  EventChannel there;
  rdma_cm_id* const listener = here->create_id();
  CHECK_CALL(rdma_bind_addr(listener, Address(site_b().ip, 0).get()));
  CHECK_CALL(rdma_listen(listener, 8));
  const Address from(site_a().ip, 0), to(site_b().ip, ntohs(rdma_get_src_port(listener)));
  for (EventChannel* channel : {&there, here.get()}) {
    Endpoint client, server;
    CHECK_CALL(rdma_migrate_id(listener, channel->get()));
    resolve(client, &from, to);
    connect(client, server, *channel);
    greet(client, server);
    CHECK(!(channel == &there ? *here : there).ready(0));
  }
  Endpoint client;
  resolve(client, &from, to);
  client.create_qp({});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(client.id, &param));
  CHECK(here->ready(kWaitMs));
  CHECK_CALL(rdma_migrate_id(listener, there.get()));
  CHECK(!here->ready(0));
  CHECK(there.ready(0));
  CHECK_CALL(fcntl(there.get()->fd, F_SETFL, O_NONBLOCK));
  rdma_cm_event* event;
  if (rdma_get_cm_event(there.get(), &event) == 0) {
    rdma_cm_id* const request = event->id;
    CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK_CALL(rdma_ack_cm_event(event));
    CHECK_CALL(rdma_destroy_id(request));
  } else {
    CHECK_EQ(errno, EAGAIN);
  }
  CHECK_CALL(rdma_destroy_id(listener));
  here.reset();
  client.events.expect(RDMA_CM_EVENT_REJECTED);  // nobody is forgotten
}

// Threads that move ids between channels while others close those: an error or success, and nothing is left behind.
CASE(migrate_closed, "migrate/while-the-channel-is-closed", .seconds = 60) {
  EventChannel safe;
  for (int round = 0; round < 100; ++round) {
    rdma_event_channel* const doomed = rdma_create_event_channel();
    CHECK(doomed != nullptr);
    rdma_cm_id* id;
    CHECK_CALL(rdma_create_id(doomed, &id, nullptr, RDMA_PS_TCP));
    CHECK_CALL(rdma_bind_addr(id, Address(site_b().ip, 0).get()));
    std::atomic<int> ready{0};
    const auto together = [&] {
      for (ready.fetch_add(1); ready.load() < 2;) std::this_thread::yield();
    };
    std::thread closer([&] {
      together();
      close(doomed->fd);
    });
    together();
    const bool moved = rdma_migrate_id(id, safe.get()) == 0;
    const int error = errno;
    closer.join();
    if (moved) {
      resolve_only(id);  // it is alive
      safe.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
      CHECK_CALL(rdma_destroy_id(id));
      std::free(doomed);
      continue;
    }
    if (error != EBADF && error != ENOENT && error != EINVAL) FAIL("rdma_migrate_id: %s", std::strerror(error));
    // It has gone with its channel; the library's half is left, which nobody can free any more.
    std::free(doomed);
  }
  exercise(*std::make_unique<Pair>());
}
