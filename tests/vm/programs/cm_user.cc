// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One id of rdma_cm, told what to do by its arguments, so that several users' ids can be in each other's way:
//
//   space tcp|udp|ib|ipoib  begins anew with an id of that port space; the first id is of RDMA_PS_TCP
//   reuse | afonly          sets the option
//   bind ADDRESS PORT       rdma_bind_addr()
//   listen                  rdma_listen()
//   connect ADDRESS PORT    resolves, connects, and exchanges verified data with a `serve`
//   serve COUNT             accepts so many connections and answers the message of each
//   wait                    until the next line on standard input, or its end
//
// Each prints its name and the outcome: 0, an errno value by name, or the name of the event that says no. The program
// goes on all the same; it ends with 0 behind the last argument, with 1 when something is wrong that no outcome stands
// for.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "cm_tools.h"

namespace {

constexpr size_t kMessage = 1 << 20;
constexpr int kResolveMs = 10000;

class User {
 public:
  User() : id_(events_.create_id()) {}
  ~User() {
    if (id_) rdma_destroy_id(id_);
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  std::string space(const std::string& name) {
    rdma_destroy_id(std::exchange(id_, nullptr));
    const int made = rdma_create_id(events_.get(), &id_, nullptr, port_space(name));
    // Else librdmacm makes a QP for datagrams in some spaces, and usiw refuses that one.
    if (made == 0) id_->qp_type = IBV_QPT_RC;
    return outcome(made);
  }
  std::string set(int name) {
    int on = 1;
    return outcome(rdma_set_option(id_, RDMA_OPTION_ID, name, &on, sizeof on));
  }
  std::string bind(const Address& address) { return outcome(rdma_bind_addr(id_, address.get())); }
  std::string listen() { return outcome(rdma_listen(id_, 1024)); }

  std::string connect(const Address& to) {
    Endpoint client;
    client.id = std::exchange(id_, nullptr);
    CHECK_CALL(rdma_migrate_id(client.id, client.events.get()));
    if (rdma_resolve_addr(client.id, nullptr, to.get(), kResolveMs)) return outcome(-1);
    if (std::string no = refused(client.events, RDMA_CM_EVENT_ADDR_RESOLVED); !no.empty()) return no;
    CHECK_CALL(rdma_resolve_route(client.id, kResolveMs));
    client.events.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    client.create_qp({});
    Region message(client.pd, kMessage), answer(client.pd, kMessage);
    client.recv(1, {answer.sge()});
    rdma_conn_param param = conn_param({});
    if (rdma_connect(client.id, &param)) return outcome(-1);
    if (std::string no = refused(client.events, RDMA_CM_EVENT_ESTABLISHED); !no.empty()) return no;
    message.fill(ntohs(rdma_get_src_port(client.id)));
    client.send({.wr_id = 2, .sges = {message.sge()}});
    expect_wc(client.send_cq, 2);
    expect_wc(client.recv_cq, 1);
    answer.check(ntohs(rdma_get_src_port(client.id)), 0, kMessage);
    CHECK_CALL(rdma_disconnect(client.id));
    client.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    return "0";
  }

  std::string serve() {
    Endpoint server;
    server.adopt(events_.expect(RDMA_CM_EVENT_CONNECT_REQUEST, 8 * kWaitMs).id);
    server.create_qp({});
    Region memory(server.pd, kMessage);
    server.recv(1, {memory.sge()});
    rdma_conn_param param = conn_param({});
    if (rdma_accept(server.id, &param)) return outcome(-1);
    if (std::string no = refused(server.events, RDMA_CM_EVENT_ESTABLISHED); !no.empty()) return no;
    expect_wc(server.recv_cq, 1);
    server.send({.wr_id = 2, .sges = {memory.sge()}});
    expect_wc(server.send_cq, 2);
    server.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    return "0";
  }

 private:
  static rdma_port_space port_space(const std::string& name) {
    if (name == "tcp") return RDMA_PS_TCP;
    if (name == "udp") return RDMA_PS_UDP;
    if (name == "ib") return RDMA_PS_IB;
    if (name == "ipoib") return RDMA_PS_IPOIB;
    FAIL("%s is no port space", name.c_str());
  }
  static std::string outcome(int ret) { return ret == 0 ? "0" : strerrorname_np(errno); }
  /// The event that is not the @p wanted one, or an empty text.
  static std::string refused(EventChannel& events, rdma_cm_event_type wanted) {
    const CmEvent event = events.wait(4 * kWaitMs);
    return event.type == wanted ? "" : rdma_event_str(event.type);
  }

  EventChannel events_;
  rdma_cm_id* id_;
};

int run(int argc, char** argv) {
  User user;
  int at = 1;
  const auto next = [&]() -> std::string {
    if (at == argc) FAIL("an argument is missing");
    return argv[at++];
  };
  const auto say = [](const std::string& command, const std::string& outcome) {
    std::printf("%s %s\n", command.c_str(), outcome.c_str());
    std::fflush(stdout);
  };
  const auto address = [&] {
    const std::string ip = next();
    return Address(ip, static_cast<uint16_t>(std::stoi(next())));
  };
  while (at < argc) {
    const std::string command = next();
    if (command == "space") say(command, user.space(next()));
    else if (command == "reuse") say(command, user.set(RDMA_OPTION_ID_REUSEADDR));
    else if (command == "afonly") say(command, user.set(RDMA_OPTION_ID_AFONLY));
    else if (command == "bind") say(command, user.bind(address()));
    else if (command == "listen") say(command, user.listen());
    else if (command == "connect") say(command, user.connect(address()));
    else if (command == "serve")
      for (int left = std::stoi(next()); left > 0; --left) say(command, user.serve());
    else if (command == "wait")
      for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar()) {}
    else
      FAIL("%s is no command", command.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tap::Failure& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  }
}
