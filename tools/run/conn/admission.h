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

/// The backlog of a listener. Each admitted REQ occupies one slot of the backlog until the peer confirms the connection
/// or the connection ends.
struct Backlog : usiw_cm_listener {
  Backlog() : usiw_cm_listener{} {}
  /// [big lock] Gives the slot of an admitted REQ back to the backlog.
  void give_back();
};

/// The interface of a listener for the class Admission. All its functions need the big lock.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const std::shared_ptr<Backlog>& backlog() = 0;
  /// Returns the IPv4 TOS or IPv6 traffic class for answers to REQs and for the connections of the listener.
  virtual uint8_t tos() const = 0;
  /// Makes a connection for the admitted REQ @p req. The connection takes over the slot of the REQ in backlog(). If
  /// no connection can be made, gives back the slot. Returns 0 if no REJECT is to be sent, else the reason code of the
  /// REJECT.
  virtual int open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
                   uint32_t isn) = 0;
};

/// The admission of one UDP port.
class Admission : private usiw_cm_admission, public std::enable_shared_from_this<Admission> {
 public:
  /// A waiting REQ with its datagram.
  struct Entry;
  /// A function that handles the datagram of @p entry, a waiting REQ, as if the datagram had just arrived.
  using Deliver = void (*)(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                           Entry* entry);

  /// [big lock] Returns the Admission of @p port. Makes one if the port has none. The sockets of the port own it.
  static std::shared_ptr<Admission> of(in_port_t port, Deliver deliver);
  /// [big lock] In a child of fork(): forgets all admissions, because they belong to the parent.
  static void abandon_all();
  ~Admission();
  Admission(const Admission&) = delete;

  /// Returns the secret of the ISNs that this process sends in PENDINGs (cm/usiw_cm_cookie.h).
  static const __u64* secret();

  /// [big lock] Adds the backlog of a new listener with @p slots slots, and delivers the REQs that have waited for a
  /// listener. The caller must have set UdpSocket::listener before.
  void join(Backlog& backlog, uint32_t slots);
  /// [big lock] Removes the backlog of a listener. The REQs that wait for a slot of it then wait for the next listener
  /// or, if they are stale or too many, are dropped.
  void leave(Backlog& backlog);
  /// [big lock] Admits, refuses or drops the REQ @p req, which has no connection, or makes it wait. Sends the answer,
  /// if any. @p entry is the entry of the REQ if the REQ has waited before, else null. This function takes ownership
  /// of it.
  void request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, const void* data,
               uint32_t len, Entry* entry);
  /// [big lock] Handles a RESET that has no connection. If the ISNs of the RESET are those of a waiting REQ, removes
  /// that REQ, because the peer has given up.
  void withdraw(const Tuple& tuple, const usiw_cm_packet& reset);
  /// [big lock] Removes and frees @p entry without an answer to its REQ.
  void discard(Entry* entry);

 private:
  friend struct Backlog;
  Admission(in_port_t port, Deliver deliver);
  void run();
  void arm() { timer_.set(usiw_cm_admission_deadline(this)); }
  void drop(usiw_cm_req* chain);

  const in_port_t port_;
  const Deliver deliver_;
  /// Calls run() when an entry is due or may have become stale. The callback holds a reference to this object, because
  /// run() may destroy the last socket of the port, which owns this object.
  CmTimer timer_{[this] {
    const auto alive = shared_from_this();
    run();
  }};
};

}  // namespace usiw::run

#endif  // USIW_RUN_ADMISSION_H
