// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file event_stream.h
/// The event stream of a context: the file from which the provider reads the records of uapi/usiw_abi.h.
#ifndef USIW_RUN_EVENT_STREAM_H
#define USIW_RUN_EVENT_STREAM_H

#include <deque>
#include <memory>
#include <utility>

#include "cm/usiw_cm_records.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/libc/event_file.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

/// The part of a connection that the event stream uses: its ids, its UDP port, and the records that the provider has
/// not read yet.
struct ConnRecords {
  ConnRecords(uint32_t id, std::shared_ptr<UdpSocket> port) : conn_id(id), sock(std::move(port)) {}
  const uint32_t conn_id;
  const std::shared_ptr<UdpSocket> sock;  ///< UDP port of the connection; the CONNECT record carries its data socket
  uint32_t qpn = 0;
  usiw_cm_records unread{};  ///< only EventStream uses it
};

class EventStream final : public EventFile {
 public:
  ssize_t read(int fd, void* buf, size_t count) override;
  /// Ends the stream as shutdown() does. Called when the program has closed the last descriptor of the stream.
  void closed() override;

  // The functions below need the big lock.
  /// Queues a record. ABORT replaces unread records of the same connection (cm/usiw_cm_records.h).
  void push(const std::shared_ptr<ConnRecords>& conn, usiw_event_type type, const usiw_conn_info& info);
  /// Queues a LINK record with @p link, unless the newest LINK record has the same contents.
  void push_link(const usiw_link_info& link);
  /// Drops the unread records of @p conn. Call it when the QP of the connection is destroyed.
  void cancel(ConnRecords& conn);
  /// Ends the stream: drops all unread records, and from then on read(2) returns 0.
  void shutdown();

 private:
  bool empty() const { return queue_.empty() && !link_pending_; }
  bool next(usiw_event& record);

  std::deque<std::shared_ptr<ConnRecords>> queue_;  ///< connections with unread records
  bool gone_ = false;
  bool link_pending_ = false;
  usiw_link_info link_{};  ///< contents of the newest LINK record
};

}  // namespace usiw::run

#endif  // USIW_RUN_EVENT_STREAM_H
