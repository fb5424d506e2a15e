// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_event.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

class Event : public Connected {
 protected:
  ssize_t read(size_t size) {
    file* events = mock_file(client->event_fd);
    events->f_flags |= O_NONBLOCK;
    return events->f_op->read(events, reinterpret_cast<char*>(records_), size, nullptr);
  }
  unsigned poll() {
    file* events = mock_file(client->event_fd);
    return events->f_op->poll(events, nullptr);
  }
  /// Connections with a record to read.
  static int unread(const usiw_evfile* events) {
    int n = 0;
    for (const list_head* at = events->conns.next; at != &events->conns; at = at->next) n++;
    return n;
  }
  usiw_event records_[4];
};

TEST_F(Event, read__whole_records_only) {
  EXPECT_EQ(read(0), -EINVAL);
  EXPECT_EQ(read(sizeof(usiw_event) - 1), -EINVAL);
  EXPECT_EQ(read(sizeof(usiw_event)), -EAGAIN);
  EXPECT_EQ(poll(), 0u);
}

TEST_F(Event, read__blocks_until_a_signal) {
  file* events = mock_file(client->event_fd);
  events->f_flags &= ~O_NONBLOCK;
  EXPECT_EQ(events->f_op->read(events, reinterpret_cast<char*>(records_), sizeof(records_), nullptr), -ERESTARTSYS);
}

TEST_F(Event, read__fault) {
  mock_netdev("eth0")->mtu = 1400;
  mock_notify_netdev(mock_netdev("eth0"), NETDEV_CHANGEMTU);
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(read(sizeof(records_)), -EFAULT);
}

TEST_F(Event, link__newest_state_once) {
  for (const unsigned mtu : {1400u, 1300u}) {
    mock_netdev("eth0")->mtu = mtu;
    mock_notify_netdev(mock_netdev("eth0"), NETDEV_CHANGEMTU);
  }
  EXPECT_EQ(poll(), EPOLLIN | EPOLLRDNORM);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_LINK);
  EXPECT_EQ(records_[0].link.mtu, 1300u);
  EXPECT_EQ(records_[0].qpn, 0u);
}

TEST_F(Event, gone__is_the_last_record) {
  const int fd = client->event_fd;
  client->event_fd = -1;  // the file outlives the context
  client->close();
  file* events = mock_file(fd);
  EXPECT_EQ(events->f_op->poll(events, nullptr), EPOLLIN | EPOLLRDNORM | EPOLLHUP);
  EXPECT_EQ(events->f_op->read(events, reinterpret_cast<char*>(records_), sizeof(records_), nullptr),
            static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_DEVICE_GONE);
  EXPECT_EQ(events->f_op->read(events, reinterpret_cast<char*>(records_), sizeof(records_), nullptr), 0);
  mock_close(fd);
}

// A process that never reads cannot keep connections that are over, and their ports, by unread records of them.
TEST_F(Event, forget__earlier_connections_of_the_qp) {
  for (int round = 0; round < 5; round++) {
    CmId id;
    ASSERT_EQ(id.connect(*client, ipv4("192.0.2.1"), 9000 + round, ipv4("192.0.2.2"), kPort), 0);
    pump();
    ASSERT_EQ(listener.requests[round]->accept(*server), 0);
    settle({server.get()});
    ASSERT_EQ(client->modify(IB_QPS_ERR), 0);
    settle({server.get()});
    EXPECT_EQ(unread(client->context()->events), 1);
    for (Process* process : {client.get(), server.get()}) {
      process->modify(IB_QPS_ERR);
      ASSERT_EQ(process->modify(IB_QPS_RESET), 0);
      ASSERT_EQ(process->modify(IB_QPS_INIT), 0);
    }
  }
  const usiw_evfile* events = client->context()->events;
  ASSERT_EQ(client->destroy_qp(), 0);
  EXPECT_EQ(unread(events), 0);
}

// The engine never had the connection, but its QP has receives to flush: KILL comes alone, and the QP is in ERR.
TEST_F(Event, kill__instead_of_unread_connect) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  pump();
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  pump();
  settle({server.get()});
  EXPECT_EQ(poll(), EPOLLIN | EPOLLRDNORM);
  ASSERT_EQ(active.id.device->ops->modify_qp != nullptr, true);
  ASSERT_EQ(client->modify(IB_QPS_ERR), 0);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_KILL);
  EXPECT_EQ(client->qp()->state, IB_QPS_ERR);
}

TEST_F(Event, order__of_one_connection) {
  establish();
  client_conn()->info.remote_mac[5] = 1;
  const u8 mac[ETH_ALEN] = {2, 0, 0, 0, 0, 9};
  usiw_evfile_push(client_conn(), USIW_EVENT_DISCONNECT);
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  usiw_evfile_neigh(client_conn(), mac, mac, 1500);
  usiw_evfile_neigh(client_conn(), mac, nullptr, 1500);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(3 * sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_NEIGH);
  EXPECT_EQ(records_[1].type, USIW_EVENT_PROBE);
  EXPECT_EQ(records_[2].type, USIW_EVENT_DISCONNECT);
}

TEST_F(Event, cancel__qp_is_going) {
  establish();
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  client->destroy_qp();
  EXPECT_EQ(read(sizeof(records_)), -EAGAIN);
}

TEST_F(Event, shutdown__drops_what_is_unread) {
  establish();
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  usiw_evfile_shutdown(client->context()->events);
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  usiw_evfile_kill(client_conn(), USIW_KILL_LOCAL);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_DEVICE_GONE);
}

}  // namespace
}  // namespace kuser
