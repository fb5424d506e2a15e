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

/// The records of one connection that the engine has not read yet.
struct ConnRecords {
  ConnRecords(uint32_t id, std::shared_ptr<UdpSocket> port) : conn_id(id), sock(std::move(port)) {}
  const uint32_t conn_id;
  const std::shared_ptr<UdpSocket> sock;  ///< CONNECT comes with a descriptor of its data socket
  uint32_t qpn = 0;
  usiw_cm_records unread{};  ///< EventStream's
};

class EventStream final : public EventFile {
 public:
  ssize_t read(int fd, void* buf, size_t count) override;
  /// The program has closed the last descriptor, which counts as the end of the context.
  void closed() override;

  // All [big lock].
  /// Queues a record. ABORT replaces unread records of the same connection (cm/usiw_cm_records.h).
  void push(const std::shared_ptr<ConnRecords>& conn, usiw_event_type type, const usiw_conn_info& info);
  /// Queues the state of the device's interface, unless the newest record shows it already.
  void push_link(const usiw_link_info& link);
  /// Drops the unread records of a connection, because its QP goes away.
  void cancel(ConnRecords& conn);
  /// Ends the file, because the context ends.
  void shutdown();

 private:
  bool empty() const { return queue_.empty() && !link_pending_; }
  bool next(usiw_event& record);

  std::deque<std::shared_ptr<ConnRecords>> queue_;  ///< connections with unread records
  bool gone_ = false;
  bool link_pending_ = false;
  usiw_link_info link_{};  ///< the interface as the newest LINK record shows it
};

}  // namespace usiw::run

#endif  // USIW_RUN_EVENT_STREAM_H
