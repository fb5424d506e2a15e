// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file admission.h
/// Admission of REQs, before there is a connection. cm/usiw_cm_admission.c decides which REQ gets a slot of a backlog,
/// which one waits and which one is refused. This is its host: it keeps the datagrams of the REQs that wait, and
/// answers. A port has one Admission, for its sockets of both families and of single addresses.
#ifndef USIW_RUN_ADMISSION_H
#define USIW_RUN_ADMISSION_H

#include <cstdint>
#include <memory>

#include "cm/usiw_cm_admission.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/host/host.h"

namespace usiw::run {

/// The backlog of a listener. Each request that was admitted holds a slot of it.
struct Backlog : usiw_cm_listener {
  Backlog() : usiw_cm_listener{} {}
  /// [big lock] Returns a slot.
  void give_back();
};

/// A listener as the admission sees it. All calls [big lock].
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const std::shared_ptr<Backlog>& backlog() = 0;
  /// TOS or traffic class of the answers and of the connections.
  virtual uint8_t tos() const = 0;
  /// Makes a connection of a REQ that was admitted, and with it of a slot of backlog(). Returns 0, or the reason to
  /// refuse the REQ with.
  virtual int open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
                   uint32_t isn) = 0;
};

class Admission : private usiw_cm_admission, public std::enable_shared_from_this<Admission> {
 public:
  /// A REQ that waits, with its datagram.
  struct Entry;
  /// Handles the datagram of an entry as if it had arrived now.
  using Deliver = void (*)(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                           Entry* entry);

  /// [big lock] Returns the admission of a port. It lives as long as a socket of the port does.
  static std::shared_ptr<Admission> of(in_port_t port, Deliver deliver);
  /// [big lock] In a child of fork(): forgets all.
  static void abandon_all();
  ~Admission();
  Admission(const Admission&) = delete;

  /// [big lock] Adds a listener, which its UdpSocket has already, and delivers the REQs that wait for one.
  void join(Backlog& backlog, uint32_t slots);
  void leave(Backlog& backlog);
  /// [big lock] Decides about a REQ without a connection. If the REQ has waited before, @p entry is its entry.
  void request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, const void* data,
               uint32_t len, Entry* entry);
  /// [big lock] Handles a RESET without a connection. If its sender has a REQ here that waits, the REQ is withdrawn.
  void withdraw(const Tuple& tuple, const usiw_cm_packet& reset);
  /// [big lock] Frees an entry that needs no decision any more.
  void discard(Entry* entry);

 private:
  friend struct Backlog;
  Admission(in_port_t port, Deliver deliver);
  void run();
  void arm() { timer_.set(usiw_cm_admission_deadline(this)); }
  void drop(usiw_cm_req* chain);

  const in_port_t port_;
  const Deliver deliver_;
  /// The last socket of the port may go within run().
  CmTimer timer_{[this] {
    const auto alive = shared_from_this();
    run();
  }};
};

}  // namespace usiw::run

#endif  // USIW_RUN_ADMISSION_H
