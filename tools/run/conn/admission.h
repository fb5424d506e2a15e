// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file admission.h
/// Admission of REQs, before there is a connection. cm/usiw_cm_admission.c decides; this is its host. A port has one
/// Admission, for its sockets of both families and of single addresses.
#ifndef USIW_RUN_ADMISSION_H
#define USIW_RUN_ADMISSION_H

#include <cstdint>
#include <memory>

#include "cm/usiw_cm_admission.h"
#include "tools/run/host/host.h"

namespace usiw::run {

class UdpSocket;

/// The backlog of a listener. Each request that was admitted holds a slot of it.
struct Backlog : usiw_cm_listener {
  Backlog() : usiw_cm_listener{} {}
  /// [big lock] Returns a slot.
  void give_back();
};

class Admission {
 public:
  /// [big lock] Returns the one of this port. It lives as long as a socket of the port does.
  static std::shared_ptr<Admission> of(in_port_t port);
  ~Admission();
  Admission(const Admission&) = delete;

  /// [big lock] Adds a listener, which UdpSocket has already: REQs that wait for a listener are reported to it at once.
  void join(Backlog& backlog, uint32_t slots);
  void leave(Backlog& backlog);
  /// A REQ that waits, with its datagram.
  struct Entry;
  /// [big lock] Decides about a REQ without a connection. If it has waited before, @p entry is its entry.
  void request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, const void* data,
               uint32_t len, Entry* entry);
  /// [big lock] A RESET without a connection.
  void withdraw(const Tuple& tuple, const usiw_cm_packet& reset);
  /// [big lock] Frees an entry about which there is nothing left to decide.
  void discard(Entry* entry);
  /// [big lock] Decides about all entries that are due.
  void run();

 private:
  friend uint64_t admissions_next_deadline_us();
  explicit Admission(in_port_t port);
  void drop(usiw_cm_req* chain);
  const in_port_t port_;
  usiw_cm_admission admission_{};
};

/// [big lock] Returns when admissions_run() has something to do, us; 0: never.
uint64_t admissions_next_deadline_us();
/// [big lock, cm thread]
void admissions_run();
/// [big lock] In a child of fork().
void admissions_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_ADMISSION_H
