// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_conn.c and kmod/usiw_conn_act.c, in their order.
#include "fixture.h"
#include "mock/state.h"

namespace kuser {
namespace {

class Conn : public Connected {};

// rdma_cm waits for the answer, and the peer may send PENDING for as long as it likes.
TEST_F(Conn, flush__who_waits_for_an_answer_gets_one_when_the_device_goes) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get()});
  mock_take_from_client(client->device);
  mock_run();
  EXPECT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_EQ(client_conn(), nullptr);
  CmId second;
  EXPECT_EQ(second.connect(*client, ipv4("192.0.2.1"), 9001, ipv4("192.0.2.2"), kPort), -ENODEV);
  mock_give_to_client(client->device);  // rdma dev set netns
  EXPECT_NE(second.connect(*client, ipv4("192.0.2.1"), 9001, ipv4("192.0.2.2"), kPort), -ENODEV);
}

TEST_F(Conn, alloc__device_is_dying) {
  usiw_device* dev = to_usiw_dev(client->device);
  dev->dying = true;
  EXPECT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -ENODEV);
  const in6_addr local = ipv4("192.0.2.1");
  EXPECT_FALSE(mock_port_is_open(&local, cpu_to_be16(9000)));
  dev->dying = false;
}

TEST_F(Conn, insert__same_tuple_twice) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  Process other("eth0");
  CmId second;
  ASSERT_EQ(other.open_all(), 0);
  EXPECT_EQ(second.connect(other, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -EADDRINUSE);
  EXPECT_EQ(other.qp()->conn, nullptr);
}

TEST_F(Conn, attach__qp_has_a_connection) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  CmId second;
  // iw_cm does not get the QP at all.
  EXPECT_EQ(second.connect(*client, ipv4("192.0.2.1"), 9001, ipv4("192.0.2.2"), kPort), -EINVAL);
  iw_cm_conn_param param{nullptr, 0, 1, 1, client->ibqp->qp_num};
  second.id.local_addr = endpoint(ipv4("192.0.2.1"), 9001);
  second.id.m_remote_addr = endpoint(ipv4("192.0.2.2"), kPort);
  EXPECT_EQ(client->device->ops->iw_connect(&second.id, &param), -EISCONN);
}

/// All other tests rely on these asserts, which report a caller that does not hold the lock.
TEST_F(Conn, lock__who_does_not_hold_it_is_found) {
  establish();
  usiw_conn* conn = client_conn();
  ASSERT_NE(conn, nullptr);
  mutex_lock(&conn->lock);
  usiw_conn_host.follow(&conn->end, nullptr);
  usiw_conn_leave_backlog(&conn->end);
  mutex_unlock(&conn->lock);
  EXPECT_EQ(violations(), "");
  usiw_conn_host.follow(&conn->end, nullptr);
  usiw_conn_leave_backlog(&conn->end);
  EXPECT_EQ(violations(),
            "&conn->lock has to be held\nnot true: lockdep_is_held(&conn->lock) || !kref_read(&conn->kref)\n");
  mock::violations.clear();
}

/// The same for functions of other files. Each is called with the locks that it needs, and without them.
TEST_F(Conn, lock__asserts_of_other_files) {
  establish();
  usiw_conn* conn = client_conn();
  ASSERT_NE(conn, nullptr);
  const std::function<void()> calls[] = {
      [&] { usiw_conn_arm(&conn->end); },
      [&] { usiw_conn_host.data(&conn->end, USIW_CM_DATA_IS_OPEN); },
      [&] { usiw_data_by_packets(conn, conn->by_packets); },
      [&] { usiw_data_is_open(conn); },
      [&] { usiw_data_close(conn); },
  };
  for (const auto& call : calls) {
    mutex_lock(&conn->lock);
    call();
    mutex_unlock(&conn->lock);
    EXPECT_EQ(violations(), "") << &call - calls;
    call();
    EXPECT_NE(violations(), "") << &call - calls;
    mock::violations.clear();
  }
}

// iw_cm takes its reference in the same section with interrupts off, and nothing else keeps the proxy.
TEST_F(Conn, get_qp__outside_of_RCU_is_found) {
  EXPECT_NE(get_qp(client->device, client->ibqp->qp_num), nullptr);
  EXPECT_EQ(violations(), "");
  client->device->ops->iw_get_qp(client->device, client->ibqp->qp_num);
  EXPECT_EQ(violations(), "not under RCU: the QP's proxy may go\n");
  mock::violations.clear();
}

TEST_F(Conn, established__both_ends_agree) {
  establish();
  ASSERT_EQ(client->seen.size(), 1u);
  ASSERT_EQ(server->seen.size(), 1u);
  const usiw_event &c = client->seen[0], &s = server->seen[0];
  EXPECT_EQ(c.type, USIW_EVENT_CONNECT);
  EXPECT_EQ(c.qpn, client->ibqp->qp_num);
  EXPECT_EQ(c.reserved, 0u);
  EXPECT_EQ(c.conn.flags, USIW_CONN_F_INITIATOR);
  EXPECT_EQ(s.conn.flags, 0u);
  EXPECT_EQ(c.conn.snd_psn, s.conn.rcv_psn);
  EXPECT_EQ(c.conn.rcv_psn, s.conn.snd_psn);
  EXPECT_EQ(c.conn.local_port, s.conn.remote_port);
  EXPECT_EQ(memcmp(c.conn.local_addr, s.conn.remote_addr, 16), 0);
  EXPECT_LE(c.conn.ord, s.conn.ird);
  EXPECT_LE(s.conn.ord, c.conn.ird);
  EXPECT_EQ(c.conn.mtu, 1500);
  EXPECT_EQ(client->qp()->state, IB_QPS_RTS);
  EXPECT_EQ(server->qp()->state, IB_QPS_RTS);
  EXPECT_EQ(passive->events[0].private_data, "hello");
  EXPECT_EQ(active.events[0].private_data, "welcome");
}

TEST_F(Conn, disconnect__orderly) {
  establish();
  EXPECT_EQ(active.disconnect(), 0);
  EXPECT_EQ(client->qp()->state, USIW_QPS_CLOSING);
  const uint32_t server_id = server_conn()->end.id;
  const auto records = client->events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_DISCONNECT);
  client->report(USIW_REPORT_CLOSED, records[0].conn_id);
  server->report(USIW_REPORT_PEER_CLOSED, server_id);
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.told(IW_CM_EVENT_CLOSE));
  EXPECT_EQ(client->qp()->state, IB_QPS_ERR);
  mock_advance_ms(15000);
  settle({client.get(), server.get()});
  EXPECT_TRUE(passive->told(IW_CM_EVENT_CLOSE));
}

// The user's own SQD does not affect the connection. iw_cm's SQD follows it (rdma_disconnect).
TEST_F(Conn, disconnect__out_of_SQD) {
  establish();
  ASSERT_EQ(client->modify(IB_QPS_SQD), 0);
  EXPECT_TRUE(client->events().empty());
  EXPECT_EQ(client_conn()->end.cm.state, USIW_CM_ESTABLISHED);
  ASSERT_EQ(client->modify(IB_QPS_RTS), 0);
  ASSERT_EQ(client->modify(IB_QPS_SQD), 0);
  EXPECT_EQ(active.disconnect(), 0);
  EXPECT_EQ(client->qp()->state, USIW_QPS_CLOSING);
  EXPECT_EQ(client->modify(IB_QPS_RTS), -EINVAL);
  ASSERT_EQ(client->modify(IB_QPS_SQD), 0);
  EXPECT_EQ(client->qp()->state, USIW_QPS_CLOSING);
}

TEST_F(Conn, abort__peer_is_told) {
  establish();
  EXPECT_EQ(active.disconnect(true), 0);
  EXPECT_EQ(client->qp()->conn, nullptr);
  settle({client.get(), server.get()});
  EXPECT_EQ(server->qp()->conn, nullptr);
  EXPECT_TRUE(passive->told(IW_CM_EVENT_DISCONNECT));
  EXPECT_TRUE(passive->told(IW_CM_EVENT_CLOSE));
  ASSERT_EQ(server->seen.size(), 2u);
  EXPECT_EQ(server->seen[1].type, USIW_EVENT_ABORT);
  EXPECT_EQ(server->seen[1].conn.reason, USIW_ABORT_PEER_RESET);
}

TEST_F(Conn, report__stale_or_too_early) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(client->report(USIW_REPORT_READY, client_conn()->end.id), 0);
  EXPECT_EQ(client_conn()->end.cm.state, USIW_CM_REQ_SENT);
  EXPECT_EQ(client->report(USIW_REPORT_FAILED, client_conn()->end.id + 1, -EIO), 0);
  EXPECT_EQ(client_conn()->end.cm.state, USIW_CM_REQ_SENT);
}

TEST_F(Conn, report__kinds) {
  establish();
  EXPECT_EQ(client->report(USIW_REPORT_FAILED, client_conn()->end.id, -ETIMEDOUT, IB_EVENT_QP_FATAL), 0);
  EXPECT_EQ(client->async_events, std::vector<ib_event_type>{IB_EVENT_QP_FATAL});
  EXPECT_TRUE(active.told(IW_CM_EVENT_DISCONNECT));
  EXPECT_EQ(client->qp()->conn, nullptr);
}

TEST_F(Conn, unanswered__times_out) {
  const in6_addr nobody = ipv4("198.51.100.9");
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, nobody, kPort), 0);
  mock_advance_ms(10000);
  ASSERT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_EQ(active.events[0].status, -ETIMEDOUT);
  mock_datagram d;
  int count = 0;
  while (mock_take(&d)) count++;
  EXPECT_GE(count, USIW_CM_REQ_TRIES);
}

TEST_F(Conn, awaited__owner_is_dying) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  client->kill();
  mock_advance_ms(USIW_OWNER_US / 1000 + 1);
  EXPECT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
}

TEST_F(Conn, awaited__owner_has_no_memory_left) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  mock_mm_exit(&client->mm);
  mock_run();
  EXPECT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
}

// A child of fork() has the descriptors, so they stay open. The peer is notified without a timeout.
TEST_F(Conn, process_dies__its_descriptors_stay_open) {
  establish();
  mock_mm_exit(&client->mm);
  settle({server.get()});
  EXPECT_TRUE(active.told(IW_CM_EVENT_CLOSE));
  EXPECT_TRUE(passive->told(IW_CM_EVENT_DISCONNECT));
  EXPECT_EQ(client_conn(), nullptr);
  EXPECT_EQ(server_conn(), nullptr);
  EXPECT_EQ(client->qp()->state, u32{USIW_QPS_ERR});
}

// The other QPs of the process end too, including those without a connection. The QP of another process on the device
// goes on.
TEST_F(Conn, process_dies__all_its_qps_and_no_others) {
  establish();
  Process other("eth0");
  CmId connecting, elsewhere;
  ASSERT_EQ(other.open_all(), 0);
  ASSERT_EQ(elsewhere.connect(other, ipv4("192.0.2.1"), 9001, ipv4("198.51.100.9"), kPort), 0);
  ib_qp* first = client->ibqp;
  ASSERT_EQ(client->create_qp(), 0);
  ASSERT_EQ(client->modify(IB_QPS_INIT), 0);
  ASSERT_EQ(connecting.connect(*client, ipv4("192.0.2.1"), 9002, ipv4("198.51.100.9"), kPort), 0);
  mock_mm_exit(&client->mm);
  settle({server.get()});
  EXPECT_TRUE(passive->told(IW_CM_EVENT_DISCONNECT));
  EXPECT_TRUE(connecting.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_FALSE(elsewhere.told(IW_CM_EVENT_CONNECT_REPLY));
  ASSERT_EQ(client->destroy_qp(), 0);
  client->ibqp = first;
}

// rdma_cm was loaded after the module. So ib_core takes the device from it first, and it waits for the answer.
TEST_F(Conn, awaited__device_is_taken_from_rdma_cm_first) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("198.51.100.9"), kPort), 0);
  mock_advance_ms(USIW_OWNER_US / 1000 + 1);
  EXPECT_FALSE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  client->device->unregistration_lock.dep.held = 1;  // by another thread
  mock_advance_ms(USIW_OWNER_US / 1000 + 1);
  EXPECT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_EQ(client_conn(), nullptr);
  client->device->unregistration_lock.dep.held = 0;
  EXPECT_FALSE(to_usiw_dev(client->device)->dying) << "it may have been given back";
}

/// Each failure may be logged, at most ten a minute. The fixture judges violations, such as a warning.
TEST_F(Conn, log__many_failures_draw_no_warning) {
  for (uint16_t i = 0; i < 12; i++) {
    Process process("eth0");
    CmId id;
    ASSERT_EQ(process.open_all(), 0);
    ASSERT_EQ(id.connect(process, ipv4("192.0.2.1"), static_cast<uint16_t>(9100 + i), ipv4("198.51.100.9"), kPort), 0);
    mock_advance_ms(7000);
    EXPECT_TRUE(id.told(IW_CM_EVENT_CONNECT_REPLY));
  }
  EXPECT_EQ(violations(), "");
}

TEST_F(Conn, install__waits_for_the_neighbour) {
  mock_neigh_known = false;
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  pump();
  ASSERT_EQ(listener.requests.size(), 1u);
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({client.get(), server.get()});
  EXPECT_EQ(server_conn()->end.engine, USIW_CM_ENGINE_RESOLVING);
  EXPECT_TRUE(server->seen.empty());
  mock_neigh_known = true;
  mock_advance_ms(USIW_CM_RESOLVE_US / 1000 + 1);
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());
}

TEST_F(Conn, install__neighbour_never_known) {
  mock_neigh_known = false;
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  pump();
  ASSERT_EQ(listener.requests.size(), 1u);
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  for (int i = 0; i < 40; i++) {
    mock_advance_ms(1000);
    settle({client.get(), server.get()});
  }
  ASSERT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_LT(active.events[0].status, 0);
}

TEST_F(Conn, neighbour_changes__provider_is_told) {
  establish();
  const u8 mac[ETH_ALEN] = {2, 0, 0, 0, 0, 0x77};
  const in6_addr hop = ipv4("192.0.2.2");
  server_conn();
  client->qp()->conn->end.info.remote_mac[5] = 0x11;
  mock_neigh_update(mock_netdev("eth0"), &hop, mac);
  mock_advance_ms(USIW_NEIGH_DELAY_MS + 1);
  const auto records = client->events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_PATH);
  EXPECT_EQ(memcmp(records[0].conn.remote_mac, mac, ETH_ALEN), 0);
}

TEST_F(Conn, confirm_is_lost__data_counts) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  pump();
  ASSERT_EQ(listener.requests.size(), 1u);
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  pump();
  server->answer();
  mock_datagram accept;
  ASSERT_TRUE(mock_take(&accept));
  mock_deliver(&accept, 100);
  mock_run();
  client->answer();
  mock_datagram confirm;
  ASSERT_TRUE(mock_take(&confirm));
  EXPECT_EQ(server_conn()->end.cm.state, USIW_CM_ACCEPT_SENT);
  EXPECT_EQ(atomic_read(&server_conn()->sock->confirm_waiters), 1);

  usiw_trp_hdr hdr{};
  hdr.psn = cpu_to_be32(server_conn()->end.cm.peer_isn + USIW_TRP_MAX_WINDOW);  // outside
  hdr.ack_psn = cpu_to_be32(server_conn()->end.cm.local_isn);
  mock_datagram data = confirm;
  data.len = sizeof(hdr);
  memcpy(data.data, &hdr, sizeof(hdr));
  mock_deliver(&data, 0);
  mock_run();
  EXPECT_EQ(server_conn()->end.cm.state, USIW_CM_ACCEPT_SENT);
  hdr.psn = cpu_to_be32(server_conn()->end.cm.peer_isn);
  memcpy(data.data, &hdr, sizeof(hdr));
  mock_deliver(&data, 0);
  mock_run();
  EXPECT_EQ(server_conn()->end.cm.state, USIW_CM_ESTABLISHED);
  EXPECT_EQ(atomic_read(&server_conn()->sock->confirm_waiters), 0);
}

TEST_F(Conn, flush_device__connections_go_at_once) {
  establish();
  mock_notify_netdev(mock_netdev("eth1"), NETDEV_UNREGISTER);
  server->close();
  listener.destroy();
  mock_grace_period();
  const u64 before = mock_now_us;
  mock_unregister(mock_device("eth1"));
  EXPECT_LT(mock_now_us - before, 2000000u);
  settle({client.get()});
  EXPECT_TRUE(active.told(IW_CM_EVENT_DISCONNECT));
}

}  // namespace
}  // namespace kuser
