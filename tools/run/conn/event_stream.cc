// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/event_stream.h"

#include <cerrno>
#include <cstring>

#include "tools/run/host/big_lock.h"

namespace usiw::run {

/// Removes the next record from the queue, LINK first, and copies it to @p record. Returns false if the queue is empty.
bool EventStream::next(usiw_event& record) {
  if (link_pending_) {
    link_pending_ = false;
    record = {};
    record.type = USIW_EVENT_LINK;
    record.link = link_;
    return true;
  }
  if (queue_.empty()) return false;
  const std::shared_ptr<ConnRecords> conn = queue_.front();
  usiw_cm_records_peek(&conn->unread, &record);
  record.qpn = conn->qpn;
  record.conn_id = conn->conn_id;
  if (usiw_cm_records_pop(&conn->unread, &record) == 0) queue_.pop_front();
  if (record.type == USIW_EVENT_CONNECT) {
    // Make the descriptor only now, when the provider reads the record, so that no descriptor of an unread record has
    // to be closed. If there is no descriptor, the provider uses only raw packets, or reports REFUSED.
    record.conn.data_fd = conn->sock->dup_data_fd();
    if (record.conn.data_fd < 0 && conn->sock->ignore_data() != 0) record.conn.flags &= ~unsigned{USIW_CONN_F_PACKET};
  }
  return true;
}

ssize_t EventStream::read(int, void* buf, size_t count) {
  if (count < sizeof(usiw_event)) return -EINVAL;
  return wait_for([&]() -> ssize_t {
    size_t done = 0;
    usiw_event record;
    while (done + sizeof record <= count && next(record)) {
      std::memcpy(static_cast<char*>(buf) + done, &record, sizeof record);
      done += sizeof record;
    }
    if (empty() && !gone_) set_readable(false);
    return done != 0 || gone_ ? static_cast<ssize_t>(done) : -EAGAIN;
  });
}

void EventStream::closed() {
  HoldBigLock hold;
  shutdown();
}

void EventStream::push(const std::shared_ptr<ConnRecords>& conn, usiw_event_type type, const usiw_conn_info& info) {
  if (gone_) return;
  if (conn->unread.pending == 0) queue_.push_back(conn);
  usiw_cm_records_push(&conn->unread, type, &info);
  set_readable(true);
}

void EventStream::push_link(const usiw_link_info& link) {
  if (gone_ || std::memcmp(&link, &link_, sizeof link) == 0) return;
  link_ = link;
  link_pending_ = true;
  set_readable(true);
}

void EventStream::cancel(ConnRecords& conn) {
  conn.unread.pending = 0;
  std::erase_if(queue_, [&](const std::shared_ptr<ConnRecords>& queued) { return queued.get() == &conn; });
  if (empty() && !gone_) set_readable(false);
}

void EventStream::shutdown() {
  queue_.clear();
  link_pending_ = false;
  gone_ = true;
  set_readable(true);
}

}  // namespace usiw::run
