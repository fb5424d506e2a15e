// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "event_stream.h"

#include <cerrno>
#include <cstring>

namespace usiw::run {

ssize_t EventStream::read(int, void* buf, size_t count) {
  if (count < sizeof(usiw_event)) return -EINVAL;
  return wait_for([&]() -> ssize_t {
    size_t done = 0;
    while (done + sizeof(usiw_event) <= count && !records_.empty()) {
      Record& r = records_.front();
      if (r.event.type == USIW_EVENT_CONNECT) {
        // Made here, so that whoever reads the record owns the descriptor, and nobody else does.
        // What cannot be made is answered by the provider's REFUSED, or it goes by raw packets alone.
        usiw_conn_info& info = r.event.conn;
        info.data_fd = r.conn->sock()->dup_data_fd();
        if (info.data_fd < 0 && r.conn->sock()->ignore_data() != 0) info.flags &= ~unsigned{USIW_CONN_F_PACKET};
      }
      std::memcpy(static_cast<char*>(buf) + done, &r.event, sizeof r.event);
      done += sizeof r.event;
      records_.pop_front();
    }
    if (records_.empty() && !gone_) set_readable(false);
    return done != 0 || gone_ ? static_cast<ssize_t>(done) : -EAGAIN;
  });
}

void EventStream::closed() {
  World hold(world());
  shutdown();
}

void EventStream::push(const std::shared_ptr<Conn>& conn, uint32_t qpn, usiw_event_type type) {
  if (gone_) return;
  for (Record& r : records_)
    if (r.conn == conn && r.event.type == type) {
      r.event.conn = conn->info();
      return;
    }
  Record r{conn, {}};
  r.event.type = type;
  r.event.qpn = qpn;
  r.event.conn_id = conn->id();
  r.event.conn = conn->info();
  records_.push_back(r);
  set_readable(true);
}

void EventStream::push_link(const usiw_link_info& link) {
  if (gone_ || std::memcmp(&link, &link_, sizeof link) == 0) return;
  link_ = link;
  Record r{nullptr, {}};
  r.event.type = USIW_EVENT_LINK;
  r.event.link = link;
  records_.push_back(r);
  set_readable(true);
}

void EventStream::cancel(const Conn& conn) {
  std::erase_if(records_, [&](const Record& r) { return r.conn.get() == &conn; });
  if (records_.empty() && !gone_) set_readable(false);
}

void EventStream::kill(const std::shared_ptr<Conn>& conn, uint32_t qpn, usiw_kill_reason reason) {
  cancel(*conn);  // out of date
  push(conn, qpn, USIW_EVENT_KILL);
  if (!records_.empty()) records_.back().event.conn.reason = reason;
}

void EventStream::shutdown() {
  records_.clear();
  gone_ = true;
  set_readable(true);
}

}  // namespace usiw::run
