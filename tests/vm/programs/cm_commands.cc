// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Commands to /dev/infiniband/rdma_cm as no library sends them: each is answered as by rdma_ucm of Linux 6.1, whoever
// plays it.
#include <fcntl.h>
#include <infiniband/ib.h>
#include <linux/in6.h>
#include <linux/socket.h>
#include <linux/types.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cstddef>

#include "by_verbs.h"

/// The kernel's header has enumerators of the same names as librdmacm's.
namespace abi {
#include <rdma/rdma_user_cm.h>
}
using namespace abi;

namespace {

constexpr uint32_t kNoId = 0x7ffffff0;

/// An open rdma_cm file.
class Ucm {
 public:
  Ucm() : fd_(open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) FAIL("/dev/infiniband/rdma_cm: %s", std::strerror(errno));
  }
  ~Ucm() { close(fd_); }
  Ucm(const Ucm&) = delete;
  Ucm& operator=(const Ucm&) = delete;
  int fd() const { return fd_; }

  /// The errno value of a command with a body of @p in bytes; 0: it was taken.
  int raw(uint32_t cmd, const void* body, size_t in, size_t out) {
    std::vector<char> message(sizeof(rdma_ucm_cmd_hdr) + in);
    const rdma_ucm_cmd_hdr header = {cmd, static_cast<uint16_t>(in), static_cast<uint16_t>(out)};
    std::memcpy(message.data(), &header, sizeof header);
    if (in) std::memcpy(message.data() + sizeof header, body, in);
    const ssize_t n = write(fd_, message.data(), message.size());
    if (n < 0) return errno;
    CHECK_EQ(n, message.size());
    return 0;
  }
  template <typename Body>
  int command(uint32_t cmd, const Body& body, size_t out = 0) {
    return raw(cmd, &body, sizeof body, out);
  }
  template <typename Body, typename Answer>
  int ask(uint32_t cmd, Body body, Answer& answer, size_t room = sizeof(Answer)) {
    body.response = reinterpret_cast<uint64_t>(&answer);
    return raw(cmd, &body, sizeof body, room);
  }

  uint32_t create(uint16_t ps = abi::RDMA_PS_TCP) {
    rdma_ucm_create_id_resp answer = {};
    rdma_ucm_create_id body = {};
    body.ps = ps;
    body.uid = 1;
    if (int error = ask(RDMA_USER_CM_CMD_CREATE_ID, body, answer)) FAIL("CREATE_ID: %s", std::strerror(error));
    return answer.id;
  }
  int bind(uint32_t id, const std::string& ip, uint16_t port = 0) {
    const sockaddr_in address = ipv4(ip, port);
    rdma_ucm_bind body = {};
    body.id = id;
    body.addr_size = sizeof address;
    std::memcpy(&body.addr, &address, sizeof address);
    return command(RDMA_USER_CM_CMD_BIND, body);
  }
  int resolve(uint32_t id) {
    const sockaddr_in from = ipv4(site_a().ip, 0), to = ipv4(site_b().ip, 4000);
    rdma_ucm_resolve_addr body = {};
    body.id = id;
    body.timeout_ms = 5000;
    body.src_size = body.dst_size = sizeof to;
    std::memcpy(&body.src_addr, &from, sizeof from);
    std::memcpy(&body.dst_addr, &to, sizeof to);
    return command(RDMA_USER_CM_CMD_RESOLVE_ADDR, body);
  }
  int event(rdma_ucm_event_resp& answer, size_t room = sizeof(rdma_ucm_event_resp)) {
    return ask(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, answer, room);
  }
  void expect_event(uint32_t type) {
    rdma_ucm_event_resp answer = {};
    wait_until("an event", [&] { return event(answer) == 0; });
    if (answer.event != type)
      FAIL("event %u instead of %u (status %d)", answer.event, type, static_cast<int>(answer.status));
  }

 private:
  const int fd_;
};

rdma_ucm_reject reject(uint32_t id, uint8_t reason) {
  rdma_ucm_reject body = {};
  body.id = id;
  body.reason = reason;
  return body;
}

rdma_ucm_join_mcast join(uint32_t id, uint16_t flags, sa_family_t family, size_t size) {
  rdma_ucm_join_mcast body = {};
  sockaddr_in group = ipv4("224.1.2.3", 0);
  group.sin_family = family;
  std::memcpy(&body.addr, &group, sizeof group);
  body.id = id;
  body.join_flags = flags;
  body.addr_size = static_cast<uint16_t>(size);
  return body;
}

}  // namespace

CASE(ucm_frames, "command/frames-and-numbers", .core = true) {
  Ucm ucm;
  const char nothing[8] = {};
  CHECK_EQ(write(ucm.fd(), nothing, 3), -1);
  CHECK_EQ(errno, EINVAL);
  for (uint32_t cmd : {uint32_t{RDMA_USER_CM_CMD_JOIN_MCAST} + 1, 77u, 0xffffffffu})
    CHECK_EQ(ucm.raw(cmd, nothing, 8, 8), EINVAL);
  CHECK_EQ(ucm.raw(RDMA_USER_CM_CMD_GET_OPTION, nothing, 8, 8), ENOSYS);
  const rdma_ucm_cmd_hdr long_one = {RDMA_USER_CM_CMD_LISTEN, 8, 0};  // says more than there is
  CHECK_EQ(write(ucm.fd(), &long_one, sizeof long_one), -1);
  CHECK_EQ(errno, EINVAL);
  rdma_ucm_event_resp event;
  CHECK_EQ(ucm.event(event), EAGAIN);
  CHECK_EQ(ucm.event(event, 8), ENOSPC);
}

CASE(ucm_no_id, "command/ids-that-are-not", .core = true) {
  Ucm ucm, other;
  const uint32_t foreign = other.create();
  for (auto [id, wanted] : {std::pair{kNoId, ENOENT}, std::pair{foreign, EINVAL}}) {
    rdma_ucm_query_addr_resp answer;
    rdma_ucm_query query = {};
    query.id = id;
    CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_QUERY, query, answer), wanted);
    CHECK_EQ(ucm.bind(id, site_a().ip), wanted);
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}), wanted);
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), wanted);
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}), wanted);
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, 1}), wanted);
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_REJECT, reject(id, 0)), wanted);
    rdma_ucm_set_option option = {};
    option.id = id;
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_SET_OPTION, option), wanted);
    rdma_ucm_destroy_id destroy = {};
    rdma_ucm_destroy_id_resp destroyed;
    destroy.id = id;
    CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_DESTROY_ID, destroy, destroyed), wanted);
  }
}

CASE(ucm_create, "command/create-and-destroy") {
  Ucm ucm;
  rdma_ucm_create_id_resp answer;
  rdma_ucm_create_id body = {};
  for (uint16_t ps : {0, 1, 0x0107}) {
    body.ps = ps;
    CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_CREATE_ID, body, answer), EINVAL);
  }
  body.ps = abi::RDMA_PS_TCP;
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_CREATE_ID, body, answer, 3), ENOSPC);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_CREATE_ID, body, sizeof answer), EFAULT);
  rdma_ucm_destroy_id destroy = {};
  rdma_ucm_destroy_id_resp destroyed = {};
  destroy.id = ucm.create();
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_DESTROY_ID, destroy, destroyed, 3), ENOSPC);
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_DESTROY_ID, destroy, destroyed), 0);
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_DESTROY_ID, destroy, destroyed), ENOENT);
}

CASE(ucm_addresses, "command/addresses", .core = true) {
  Ucm ucm;
  const uint32_t id = ucm.create();
  const sockaddr_in own = ipv4(site_a().ip, 0);
  rdma_ucm_bind body = {};
  body.id = id;
  std::memcpy(&body.addr, &own, sizeof own);
  for (uint16_t size : {0, 8, 28, 128}) {
    body.addr_size = size;
    CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_BIND, body), EINVAL);
  }
  body.addr_size = sizeof own;
  body.reserved = 1;
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_BIND, body), EINVAL);
  body.reserved = 0;
  body.addr.ss_family = AF_UNIX;
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_BIND, body), EINVAL);
  rdma_ucm_bind_ip bind_ip = {};
  bind_ip.id = id;
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_BIND_IP, bind_ip), EINVAL);
  CHECK_EQ(ucm.bind(id, "203.0.113.7"), EADDRNOTAVAIL);  // nobody's here
  CHECK_EQ(ucm.bind(id, site_a().ip), 0);
  CHECK_EQ(ucm.bind(id, site_a().ip), EINVAL);  // again
  rdma_ucm_resolve_ip resolve_ip = {};
  resolve_ip.id = id;
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_IP, resolve_ip), EINVAL);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), EINVAL);
  rdma_ucm_query query = {};
  rdma_ucm_query_addr_resp answer = {};
  query.id = id;
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_QUERY, query, answer), 0);
  CHECK_EQ(answer.src_size, sizeof own);
  CHECK_EQ(answer.port_num, 1);
  CHECK(answer.node_guid != 0);
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_QUERY, query, answer, 8), ENOSPC);
  query.option = RDMA_USER_CM_QUERY_GID;
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_QUERY, query, answer), 0);
  CHECK_EQ(answer.src_addr.ss_family, AF_IB);
  query.option = RDMA_USER_CM_QUERY_PATH;
  rdma_ucm_query_path_resp path = {};
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_QUERY, query, path), 0);
  CHECK_EQ(path.num_paths, 0);
  query.option = 99;  // 3 is that of IB services from Linux 6.18 on
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_QUERY, query, answer), ENOSYS);
}

CASE(ucm_resolve, "command/resolve-addr-and-route") {
  Ucm ucm;
  const uint32_t id = ucm.create();
  const sockaddr_in foreign = ipv4("203.0.113.7", 0), to = ipv4(site_b().ip, 4000);
  rdma_ucm_resolve_addr body = {};
  body.id = id;
  body.timeout_ms = 5000;
  std::memcpy(&body.dst_addr, &to, sizeof to);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, body), EINVAL);  // without a length
  body.dst_size = sizeof to;
  body.src_size = sizeof foreign;
  std::memcpy(&body.src_addr, &foreign, sizeof foreign);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_ADDR, body), EADDRNOTAVAIL);  // from somebody else's address
  CHECK_EQ(ucm.resolve(id), 0);
  ucm.expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK_EQ(ucm.resolve(id), EINVAL);  // again
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 0}), EINVAL);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}), EINVAL);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  ucm.expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_ucm_connect connect = {};
  connect.id = id;
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_CONNECT, connect), EINVAL);  // no valid parameters
  connect.conn_param.valid = 1;
  CHECK_EQ(ucm.raw(RDMA_USER_CM_CMD_CONNECT, &connect, offsetof(rdma_ucm_connect, id), 0), EINVAL);
  connect.conn_param.qp_num = 0xfffffe;
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_CONNECT, connect), EINVAL);  // nobody's QP
}

CASE(ucm_attributes, "command/init-qp-attr") {
  Ucm ucm;
  const uint32_t id = ucm.create();
  rdma_ucm_init_qp_attr body = {};
  ib_uverbs_qp_attr answer = {};
  body.id = id;
  body.qp_state = IBV_QPS_INIT;
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, body, answer), EINVAL);  // no device
  CHECK_EQ(ucm.bind(id, site_a().ip), 0);
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, body, answer, 8), ENOSPC);
  for (uint32_t state = IBV_QPS_RESET; state <= IBV_QPS_ERR; ++state) {
    body.qp_state = state;
    CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, body, answer), 0);
    CHECK_EQ(answer.qp_state, state);
    CHECK_EQ(answer.port_num, 1);
    if (!roce()) CHECK_EQ(answer.qp_attr_mask, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT);
    // InfiniBand requires the P_Key index for INIT.
    else if (state == IBV_QPS_INIT)
      CHECK_EQ(answer.qp_attr_mask, to_init().mask);
  }
  body.qp_state = IBV_QPS_ERR + 1;
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, body, answer), EINVAL);
}

// What only InfiniBand has: multicast, notifications, reasons.
CASE(ucm_infiniband, "command/of-infiniband-only", .core = true) {
  Ucm ucm;
  rdma_ucm_create_id_resp answer;
  const uint32_t idle = ucm.create(), bound = ucm.create(), datagrams = ucm.create(abi::RDMA_PS_UDP);
  CHECK_EQ(ucm.bind(bound, site_a().ip), 0);
  CHECK_EQ(ucm.bind(datagrams, site_a().ip), 0);
  const auto ask = [&](const rdma_ucm_join_mcast& body, size_t room = sizeof(rdma_ucm_create_id_resp)) {
    return ucm.ask(RDMA_USER_CM_CMD_JOIN_MCAST, body, answer, room);
  };
  CHECK_EQ(ask(join(bound, 0, AF_UNIX, 16)), EINVAL);
  CHECK_EQ(ask(join(bound, 0, AF_INET, 16), 3), ENOSPC);
  CHECK_EQ(ask(join(bound, 0, AF_INET, 28)), EINVAL);
  CHECK_EQ(ask(join(bound, abi::RDMA_MC_JOIN_FLAG_RESERVED, AF_INET, 16)), EINVAL);
  CHECK_EQ(ask(join(kNoId, 0, AF_INET, 16)), ENOENT);
  CHECK_EQ(ask(join(idle, 0, AF_INET, 16)), EINVAL);
  CHECK_EQ(ask(join(bound, 0, AF_INET, 16)), EINVAL);
  CHECK_EQ(ask(join(datagrams, 0, AF_INET, 16)), ENOSYS);
  rdma_ucm_destroy_id leave = {};
  rdma_ucm_destroy_id_resp left;
  leave.id = kNoId;
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, left), ENOENT);
  CHECK_EQ(ucm.ask(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, left, 0), ENOSPC);
  for (uint32_t id : {idle, bound}) CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, 1}), EINVAL);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{bound, 1}), 0);
  CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{bound, 1}), 0);
  for (uint8_t reason : {0, 1, 28, 35}) CHECK_EQ(ucm.command(RDMA_USER_CM_CMD_REJECT, reject(bound, reason)), EINVAL);
}

CASE(ucm_migrate, "command/migrate") {
  Ucm here, there;
  const uint32_t id = there.create();
  rdma_ucm_migrate_resp answer = {};
  const auto migrate = [&](uint32_t of, int fd, size_t room = sizeof(rdma_ucm_migrate_resp)) {
    rdma_ucm_migrate_id body = {};
    body.id = of;
    body.fd = static_cast<uint32_t>(fd);
    return here.ask(RDMA_USER_CM_CMD_MIGRATE_ID, body, answer, room);
  };
  CHECK_EQ(migrate(id, -1), ENOENT);
  const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK_EQ(migrate(id, other), EINVAL);
  CHECK_CALL(close(other));
  CHECK_EQ(migrate(id, here.fd()), EINVAL);
  CHECK_EQ(migrate(kNoId, there.fd()), ENOENT);
  CHECK_EQ(there.resolve(id), 0);
  rdma_ucm_event_resp event = {};
  wait_until("the event", [&] { return there.event(event) == 0; });
  CHECK_EQ(migrate(id, there.fd()), 0);
  CHECK_EQ(answer.events_reported, 1);
  CHECK_EQ(migrate(id, there.fd()), EINVAL);  // it is here now
  CHECK_EQ(migrate(id, here.fd()), 0);        // to where it is
  CHECK_EQ(here.command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 1000}), 0);
  here.expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
  CHECK_EQ(there.event(event), EAGAIN);
}
