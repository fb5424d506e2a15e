// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file gate.h
/// Requests before they are connections: cm/usiw_cm_gate.c decides, this is its host. One gate per port, for the
/// sockets of both families and of single addresses.
#ifndef USIW_RUN_GATE_H
#define USIW_RUN_GATE_H

#include <cstdint>
#include <memory>

#include "cm/usiw_cm_gate.h"
#include "tools/run/host/host.h"

namespace usiw::run {

class UdpSocket;

/// A listener's backlog; requests that were admitted hold it.
struct Places : usiw_cm_listener {
  Places() : usiw_cm_listener{} {}
  /// [big lock] A place is free again.
  void give_back();
};

class Gate {
 public:
  /// [big lock] The one of this port, which lives as long as its sockets do.
  static std::shared_ptr<Gate> of(in_port_t port);
  ~Gate();
  Gate(const Gate&) = delete;

  /// [big lock] The listener is there already: what waits for one is told to it.
  void join(Places& places, uint32_t backlog);
  void leave(Places& places);
  /// A REQ that is kept, with its datagram.
  struct Kept;
  /// [big lock] A REQ without a connection; @p kept: if it is one that waited.
  void request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, const void* data,
               uint32_t len, Kept* kept);
  /// [big lock] A RESET without a connection.
  void withdraw(const Tuple& tuple, const usiw_cm_packet& reset);
  /// [big lock] @p kept has become none of the gate's business.
  void discard(Kept* kept);
  /// [big lock] Works off what is due.
  void run();

 private:
  friend uint64_t gates_next_deadline_us();
  explicit Gate(in_port_t port);
  void drop(usiw_cm_req* chain);
  const in_port_t port_;
  usiw_cm_gate gate_{};
};

/// [big lock] 0: none.
uint64_t gates_next_deadline_us();
/// [big lock, cm thread]
void gates_run();
/// [big lock] In a child of fork().
void gates_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_GATE_H
