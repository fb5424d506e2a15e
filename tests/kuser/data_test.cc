// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_data.c, and of how its sockets reach the process (usiw_event.c) and datagrams reach them
// (usiw_rx.c).
#include "fixture.h"

namespace kuser {
namespace {

class Data : public Kuser {
 protected:
  void SetUp() override {
    Kuser::SetUp();
    client = std::make_unique<Process>("eth0");
    server = std::make_unique<Process>("eth1");
    client->caps = server->caps = USIW_CAP_DATA_SOCKET;
    ASSERT_EQ(client->open_all(), 0);
    ASSERT_EQ(server->open_all(), 0);
    ASSERT_EQ(listener.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
  }
  void TearDown() override {
    if (active.id.device) active.destroy();
    for (auto& request : listener.requests) request->destroy();
    listener.destroy();
    for (auto& p : {&client, &server})
      if (*p) (*p)->close();
    pump();
    client.reset();
    server.reset();
    Kuser::TearDown();
  }
  /// Goes on until the process of the server may read CONNECT.
  void begin() {
    ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
    pump();
    ASSERT_EQ(listener.requests.size(), 1u);
    ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  }
  void establish() {
    begin();
    settle({client.get(), server.get()});
    ASSERT_TRUE(active.established());
    ASSERT_EQ(server->data_fds.size(), 1u);
    sock = mock_socket(server->data_fds[0]);
    ASSERT_TRUE(sock);
  }
  int send(int flags = 0, void* name = nullptr, void* control = nullptr, size_t control_len = 0) {
    msghdr msg{};
    msg.msg_name = name;
    msg.msg_flags = flags;
    msg.msg_control = control;
    msg.msg_controllen = control_len;
    return sock->ops->sendmsg(sock, &msg, 20);
  }
  mock_datagram from_client(unsigned opcode, unsigned len) {
    mock_datagram d = client_datagram(len);
    put(d, 0, opcode);
    return d;
  }
  void expect_off_the_network() {
    EXPECT_EQ(send(), -ENOTCONN);
    mock_datagram d = from_client(USIW_TRP_DATA, 100);
    mock_deliver(&d, ~0u);
    EXPECT_EQ(mock_queued(sock), 0);
  }
  static void put(mock_datagram& d, unsigned at, unsigned opcode) { d.data[at + 8] = opcode << 4; }
  int sockets_of_kernel() { return 2; }  // the listener's port and the client's

  std::unique_ptr<Process> client, server;
  CmId listener, active;
  struct socket* sock = nullptr;
};

TEST_F(Data, open__comes_with_connect_for_who_asks) {
  establish();
  const usiw_conn_info& info = server->seen[0].conn;
  EXPECT_EQ(info.flags & (USIW_CONN_F_SOCKET | USIW_CONN_F_PACKET), USIW_CONN_F_SOCKET | USIW_CONN_F_PACKET);
  EXPECT_TRUE(mock_file(info.data_fd)->f_flags & O_CLOEXEC);
  EXPECT_EQ(sock->sk->sk_state, TCP_ESTABLISHED);
  EXPECT_EQ(mock_sockets, sockets_of_kernel() + 2);
}

TEST_F(Data, open__not_for_who_does_not_ask) {
  server->close();
  server->caps = 0;
  ASSERT_EQ(server->open_all(), 0);
  begin();
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());
  EXPECT_EQ(server->seen[0].conn.flags & USIW_CONN_F_SOCKET, 0u);
  EXPECT_TRUE(server->data_fds.empty());
}

TEST_F(Data, open__where_raw_packets_are_not_eligible) {
  mock_ipsec = 1;
  establish();
  EXPECT_EQ(server->seen[0].conn.flags & USIW_CONN_F_PACKET, 0u);
  EXPECT_EQ(server->seen[0].conn.not_packet, uint32_t{USIW_NOT_PACKET_IPSEC});
}

TEST_F(Data, open__each_failure_is_told_in_its_place_and_leaves_nothing) {
  for (unsigned n = 0; n < 12; n++) {
    for (const auto kind : {MOCK_SOCKET, MOCK_FILE}) {
      begin();
      const int before = mock_sockets, files = mock_open_fds();
      mock_errors[kind] = u64{1} << n;
      const auto events = server->events();
      mock_errors[kind] = 0;
      ASSERT_EQ(events.size(), 1u);
      if (events[0].conn.data_fd < 0) {
        EXPECT_EQ(mock_sockets, before) << n;
        EXPECT_EQ(mock_open_fds(), files) << n;
      }
      ASSERT_NO_FATAL_FAILURE(start_anew({&listener, &active}));
    }
  }
}

TEST_F(Data, read__fault_takes_the_socket_back_and_keeps_the_record) {
  begin();
  const int before = mock_sockets, files = mock_open_fds();
  mock_errors[MOCK_COPY] = 1;
  EXPECT_TRUE(server->events().empty());
  EXPECT_EQ(mock_open_fds(), files);
  EXPECT_LE(mock_sockets, before + 1);  // the connection keeps its struct sock until then
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());
  EXPECT_EQ(server->data_fds.size(), 1u);
}

TEST_F(Data, read__by_another_process_brings_none) {
  begin();
  Process stranger("eth1");
  file* events = mock_file(server->event_fd);
  events->f_flags |= O_NONBLOCK;
  usiw_event record;
  stranger.enter();
  const int before = mock_sockets;
  ASSERT_EQ(events->f_op->read(events, reinterpret_cast<char*>(&record), sizeof(record), nullptr),
            static_cast<ssize_t>(sizeof(record)));
  EXPECT_EQ(record.conn.data_fd, -EPERM);
  EXPECT_EQ(mock_sockets, before);
}

TEST_F(Data, ops__nothing_but_its_own_peer) {
  establish();
  sockaddr_in elsewhere{};
  EXPECT_EQ(send(), 20);
  EXPECT_EQ(send(0, &elsewhere), -EISCONN);
  EXPECT_EQ(send(MSG_MORE), -EOPNOTSUPP);
  EXPECT_EQ(send(MSG_DONTROUTE), -EOPNOTSUPP);
  EXPECT_EQ(sock->ops->connect(sock, nullptr, 0, 0), -EOPNOTSUPP);
  EXPECT_EQ(sock->ops->bind(sock, nullptr, 0), -EOPNOTSUPP);
  alignas(cmsghdr) char control[64] = {};
  auto* cmsg = reinterpret_cast<cmsghdr*>(control);
  *cmsg = {.cmsg_len = CMSG_LEN(2), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT};
  EXPECT_EQ(send(0, nullptr, control, CMSG_SPACE(2)), 20);
  cmsg->cmsg_len = 1000;
  EXPECT_EQ(send(0, nullptr, control, CMSG_SPACE(2)), -EPERM);
  *cmsg = {.cmsg_len = CMSG_LEN(12), .cmsg_level = SOL_IP, .cmsg_type = IP_PKTINFO};
  EXPECT_EQ(send(0, nullptr, control, CMSG_SPACE(12)), -EPERM);
  int one = 1;
  EXPECT_EQ(sock->ops->setsockopt(sock, SOL_UDP, UDP_GRO, KERNEL_SOCKPTR(&one), sizeof(one)), 0);
  for (const auto& [level, name] :
       {std::pair{SOL_UDP, UDP_ENCAP}, {SOL_UDP, UDP_CORK}, {SOL_IP, IP_TTL}, {SOL_IPV6, IPV6_TCLASS}})
    EXPECT_EQ(sock->ops->setsockopt(sock, level, name, KERNEL_SOCKPTR(&one), sizeof(one)), -EPERM)
        << level << ' ' << name;
  EXPECT_EQ(sock->ops->getsockopt(sock, SOL_IP, IP_OPTIONS, nullptr, nullptr), -EPERM);
}

// The process may set the two ECN bits of the traffic class. The CM user has set the rest.
TEST_F(Data, ops__congestion_marks_and_no_other_class) {
  active.id.tos_set = true;
  active.id.tos = 0x28;
  establish();
  sock = mock_socket(client->data_fds.at(0));
  auto set = [&](int level, int name, int value, unsigned len = sizeof(int)) {
    return sock->ops->setsockopt(sock, level, name, KERNEL_SOCKPTR(&value), len);
  };
  EXPECT_EQ(set(SOL_IP, IP_TOS, 0x28 | 2), 0);
  EXPECT_EQ(inet_sk(sock->sk)->tos, 0x28 | 2);
  EXPECT_EQ(set(SOL_IP, IP_TOS, 0x28), 0);
  for (int value : {0, 2, 0x2c, 0x128, -1}) EXPECT_EQ(set(SOL_IP, IP_TOS, value), -EPERM) << value;
  EXPECT_EQ(inet_sk(sock->sk)->tos, 0x28);
  EXPECT_EQ(set(SOL_IP, IP_TOS, 0x28, 1), -EINVAL);
  EXPECT_EQ(sock->ops->setsockopt(sock, SOL_IP, IP_TOS, KERNEL_SOCKPTR(nullptr), sizeof(int)), -EFAULT);
  EXPECT_EQ(set(SOL_IP, IP_RECVTOS, 1), 0);
  EXPECT_EQ(set(SOL_IPV6, IPV6_TCLASS, 0x2a), -EPERM) << "a socket of the other family";
  EXPECT_EQ(set(SOL_IPV6, IPV6_RECVTCLASS, 1), -EPERM);
}

// Options of SOL_SOCKET that would lead past the routes. Some kernels do not ask the module about them.
TEST_F(Data, ops__no_option_of_the_socket_leads_elsewhere) {
  establish();
#ifdef SOCK_CUSTOM_SOCKOPT
  int one = 1;
  EXPECT_TRUE(sock->flags & BIT(SOCK_CUSTOM_SOCKOPT));
  for (int name : {SO_BINDTODEVICE, SO_DONTROUTE, SO_REUSEADDR, SO_REUSEPORT, SO_ATTACH_REUSEPORT_CBPF})
    EXPECT_EQ(sock->ops->setsockopt(sock, SOL_SOCKET, name, KERNEL_SOCKPTR(&one), sizeof(one)), -EPERM) << name;
#else
  sock->sk->sk_bound_dev_if = 3;
  EXPECT_EQ(send(), -EPERM);
  sock->sk->sk_bound_dev_if = 0;
  sock_set_flag(sock->sk, SOCK_LOCALROUTE);
  EXPECT_EQ(send(), -EPERM);
  EXPECT_EQ(sock->ops->sendpage, nullptr);
#endif
}

TEST_F(Data, ops__link_local_socket_has_its_interface) {
  CmId link_listener;
  ASSERT_EQ(link_listener.listen(server->device, ipv6("fe80::2"), 7500), 0);
  ASSERT_EQ(active.connect(*client, ipv6("fe80::1"), 9000, ipv6("fe80::2"), 7500), 0);
  pump();
  ASSERT_EQ(link_listener.requests.size(), 1u);
  ASSERT_EQ(link_listener.requests[0]->accept(*server), 0);
  settle({client.get(), server.get()});
  ASSERT_TRUE(active.established());
  ASSERT_EQ(client->data_fds.size(), 1u);
  sock = mock_socket(client->data_fds[0]);
  EXPECT_NE(sock->sk->sk_bound_dev_if, 0);
  EXPECT_EQ(send(), 20);
  link_listener.drop_requests();
  link_listener.destroy();
}

// UDP walks the sockets of a port for each datagram. So there is one socket, and one table has the connections.
TEST_F(Data, rcv__one_look_up_whatever_the_number_of_connections) {
  constexpr int kMore = 100;
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<std::unique_ptr<CmId>> ids;
  establish();
  for (int i = 0; i < kMore; i++) {
    for (const char* netdev : {"eth0", "eth1"}) {
      processes.push_back(std::make_unique<Process>(netdev));
      processes.back()->caps = USIW_CAP_DATA_SOCKET;
      ASSERT_EQ(processes.back()->open_all(), 0);
    }
    Process &a = *processes[2 * i], &b = *processes[2 * i + 1];
    ids.push_back(std::make_unique<CmId>());
    ASSERT_EQ(ids.back()->connect(a, ipv4("192.0.2.1"), 9001 + i, ipv4("192.0.2.2"), kPort), 0);
    pump();
    ASSERT_EQ(listener.requests.size(), 2u + i);
    ASSERT_EQ(listener.requests.back()->accept(b), 0);
    settle({&a, &b});
    ASSERT_EQ(b.data_fds.size(), 1u);
  }
  EXPECT_EQ(mock_hashed(cpu_to_be16(kPort)), 1u);
  for (int i = 0; i < kMore; i += 9) {
    mock_datagram d = from_client(USIW_TRP_DATA, 60);
    d.from_port = cpu_to_be16(9001 + i);
    struct socket* theirs = mock_socket(processes[2 * i + 1]->data_fds[0]);
    const int before = mock_queued(theirs);
    const unsigned long lookups = mock_lookups, compared = mock_compared;
    ASSERT_TRUE(mock_deliver(&d, ~0u));
    EXPECT_EQ(mock_lookups - lookups, 1u);
    EXPECT_LE(mock_compared - compared, 3u);
    EXPECT_EQ(mock_queued(theirs), before + 1);
  }
  EXPECT_EQ(mock_queued(sock), 0);
  for (auto& id : ids) id->destroy();
  for (auto& p : processes) p->close();
  pump();
}

// The kernel builds aggregates before it looks a connection up, and a raw port cannot tell an aggregate from a
// datagram.
TEST_F(Data, gro__of_the_port_while_no_connection_of_it_taps) {
  client->caps = server->caps |= USIW_CAP_PORT_REPORT;
  client->close(), server->close();
  ASSERT_EQ(client->open_all(), 0);
  ASSERT_EQ(server->open_all(), 0);
  listener.destroy();
  ASSERT_EQ(listener.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
  establish();
  const uint32_t id = server->seen[0].conn_id;
  const auto merges = [&] { return mock_port_merges(cpu_to_be16(kPort)); };
  const auto set = [&](int on) {
    return sock->ops->setsockopt(sock, SOL_UDP, UDP_GRO, KERNEL_SOCKPTR(&on), sizeof(on));
  };
  ASSERT_EQ(server->report_port(id, USIW_PORT_SOCKET), 0);
  EXPECT_FALSE(merges());
  EXPECT_EQ(set(1), 0);
  EXPECT_TRUE(merges());
  EXPECT_TRUE(sock->sk->gro);
  ASSERT_EQ(server->report_port(id, USIW_PORT_PACKET), 0);
  EXPECT_FALSE(merges());
  ASSERT_EQ(server->report_port(id, USIW_PORT_SOCKET), 0);
  EXPECT_TRUE(merges());
  EXPECT_EQ(set(0), 0);
  EXPECT_FALSE(merges());
  EXPECT_EQ(set(1), 0);
  server->destroy_qp();
  pump();
  EXPECT_FALSE(merges());
  EXPECT_EQ(set(1), 0) << "the process has the file still";
  EXPECT_FALSE(merges());
}

// The socket of the process may have another route than that of the module.
TEST_F(Data, icmp__tells_the_processs_socket_the_path_mtu) {
  establish();
  mock_datagram big{};
  big.from = ipv4("192.0.2.2"), big.from_port = cpu_to_be16(kPort);
  big.to = ipv4("192.0.2.1"), big.to_port = cpu_to_be16(9000);
  big.len = 1400;
  mock_deliver_too_big(&big, 8, 1300);
  EXPECT_EQ(sock->sk->path_mtu, 1300u);
  EXPECT_FALSE(sk_dst_get(sock->sk)) << "the next send asks for the route";
  mock_deliver_too_big(&big, 8, 1200);
  EXPECT_EQ(sock->sk->path_mtu, 1300u);
}

// BPF programs of the process's cgroup may change the peer in connect(). The socket would then not be of this
// connection.
TEST_F(Data, open__refused_where_a_cgroup_changes_the_peer) {
  begin();
  const int before = mock_sockets;
  mock_bpf_peer = 1;
  const auto events = server->events();
  mock_bpf_peer = 0;
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].conn.data_fd, -EPERM);
  EXPECT_EQ(mock_sockets, before);
}

TEST_F(Data, close__with_its_connection_whoever_has_the_file) {
  establish();
  server->destroy_qp();
  pump();
  expect_off_the_network();
}

// A user in a user namespace of its own may have L2TP or sockmap take a socket whose sk_user_data is NULL. The module
// would take their data for a connection.
TEST_F(Data, close__leaves_the_socket_to_nobody_else) {
  establish();
  server->destroy_qp();
  pump();
  usiw_conn someone_elses{};
  kref_init(&someone_elses.kref);
  if (!sock->sk->sk_user_data) sock->sk->sk_user_data = &someone_elses;
  int one = 1;
  EXPECT_EQ(sock->ops->setsockopt(sock, SOL_UDP, UDP_GRO, KERNEL_SOCKPTR(&one), sizeof(one)), 0);
  EXPECT_NE(sock->sk->sk_user_data, &someone_elses);
  expect_off_the_network();
}

// Before 6.8, setsockopt(SO_LINGER) holds the lock while its argument is read from memory that never arrives.
TEST_F(Data, close__waits_for_no_lock_of_the_process) {
  establish();
  lock_sock(sock->sk);
  server->destroy_qp();
  pump();
  expect_off_the_network();
  release_sock(sock->sk);
}

TEST_F(Data, close__by_the_process_leaves_the_connection) {
  establish();
  mock_close(server->data_fds[0]);
  server->data_fds.clear();
  pump();
  EXPECT_TRUE(server->qp()->conn);
  mock_datagram d = from_client(USIW_TRP_DATA, 100);
  EXPECT_TRUE(mock_deliver(&d, ~0u));  // the kernel's socket receives it and drops it
}

TEST_F(Data, rcv__data_to_the_process_handshakes_to_the_module) {
  establish();
  for (const unsigned opcode : {USIW_TRP_DATA, USIW_TRP_SACK, USIW_TRP_SHUTDOWN}) {
    mock_datagram d = from_client(opcode, 60);
    const int before = mock_queued(sock);
    for (const unsigned linear : {~0u, 8u, 14u}) ASSERT_TRUE(mock_deliver(&d, linear));
    EXPECT_EQ(mock_queued(sock), before + 3) << opcode;
  }
  const int before = mock_queued(sock);
  for (const unsigned opcode : {USIW_TRP_REQ, USIW_TRP_ACCEPT, USIW_TRP_REJECT, USIW_TRP_CONFIRM, USIW_TRP_RESET})
    for (const unsigned len : {14u, 60u, 1400u}) {
      mock_datagram d = from_client(opcode, len);
      ASSERT_TRUE(mock_deliver(&d, ~0u));
    }
  mock_datagram empty = from_client(USIW_TRP_DATA, 0), torso = from_client(USIW_TRP_DATA, 13);
  mock_deliver(&empty, ~0u);
  mock_deliver(&torso, ~0u);
  EXPECT_EQ(mock_queued(sock), before);
  pump();
  EXPECT_TRUE(server->qp()->conn) << "none of these verifies";
}

// A CONFIRM in an aggregate with data works like any other.
TEST_F(Data, rcv__handshake_among_merged_datagrams) {
  begin();
  ASSERT_EQ(server->answer(), 1);
  sock = mock_socket(server->data_fds.at(0));
  ASSERT_TRUE(sock);
  usiw_conn* conn = server->qp()->conn;
  mock_datagram d = from_client(USIW_TRP_SACK, 3 * 14);
  put(d, 14, USIW_TRP_CONFIRM);
  put(d, 28, USIW_TRP_SACK);
  const __be32 psn = cpu_to_be32(conn->end.cm.peer_isn), ack = cpu_to_be32(conn->end.cm.local_isn);
  memcpy(d.data + 14, &psn, 4);
  memcpy(d.data + 18, &ack, 4);
  ASSERT_TRUE(mock_deliver_merged(&d, 14));
  EXPECT_EQ(mock_queued(sock), 1);
  for (mock_datagram lost; mock_take(&lost);) {
  }
  pump();
  EXPECT_EQ(conn->end.cm.state, USIW_CM_ESTABLISHED);
}

}  // namespace
}  // namespace kuser
