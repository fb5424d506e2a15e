// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file event_stream.h
/// Event stream of a context: the records of uapi/usiw_abi.h for the provider.
#ifndef USIW_RUN_EVENT_STREAM_H
#define USIW_RUN_EVENT_STREAM_H

#include <deque>

#include "tools/run/conn/conn.h"
#include "tools/run/libc/event_file.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

class EventStream final : public EventFile {
 public:
  ssize_t read(int fd, void* buf, size_t count) override;
  /// The program has closed the last descriptor: as the end of the context.
  void closed() override;

  // All [big lock].
  /// Queues a record of @p conn. ABORT replaces those that are unread: cm/usiw_cm_records.h.
  void push(const std::shared_ptr<Conn>& conn, uint32_t qpn, usiw_event_type type, const usiw_conn_info& info);
  /// The device's interface is like this now.
  void push_link(const usiw_link_info& link);
  /// The QP is going: no record of it may be read any more.
  void cancel(const Conn& conn);
  /// The context ends: the end of the file.
  void shutdown();

 private:
  struct Queued {
    std::shared_ptr<Conn> conn;
    uint32_t qpn;
  };
  bool empty() const { return queue_.empty() && !link_pending_; }
  bool next(usiw_event& record);

  std::deque<Queued> queue_;  ///< connections with unread records
  bool gone_ = false;
  bool link_pending_ = false;
  usiw_link_info link_{};  ///< as reported last
};

}  // namespace usiw::run

#endif  // USIW_RUN_EVENT_STREAM_H
