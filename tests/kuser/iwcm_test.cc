// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_iwcm.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

class Iwcm : public Connected {
 protected:
  CmId& request() {
    EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort, "hello"), 0);
    settle({client.get(), server.get()});
    EXPECT_EQ(listener.requests.size(), 1u);
    return *listener.requests[0];
  }
  /// A request at a listener with a traffic class that includes ECN bits. The request gets another class.
  CmId& request_marked(CmId& marked) {
    marked.id.tos_set = true;
    marked.id.tos = 0x2b;
    EXPECT_EQ(marked.listen(server->device, ipv4("192.0.2.2"), kPort + 1), 0);
    EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort + 1), 0);
    settle({client.get(), server.get()});
    EXPECT_EQ(marked.requests.size(), 1u);
    CmId& passive_id = *marked.requests[0];
    passive_id.id.tos_set = true;
    passive_id.id.tos = 0x50;
    return passive_id;
  }
};

TEST_F(Iwcm, sockaddr__there_and_back) {
  for (const in6_addr& addr : {ipv4("192.0.2.7"), ipv6("2001:db8::7"), ipv6("fe80::7")}) {
    sockaddr_storage sa{};
    in6_addr back;
    __be16 port;
    usiw_addr_to_sockaddr(&sa, &addr, cpu_to_be16(77), 5);
    EXPECT_EQ(usiw_addr_from_sockaddr(&back, &port, &sa), 0);
    EXPECT_TRUE(ipv6_addr_equal(&addr, &back));
    EXPECT_EQ(port, cpu_to_be16(77));
    if (ipv6_addr_type(&addr) & IPV6_ADDR_LINKLOCAL) {
      EXPECT_EQ(reinterpret_cast<sockaddr_in6*>(&sa)->sin6_scope_id, 5u);
    }
  }
}

TEST_F(Iwcm, connect__bad_addresses) {
  const in6_addr own = ipv4("192.0.2.1"), peer = ipv4("192.0.2.2");
  const struct {
    in6_addr from, to;
    u16 from_port, to_port;
    int want;
  } cases[] = {
      {own, ipv4("0.0.0.1"), 1, 1, -EINVAL},     {own, ipv4("224.0.0.1"), 1, 1, -EINVAL},
      {own, ipv4("255.255.255.255"), 1, 1, -EINVAL}, {own, peer, 0, 1, -EINVAL},
      {own, peer, 1, 0, -EINVAL},                {own, ipv6("2001:db8::2"), 1, 1, -EINVAL},
      {ipv6("2001:db8::1"), ipv6("ff02::1"), 1, 1, -EINVAL}, {ipv6("2001:db8::1"), ipv6("::"), 1, 1, -EINVAL},
      {peer, own, 1, 1, -EADDRNOTAVAIL},         {ipv4("192.0.2.99"), peer, 1, 1, -EADDRNOTAVAIL},
      {own, ipv4("192.0.2.66"), 1, 1, -ENETUNREACH},
  };
  for (const auto& c : cases) EXPECT_EQ(active.connect(*client, c.from, c.from_port, c.to, c.to_port), c.want);
  EXPECT_EQ(mock_sockets, 1);
}

TEST_F(Iwcm, connect__by_a_device_of_another_netns) {
  net other{.hash_mix = 9, .loopback_dev = nullptr};
  active.user.route.addr.dev_addr.net = &other;
  EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -ENETUNREACH);
  EXPECT_EQ(mock_sent(), 0u);
  EXPECT_EQ(mock_sockets, 1);
}

TEST_F(Iwcm, connect__bad_parameters) {
  iw_cm_conn_param param{nullptr, 0, 4, 4, client->ibqp->qp_num};
  active.id.device = client->device;
  active.id.local_addr = endpoint(ipv4("192.0.2.1"), 9000);
  active.id.m_remote_addr = endpoint(ipv4("192.0.2.2"), kPort);
  const auto connect = [&](iw_cm_conn_param p) { return client->device->ops->iw_connect(&active.id, &p); };
  auto bad = param;
  bad.private_data_len = USIW_MAX_PRIVATE_DATA + 1;
  EXPECT_EQ(connect(bad), -EINVAL);
  bad = param;
  bad.ird = USIW_MAX_IRD + 1;
  EXPECT_EQ(connect(bad), -EINVAL);
  bad = param;
  bad.ord = USIW_MAX_ORD + 1;
  EXPECT_EQ(connect(bad), -EINVAL);
  bad = param;
  bad.qpn = 12345;
  EXPECT_EQ(connect(bad), -EINVAL);
  server->enter();
  EXPECT_EQ(connect(param), -EINVAL);  // another process's QP
  client->enter();
  active.id.local_addr.ss_family = AF_UNIX;
  EXPECT_EQ(connect(param), -EAFNOSUPPORT);
}

TEST_F(Iwcm, connect__mtu_is_too_small) {
  mock_netdev("eth0")->mtu = USIW_MIN_MTU - 1;
  EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -EMSGSIZE);
}

TEST_F(Iwcm, connect__again_while_the_old_one_lingers) {
  establish();
  active.disconnect(true);
  active.destroy();
  client->close();
  client = std::make_unique<Process>("eth0");
  ASSERT_EQ(client->open_all(), 0);
  CmId again;
  EXPECT_EQ(again.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
}

TEST_F(Iwcm, accept__longest_private_data) {
  CmId& passive_id = request();
  EXPECT_EQ(passive_id.accept(*server, std::string(USIW_MAX_PRIVATE_DATA, 'x')), 0);
  settle({client.get(), server.get()});
  EXPECT_EQ(active.events[0].private_data.size(), size_t{USIW_IW_MAX_PRIVATE_DATA});
}

// The process may post sends from then on (struct usiw_qp_stats).
TEST_F(Iwcm, accept__shows_in_the_page_of_the_qp) {
  const auto accepted = [](Process& p) {
    return reinterpret_cast<usiw_qp_stats*>(p.qp()->counters.page)->accepted;
  };
  CmId& passive_id = request();
  EXPECT_EQ(accepted(*server), 0u);
  ASSERT_EQ(passive_id.accept(*server), 0);
  EXPECT_EQ(accepted(*server), 1u);
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());
  EXPECT_EQ(accepted(*client), 0u) << "the end that connects";
}

TEST_F(Iwcm, accept__too_much_private_data_ends_the_request) {
  CmId& passive_id = request();
  EXPECT_EQ(passive_id.accept(*server, std::string(USIW_MAX_PRIVATE_DATA + 1, 'x')), -EINVAL);
  EXPECT_EQ(server->qp()->conn, nullptr);
  settle({client.get(), server.get()});
  ASSERT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_LT(active.events[0].status, 0);
}

TEST_F(Iwcm, accept__request_is_gone) {
  CmId& passive_id = request();
  mock_advance_ms(USIW_CM_REQ_RCVD_US / 1000 + USIW_CM_LINGER_US / 1000 + 1000);
  EXPECT_EQ(passive_id.accept(*server), -ECONNRESET);
  settle({client.get(), server.get()});
}

TEST_F(Iwcm, accept__with_a_qp_that_is_connected) {
  CmId& passive_id = request();
  ASSERT_EQ(passive_id.accept(*server), 0);
  settle({client.get(), server.get()});
  Process other("eth0");
  CmId second;
  ASSERT_EQ(other.open_all(), 0);
  ASSERT_EQ(second.connect(other, ipv4("192.0.2.1"), 9001, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get(), &other});
  ASSERT_EQ(listener.requests.size(), 2u);
  iw_cm_conn_param param{nullptr, 0, 1, 1, server->ibqp->qp_num};
  server->enter();
  EXPECT_EQ(server->device->ops->iw_accept(&listener.requests[1]->id, &param), -EINVAL);
  settle({client.get(), server.get(), &other});
  EXPECT_TRUE(second.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_FALSE(second.established());
  EXPECT_TRUE(active.established());
  EXPECT_NE(server->qp()->conn, nullptr);
}

TEST_F(Iwcm, accept__twice_ends_the_connection) {
  CmId& passive_id = request();
  ASSERT_EQ(passive_id.accept(*server), 0);
  Process other("eth1");
  other.task.mm = &server->mm;  // another context of the same process
  ASSERT_EQ(other.open_all(), 0);
  const auto* ops = server->device->ops;
  // iw_cm forgets its reference to the first QP, and usiw has to drop it.
  ib_qp* second = get_qp(server->device, other.ibqp->qp_num);
  ASSERT_NE(second, nullptr);
  ops->iw_add_ref(second);
  iw_cm_conn_param param{nullptr, 0, 1, 1, other.ibqp->qp_num};
  ib_qp* first = &server->qp()->proxy->ibqp;
  ops->iw_add_ref(first);  // the fixture drops its own reference later
  EXPECT_EQ(ops->iw_accept(&passive_id.id, &param), 0);
  settle({client.get(), server.get()});
  EXPECT_EQ(server->qp()->conn, nullptr);
  EXPECT_TRUE(passive_id.established());
  ops->iw_rem_ref(second);
}

// iw_cm would move the QP to ERR when the connection ends.
TEST_F(Iwcm, get_qp__of_another_process) {
  Process other("eth1");
  ASSERT_EQ(other.open_all(), 0);
  EXPECT_NE(get_qp(other.device, other.ibqp->qp_num), nullptr);
  server->enter();
  EXPECT_EQ(get_qp(other.device, other.ibqp->qp_num), nullptr);
}

// The address is removed after the check, and before the connection can be found by its 4-tuple.
TEST_F(Iwcm, connect__address_is_removed_meanwhile) {
  mock_on_random = [] {
    mock_on_random = nullptr;
    const in6_addr own = ipv4("192.0.2.1");
    mock_remove_addr(mock_netdev("eth0"), &own);
    mock_run();
  };
  EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -EADDRNOTAVAIL);
  EXPECT_EQ(client->qp()->conn, nullptr);
  EXPECT_EQ(mock_sent(), 0u);
}

// rdma_cm passes on the traffic class of the listener, but none that is set on a request.
TEST_F(Iwcm, accept__with_the_traffic_class_of_the_listener) {
  CmId marked;
  CmId& passive_id = request_marked(marked);
  EXPECT_EQ(passive_id.accept(*server), 0);
  ASSERT_GT(server->answer(), 0);
  EXPECT_EQ(server->seen.back().conn.tos, 0x28);
  mock_run();
  mock_datagram answer;
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_ACCEPT);
  EXPECT_EQ(answer.tos, 0x28);
}

TEST_F(Iwcm, reject__with_the_traffic_class_of_the_listener) {
  CmId marked;
  EXPECT_EQ(request_marked(marked).reject(), 0);
  mock_run();
  mock_datagram answer;
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_REJECT);
  EXPECT_EQ(answer.tos, 0x28);
}

TEST_F(Iwcm, reject__private_data_reaches_the_peer) {
  CmId& passive_id = request();
  EXPECT_EQ(passive_id.reject("no"), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(active.events.size(), 1u);
  EXPECT_EQ(active.events[0].status, -ECONNREFUSED);
  EXPECT_EQ(active.events[0].private_data, "no");
}

TEST_F(Iwcm, reject__after_accept) {
  CmId& passive_id = request();
  ASSERT_EQ(passive_id.accept(*server), 0);
  EXPECT_EQ(passive_id.reject(), 0);
  EXPECT_EQ(server->qp()->conn, nullptr);
  settle({client.get(), server.get()});
  EXPECT_FALSE(passive_id.established());
  EXPECT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
}

TEST_F(Iwcm, reject__request_is_gone) {
  CmId& passive_id = request();
  mock_advance_ms(USIW_CM_REQ_RCVD_US / 1000 + 10000);
  EXPECT_EQ(passive_id.reject(), -ECONNRESET);
  settle({client.get(), server.get()});
}

}  // namespace
}  // namespace kuser
