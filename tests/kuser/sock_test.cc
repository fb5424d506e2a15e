// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_sock.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

class Sock : public Connected {
 protected:
  static usiw_sock* port_of(const CmId& listening) {
    return static_cast<usiw_listener*>(listening.id.provider_data)->us;
  }
};

/// A socket of an unprivileged process with all options for sharing that it can set.
struct UserSocket {
  UserSocket(const in6_addr& addr, uint16_t port) {
    sockaddr_storage sa = endpoint(addr, port);
    sock_create_kern(&init_net, sa.ss_family, SOCK_DGRAM, 0, &sock);
    sock->sk->sk_reuse = sock->sk->sk_reuseport = 1;
    error = kernel_bind(sock, reinterpret_cast<sockaddr*>(&sa), sizeof(sa));
  }
  ~UserSocket() { sock_release(sock); }
  struct socket* sock = nullptr;
  int error;
};

int bind_as_user(const in6_addr& addr, uint16_t port) { return UserSocket(addr, port).error; }

TEST_F(Sock, open__each_failure) {
  for (const bool v6 : {false, true}) {
    for (int n = 0; n < (v6 ? 3 : 2); n++) {
      mock_errors[MOCK_SOCKET] = u64{1} << n;
      EXPECT_LT(active.connect(*client, v6 ? ipv6("2001:db8::1") : ipv4("192.0.2.1"), 9000,
                               v6 ? ipv6("2001:db8::2") : ipv4("192.0.2.2"), kPort),
                0);
      EXPECT_EQ(mock_sockets, 1);  // the listener's
    }
  }
}

TEST_F(Sock, open__port_is_the_kernels_for_all_addresses) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 7400, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(bind_as_user(ipv4("192.0.2.1"), 7400), -EADDRINUSE);
  EXPECT_EQ(bind_as_user(ipv4("127.0.0.1"), 7400), -EADDRINUSE);
  EXPECT_EQ(bind_as_user(ipv4("192.0.2.1"), kPort), -EADDRINUSE);
  EXPECT_EQ(bind_as_user(ipv4("192.0.2.1"), 7401), 0);
}

// The socket of the user was there first, and would get the datagrams of the listener's peers.
TEST_F(Sock, open__not_beside_a_users_socket_that_allows_reuse) {
  UserSocket user(ipv4("192.0.2.2"), 7400);
  CmId any;
  ASSERT_EQ(user.error, 0);
  EXPECT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7400), -EADDRINUSE);
}

// BPF programs of the process's cgroup may change the address or port of bind. The module would then serve a port that
// it does not have.
TEST_F(Sock, open__refused_where_a_cgroup_changes_address_or_port) {
  for (const char* addr : {"192.0.2.2", "0.0.0.0", "2001:db8::2", "::"}) {
    for (const int how : {MOCK_BPF_BINDS_A_PORT, MOCK_BPF_BINDS_AN_ADDRESS}) {
      CmId one;
      const int before = mock_sockets;
      mock_bpf_binds = how;
      EXPECT_EQ(one.listen(server->device, strchr(addr, ':') ? ipv6(addr) : ipv4(addr), 7400), -EPERM) << addr << how;
      mock_bpf_binds = 0;
      if (one.id.provider_data) one.destroy();
      EXPECT_EQ(mock_sockets, before);
    }
  }
}

TEST_F(Sock, get__shared_by_connections_of_a_port) {
  Process other("eth0");
  CmId second;
  ASSERT_EQ(other.open_all(), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_EQ(second.connect(other, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort + 1), 0);
  EXPECT_EQ(mock_sockets, 2);
  EXPECT_EQ(client_conn()->sock, other.qp()->conn->sock);
}

TEST_F(Sock, get__shared_with_a_wildcard_listener) {
  CmId any;
  ASSERT_EQ(any.listen(client->device, ipv4("0.0.0.0"), 7400), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 7400, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(mock_sockets, 2);
}

TEST_F(Sock, get__one_for_listener_and_connections_of_any_address) {
  CmId on_eth0;
  ASSERT_EQ(on_eth0.listen(client->device, ipv4("192.0.2.1"), kPort), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), kPort, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(mock_sockets, 1);
  EXPECT_EQ(client_conn()->sock, port_of(listener));
}

TEST_F(Sock, get__link_local_is_found_by_its_link) {
  CmId on_eth1;
  ASSERT_EQ(on_eth1.listen(server->device, ipv6("fe80::2"), 7500), 0);
  ASSERT_EQ(active.connect(*client, ipv6("fe80::1"), 9000, ipv6("fe80::2"), 7500), 0);
  EXPECT_EQ(client_conn()->end.tuple.scope, u32(mock_netdev("eth0")->ifindex));
  settle({client.get(), server.get()});
  ASSERT_EQ(on_eth1.requests.size(), 1u);
}

TEST_F(Sock, get__equal_link_local_ends_on_two_links) {
  CmId other;
  mock_netdev("eth1")->addrs[3] = ipv6("fe80::1");
  ASSERT_EQ(active.connect(*client, ipv6("fe80::1"), 9000, ipv6("fe80::9"), 7500), 0);
  ASSERT_EQ(other.connect(*server, ipv6("fe80::1"), 9000, ipv6("fe80::9"), 7500), 0);
  EXPECT_NE(client_conn(), server_conn());
  EXPECT_EQ(usiw_conn_lookup(&init_net, usiw_conn_tuple(client_conn())), client_conn());
  usiw_conn_put(client_conn());
  EXPECT_EQ(usiw_conn_lookup(&init_net, usiw_conn_tuple(server_conn())), server_conn());
  usiw_conn_put(server_conn());
  client->close();
  server->close();
}

// rdma_cm chooses a port without checking UDP's.
TEST_F(Sock, get_active__picked_port_is_taken) {
  UserSocket user(ipv4("127.0.0.1"), 40123);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 40123, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_NE(client_conn()->end.tuple.local_port, cpu_to_be16(40123));
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(&active.id.local_addr)->sin_port, client_conn()->end.tuple.local_port);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(&listener.requests[0]->id.m_remote_addr)->sin_port,
            client_conn()->end.tuple.local_port);
}

TEST_F(Sock, get_active__bound_port_is_taken) {
  UserSocket user(ipv4("127.0.0.1"), 9000);
  EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -EADDRINUSE);
}

// rdma_cm has a table for each port space, so another user could get the port of the listener there.
TEST_F(Sock, get__in_the_port_space_of_connections_only) {
  for (const int space : {RDMA_PS_IB, RDMA_PS_UDP, RDMA_PS_IPOIB}) {
    CmId other, any;
    active.user.ps = other.user.ps = any.user.ps = space;
    EXPECT_EQ(other.listen(client->device, ipv4("192.0.2.1"), 7400), -EPROTONOSUPPORT) << space;
    EXPECT_EQ(any.listen(client->device, ipv4("0.0.0.0"), 7400), 0) << "a listener on all devices of the host";
    const in6_addr local = ipv4("192.0.2.1");
    EXPECT_FALSE(mock_port_is_open(&local, cpu_to_be16(7400)));
    EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), kPort, ipv4("192.0.2.2"), 9000), -EPROTONOSUPPORT) << space;
    any.destroy();
  }
}

// Both ends connect to each other between the same ports. One attempt ends at once, so that not both time out.
TEST_F(Sock, connect__of_both_ends_at_once) {
  CmId back;
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_EQ(back.connect(*server, ipv4("192.0.2.2"), kPort, ipv4("192.0.2.1"), 9000), 0);
  const bool first = client_conn()->end.cm.local_isn < server_conn()->end.cm.local_isn;
  settle({client.get(), server.get()});
  const auto over = [](const CmId& id) {
    return !id.events.empty() && id.events.back().type == IW_CM_EVENT_CONNECT_REPLY &&
           id.events.back().status == -ECONNREFUSED;
  };
  EXPECT_NE(over(active), over(back));
  EXPECT_EQ(over(back), first);
  // The listener of the port gets the attempt that goes on.
  EXPECT_EQ(listener.requests.size(), first ? 1u : 0u);
  client->close();
  server->close();
}

TEST_F(Sock, put__port_is_free_afterwards) {
  const in6_addr local = ipv4("192.0.2.2");
  EXPECT_TRUE(mock_port_is_open(&local, cpu_to_be16(kPort)));
  listener.destroy();
  EXPECT_FALSE(mock_port_is_open(&local, cpu_to_be16(kPort)));
}

TEST_F(Sock, send__error_is_made_good_by_repetition) {
  mock_errors[MOCK_SOCKET] = 4;  // the third call: sendmsg, after create and bind
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(mock_sent(), 0u);
  mock_advance_ms(USIW_CM_RETRY_FIRST_US / 1000 + 1);
  EXPECT_EQ(mock_sent(), 1u);
}

// The TOS of rdma_set_option applies to the handshake, too.
TEST_F(Sock, send__with_the_traffic_class_of_the_connection) {
  for (const bool v6 : {false, true}) {
    active.id.tos_set = true;
    active.id.tos = 0x28;
    ASSERT_EQ(active.connect(*client, v6 ? ipv6("2001:db8::1") : ipv4("192.0.2.1"), 9000,
                             v6 ? ipv6("2001:db8::2") : ipv4("192.0.2.2"), kPort),
              0);
    mock_datagram req;
    ASSERT_TRUE(mock_take(&req));
    EXPECT_EQ(req.tos, 0x28);
    start_anew({&active});
  }
}

// The ECN bits belong to the network: handshakes do not claim to support ECN.
TEST_F(Sock, send__without_the_bits_of_ecn) {
  active.id.tos_set = true;
  active.id.tos = 0xff;
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  EXPECT_EQ(req.tos, 0xfc);
}

// Datagrams that wait when the last user goes must not be handled afterwards: the worker would read the netns, which
// waits for users only.
TEST_F(Sock, put__queued_datagrams_go_with_it) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_deliver(&req, 8);
  EXPECT_EQ(static_cast<usiw_listener*>(listener.id.provider_data)->us->rx_len, 1u);
  listener.destroy();
  mock_run();
  EXPECT_TRUE(listener.requests.empty());
  EXPECT_EQ(mock_sent(), 0u);
}

}  // namespace
}  // namespace kuser
