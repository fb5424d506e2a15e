// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_event.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

void path(usiw_conn* conn, const u8* local_mac, const u8* remote_mac, u16 mtu) {
  usiw_conn_info& info = conn->end.info;
  const usiw_conn_info before = info;
  if (local_mac != nullptr) memcpy(info.local_mac, local_mac, ETH_ALEN);
  if (remote_mac != nullptr) memcpy(info.remote_mac, remote_mac, ETH_ALEN);
  if (mtu != 0) info.mtu = mtu;
  if (memcmp(&before, &info, sizeof info) != 0) usiw_evfile_push(conn, USIW_EVENT_PATH);
}

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
  static void change_mtu(unsigned mtu) {
    mock_netdev("eth0")->mtu = mtu;
    mock_notify_netdev(mock_netdev("eth0"), NETDEV_CHANGEMTU);
  }
  /// Returns the number of connections with an unread record.
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

// A record whose copy faults stays unread, because a connection whose CONNECT is lost would time out.
TEST_F(Event, read__fault_loses_nothing) {
  change_mtu(1400);
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(read(sizeof(records_)), -EFAULT);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  pump();
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  pump();
  settle({server.get()});
  mock_errors[MOCK_COPY] = 2;
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_LINK);
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(read(sizeof(records_)), -EFAULT);
  EXPECT_EQ(poll(), EPOLLIN | EPOLLRDNORM);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_CONNECT);
  EXPECT_EQ(poll(), 0u);
  const u32 id = records_[0].conn_id;
  EXPECT_EQ(client->report(USIW_REPORT_READY, id), 0);
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());

  // This holds for the last record, too.
  usiw_evfile_shutdown(client->context()->events);
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(read(sizeof(records_)), -EFAULT);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_DEVICE_GONE);
}

// A connection that changes while its record is copied is reported again. After its end nothing is reported any more.
TEST_F(Event, read__link_changes_meanwhile) {
  change_mtu(1400);
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    change_mtu(1300);
  };
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(2 * sizeof(usiw_event)));
  EXPECT_EQ(records_[0].link.mtu, 1400u);
  EXPECT_EQ(records_[1].link.mtu, 1300u);
  EXPECT_EQ(read(sizeof(records_)), -EAGAIN);
}

TEST_F(Event, read__neighbour_changes_meanwhile) {
  static constexpr u8 kFirst[ETH_ALEN] = {2, 0, 0, 0, 0, 8}, kSecond[ETH_ALEN] = {2, 0, 0, 0, 0, 9};
  static usiw_conn* conn;
  establish();
  conn = client_conn();
  path(conn, kFirst, kFirst, 1500);
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    path(conn, kFirst, kSecond, 1500);
  };
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(2 * sizeof(usiw_event)));
  EXPECT_EQ(records_[0].conn.remote_mac[5], 8);
  EXPECT_EQ(records_[1].type, USIW_EVENT_PATH);
  EXPECT_EQ(records_[1].conn.remote_mac[5], 9);
  EXPECT_EQ(read(sizeof(records_)), -EAGAIN);
}

TEST_F(Event, read__killed_meanwhile) {
  static Process* process;
  process = client.get();
  establish();
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    process->modify(IB_QPS_ERR);
  };
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(2 * sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_PROBE);
  EXPECT_EQ(records_[1].type, USIW_EVENT_ABORT);
  EXPECT_EQ(read(sizeof(records_)), -EAGAIN);
}

TEST_F(Event, read__qp_is_destroyed_meanwhile) {
  static Process* process;
  process = client.get();
  establish();
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    usiw_evfile_forget(process->context()->events, process->ibqp->qp_num);
  };
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(read(sizeof(records_)), -EAGAIN);
}

TEST_F(Event, read__context_ends_meanwhile) {
  static usiw_evfile* events;
  events = client->context()->events;
  change_mtu(1400);
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    usiw_evfile_shutdown(events);
  };
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(2 * sizeof(usiw_event)));
  EXPECT_EQ(records_[1].type, USIW_EVENT_DEVICE_GONE);
  EXPECT_EQ(read(sizeof(records_)), 0);
}

// The memory of the reader may let the copy wait for ever (userfaultfd). Nobody waits for the reader, and a device can
// be removed.
TEST_F(Event, read__holds_nothing_meanwhile) {
  static usiw_conn* conn;
  static int within;
  establish();
  conn = client_conn();
  usiw_evfile_push(conn, USIW_EVENT_PROBE);
  const int before = conn->kref.refcount.value;
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    within = conn->kref.refcount.value;
  };
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(within, before);
  EXPECT_EQ(conn->kref.refcount.value, before - 1);
}

TEST_F(Event, open__once_for_each_context) {
  EXPECT_EQ(client->open_events(), -EBUSY);
  mock_close(client->event_fd);
  client->event_fd = -1;
  EXPECT_EQ(client->open_events(), -EBUSY);
  EXPECT_EQ(client->event_fd, -1);
}

TEST_F(Event, open__each_failure) {
  Process other("eth0");
  for (int n = 0;; n++) {
    mock_inject(u64{1} << n);
    const int ret = other.open();
    const bool more = mock_fallible > static_cast<unsigned>(n);
    mock_inject(0);
    const bool open = other.event_fd >= 0;
    EXPECT_EQ(ret == 0, open) << n;
    other.close();
    if (!more) break;
  }
}

// The netdev changes after the provider has got its state, and before it has a stream.
TEST_F(Event, open__tells_what_was_missed) {
  Process other("eth0");
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    change_mtu(1400);
  };
  ASSERT_EQ(other.open(), 0);
  const auto records = other.events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_LINK);
  EXPECT_EQ(records[0].link.mtu, 1400u);
}

// A process that closes its stream loses the events of its connections only. They end like those of a process that
// never answers.
TEST_F(Event, closed__connections_time_out) {
  mock_close(client->event_fd);
  client->event_fd = -1;
  change_mtu(1400);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  pump();
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({server.get()});
  for (int i = 0; i < 200 && !active.told(IW_CM_EVENT_CONNECT_REPLY); i++) {
    mock_advance_ms(500);
    settle({server.get()});
  }
  EXPECT_TRUE(active.told(IW_CM_EVENT_CONNECT_REPLY));
  EXPECT_FALSE(active.established());
}

TEST_F(Event, closed__under_a_connection) {
  establish();
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  mock_close(client->event_fd);
  client->event_fd = -1;
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  path(client_conn(), records_[0].conn.local_mac, records_[0].conn.remote_mac, 1500);
  EXPECT_EQ(unread(client->context()->events), 0);
  EXPECT_EQ(client->modify(IB_QPS_ERR), 0);
  settle({server.get()});
}

// Another process has the descriptor: any reader takes the record, and the end of the context ends the stream for all.
TEST_F(Event, handed_over__end_of_the_context) {
  Process other("eth1");
  establish();
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  other.enter();
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_PROBE);
  file* theirs = mock_file(client->event_fd);
  const int fd = client->event_fd;
  client->event_fd = -1;
  client->close();
  other.enter();
  EXPECT_EQ(theirs->f_op->poll(theirs, nullptr), EPOLLIN | EPOLLRDNORM | EPOLLHUP);
  mock_close(fd);
}

TEST_F(Event, link__newest_state_once) {
  for (const unsigned mtu : {1400u, 1300u}) change_mtu(mtu);
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

// A process that never reads cannot keep ended connections, and their ports, by unread records.
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

// The engine never had the connection, but its QP has receives to flush. So there is only an ABORT, and the QP is in
// ERR.
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
  EXPECT_EQ(records_[0].type, USIW_EVENT_ABORT);
  EXPECT_EQ(client->qp()->state, IB_QPS_ERR);
}

TEST_F(Event, order__of_one_connection) {
  establish();
  client_conn()->end.info.remote_mac[5] = 1;
  const u8 mac[ETH_ALEN] = {2, 0, 0, 0, 0, 9};
  usiw_evfile_push(client_conn(), USIW_EVENT_DISCONNECT);
  usiw_evfile_push(client_conn(), USIW_EVENT_PROBE);
  path(client_conn(), mac, mac, 1500);
  path(client_conn(), mac, nullptr, 1500);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(3 * sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_PATH);
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
  usiw_evfile_push(client_conn(), USIW_EVENT_ABORT);
  ASSERT_EQ(read(sizeof(records_)), static_cast<ssize_t>(sizeof(usiw_event)));
  EXPECT_EQ(records_[0].type, USIW_EVENT_DEVICE_GONE);
}

}  // namespace
}  // namespace kuser
