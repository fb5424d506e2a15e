// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Between two listeners of one port. perftest -R closes its listener behind the first connection and listens again
// for the others, whose requests may come in between: it counts on their order.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "by_verbs.h"
#include "hostile.h"
#include "rig.h"

namespace {

constexpr size_t kMaxHeld = 64;  ///< requests that wait for the second listener

/// A port whose listener has left behind a connection, which goes on: so the port is still there.
class Deserted {
 public:
  Deserted() : listener_(std::make_unique<Listener>(site_b().ip)), port(listener_->port()) {
    connect_pair(a_, b_, *listener_, site_a().ip, site_b().ip, {}, {});
  }
  void leave() { listener_.reset(); }

 private:
  std::unique_ptr<Listener> listener_;
  Endpoint a_, b_;

 public:
  const uint16_t port;
};

/// Clients with the addresses resolved, each with its number as private data.
class Clients {
 public:
  Clients(int count, uint16_t port) : clients_(static_cast<size_t>(count)) {
    for (Endpoint& c : clients_) {
      c.resolve(site_a().ip, site_b().ip, port);
      c.create_qp({});
    }
  }
  void connect(uint8_t i) {
    rdma_conn_param param = conn_param({});
    param.private_data = &i;
    param.private_data_len = sizeof i;
    CHECK_CALL(rdma_connect(clients_[i].id, &param));
  }
  Endpoint& operator[](size_t i) { return clients_[i]; }

 private:
  std::vector<Endpoint> clients_;
};

/// UDP sockets at A from which REQs for B's @p port go out, one from each.
class Forgers {
 public:
  Forgers(size_t count, uint16_t port) {
    const sockaddr_in from = ipv4(site_a().ip, 0), to = ipv4(site_b().ip, port);
    for (size_t i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      CHECK(fd >= 0);
      sockets_.push_back({fd, POLLIN, 0});
      CHECK_CALL(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from));
      CHECK_CALL(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to));
    }
  }
  ~Forgers() {
    for (const pollfd& s : sockets_) close(s.fd);
  }
  Forgers(const Forgers&) = delete;
  Forgers& operator=(const Forgers&) = delete;

  /// Each that has had no answer yet sends its REQ, always the same.
  void send() {
    for (size_t i = 0; i < sockets_.size(); ++i) {
      const hostile::Bytes req = hostile::trp(static_cast<uint32_t>(1000 + i), 0, USIW_TRP_REQ, 0, 0, 0,
                                              hostile::request(USIW_WIRE_VERSION, 0, 8, 8, 1500, 256, 0, {}));
      if (sockets_[i].fd >= 0)
        CHECK_EQ(::send(sockets_[i].fd, req.data(), req.size(), 0), static_cast<ssize_t>(req.size()));
    }
  }
  /// Waits @p ms, or until @p enough have been refused, and returns how many have been so far.
  size_t refused(int ms, size_t enough) {
    const uint64_t end = tap::now_ms() + static_cast<uint64_t>(ms);
    for (uint64_t now; (now = tap::now_ms()) < end && refused_ < enough;) {
      if (poll(sockets_.data(), sockets_.size(), static_cast<int>(end - now)) <= 0) continue;
      for (pollfd& s : sockets_) {
        if (s.fd < 0 || !s.revents) continue;
        uint8_t answer[2048];
        const ssize_t n = recv(s.fd, answer, sizeof answer, MSG_DONTWAIT);
        if (n < static_cast<ssize_t>(sizeof(usiw_trp_hdr))) FAIL("an answer of %zd bytes", n);
        CHECK_EQ(answer[8] >> 4, USIW_TRP_REJECT);
        close(s.fd);
        s.fd = -1;
        ++refused_;
      }
    }
    return refused_;
  }

 private:
  std::vector<pollfd> sockets_;
  size_t refused_ = 0;
};

}  // namespace

// A REQ that came before the second listener, and was repeated meanwhile, is still the first.
CASE(relisten_order, "listen/again-requests-in-order", .core = true) {
  Deserted deserted;
  Clients clients(4, deserted.port);
  deserted.leave();
  clients.connect(0);
  usleep(120000);
  Listener again(site_b().ip, 16, deserted.port);
  for (uint8_t i = 1; i < 4; ++i) clients.connect(i);
  std::vector<Endpoint> servers(4);
  for (int i = 0; i < 4; ++i) {
    const CmEvent request = again.wait_request();
    servers[i].adopt(request.id);
    CHECK(!request.private_data.empty());
    if (request.private_data[0] != i) FAIL("request %d is that of client %d", i, request.private_data[0]);
    servers[i].create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_CALL(rdma_accept(servers[i].id, &param));
  }
  for (size_t i = 0; i < 4; ++i) {
    clients[i].events.expect(RDMA_CM_EVENT_ESTABLISHED);
    servers[i].events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
}

CASE(relisten_never, "listen/not-again-is-REJECTED", .core = true) {
  Deserted deserted;
  Clients clients(1, deserted.port);
  deserted.leave();
  const uint64_t start = tap::now_ms();
  clients.connect(0);
  const CmEvent event = clients[0].events.expect(RDMA_CM_EVENT_REJECTED);
  CHECK_EQ(event.status, rejected_by_nobody());
  const uint64_t took = tap::now_ms() - start;
  if (took > 3000 * tap::patience()) FAIL("it took %llu ms", static_cast<unsigned long long>(took));
}

// (usiw's own wire.) What is more is refused at once; and what is held, in the end.
CASE(relisten_bounded, "listen/not-again-holds-few-requests") {
  constexpr size_t kMore = 16;
  Deserted deserted;
  Forgers forgers(kMaxHeld + kMore, deserted.port);
  deserted.leave();
  forgers.send();
  CHECK_EQ(forgers.refused(200, kMore), kMore);
  CHECK_EQ(forgers.refused(30, kMaxHeld + kMore), kMore);
  for (int i = 0; i < 20; ++i) {
    if (forgers.refused(100, kMaxHeld + kMore) == kMaxHeld + kMore) return;
    forgers.send();
  }
  FAIL("of %zu requests %zu are refused", kMaxHeld + kMore, forgers.refused(0, 0));
}
