// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file admission.h
/// The admission of REQs that have no connection yet. cm/usiw_cm_admission.c decides which REQ gets a slot of a
/// backlog, which REQ waits and which REQ is refused. The class Admission stores the datagrams of waiting REQs and
/// sends the answers. Each UDP port has one Admission, which all sockets of the port share, whatever their addresses.
#ifndef USIW_RUN_ADMISSION_H
#define USIW_RUN_ADMISSION_H

#include <cstdint>
#include <memory>

#include "cm/usiw_cm_admission.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/host/host.h"

namespace usiw::run {

/// The backlog of a listener. Each admitted REQ has a slot of it until the peer confirms or the connection ends.
struct Backlog : usiw_cm_listener {
  Backlog() : usiw_cm_listener{} {}
  /// [big lock] Gives the slot of an admitted REQ back to the backlog.
  void give_back();
};

/// A listener as the admission sees it. All calls [big lock].
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const std::shared_ptr<Backlog>& backlog() = 0;
  /// Returns the IPv4 TOS or IPv6 traffic class of the answers and of the connections.
  virtual uint8_t tos() const = 0;
  /// Makes a connection for an admitted REQ. The connection takes over the slot of backlog() that the REQ has. Returns
  /// 0, or the reason code of the REJECT that refuses the REQ.
  virtual int open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
                   uint32_t isn) = 0;
};

/// The admission of one UDP port.
class Admission : private usiw_cm_admission, public std::enable_shared_from_this<Admission> {
 public:
  /// A REQ that waits, with its datagram.
  struct Entry;
  /// Handles the datagram of an entry as if it had arrived now.
  using Deliver = void (*)(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                           Entry* entry);

  /// [big lock] Returns the admission of @p port, and makes it if there is none. It exists as long as a socket of the
  /// port.
  static std::shared_ptr<Admission> of(in_port_t port, Deliver deliver);
  /// [big lock] In a child of fork(): forgets all admissions, because they are the parent's.
  static void abandon_all();
  ~Admission();
  Admission(const Admission&) = delete;

  /// [big lock] Adds the backlog of a listener, and delivers the REQs that wait for a listener. The caller must have
  /// set UdpSocket::listener.
  void join(Backlog& backlog, uint32_t slots);
  /// [big lock] Removes the backlog of a listener.
  void leave(Backlog& backlog);
  /// [big lock] Decides about a REQ that has no connection, and answers it. @p entry is the entry of the REQ if the REQ
  /// has waited before, else null.
  void request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, const void* data,
               uint32_t len, Entry* entry);
  /// [big lock] Handles a RESET that has no connection. If a REQ with its ISNs waits, removes that REQ, because the
  /// sender has given up.
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
  /// The callback keeps a reference, because the last socket of the port may be destroyed within run().
  CmTimer timer_{[this] {
    const auto alive = shared_from_this();
    run();
  }};
};

}  // namespace usiw::run

#endif  // USIW_RUN_ADMISSION_H
