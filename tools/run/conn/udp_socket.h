// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file udp_socket.h
/// UDP ports of the handshake. A port has one socket for the handshake, read here, and, once a
/// connection is to be installed, a second one for data, read by the provider. The kernel runs a
/// filter on the opcode, which chooses the socket. So the two halves receive what they receive with
/// the module.
#ifndef USIW_RUN_UDP_SOCKET_H
#define USIW_RUN_UDP_SOCKET_H

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/run/conn/admission.h"
#include "tools/run/host/host.h"

namespace usiw::run {

class Listener;

class UdpSocket : public std::enable_shared_from_this<UdpSocket> {
 public:
  /// [big lock] A new one; port 0 asks for any. @p shared: other processes, of whatever user, may be bound to the port
  /// as well, if they say so, too. The socket, or null and -errno in @p error: -EADDRINUSE, -EADDRNOTAVAIL ...
  static std::shared_ptr<UdpSocket> open(const Endpoint& local, bool shared, int& error);
  /// [big lock] The one of exactly this address, or null.
  static std::shared_ptr<UdpSocket> find(const Endpoint& local);
  ~UdpSocket();

  const Endpoint& local() const { return local_; }

  /// [big lock] Before anything is to be received: the port is this process's alone from now on. 0; -EADDRINUSE: there
  /// are others, and it stays shared.
  int claim();

  /// [big lock] Sends from exactly @p from with this TOS or traffic class. 0 or -errno; what matters is repeated.
  int send(const Endpoint& from, const Endpoint& to, uint8_t tos, const void* data, size_t len);
  /// [big lock] There is no socket for this port's data, which is a raw port's from now on: the handshake does not see
  /// it, and does not answer it as stray. 0 or -errno.
  int ignore_data();
  /// [big lock] A new descriptor of the socket that gets data, close-on-exec; -errno.
  int dup_data_fd();

  /// [big lock, cm thread] Handles what epoll has reported for the socket that @p serial names.
  static void ready(uint64_t serial, uint32_t events);

  /// [big lock] Who listens here, or null. Not owned.
  Listener* listener = nullptr;

  /// [big lock] Admission of requests to this port.
  Admission& admission() { return *admission_; }

  /// [big lock] Ids that are bound here, and connections that do not linger, keep the socket. Sockets that only
  /// lingering connections hold are closed, the longest first, when there are too many or when descriptors run out:
  /// cm/usiw_cm.h lets an object in LINGER go at any time.
  void add_id() { keep(ids_, 1); }
  void remove_id() { keep(ids_, -1); }
  void add_conn() { keep(conns_, 1); }
  void remove_conn() { keep(conns_, -1); }

 private:
  friend void sockets_abandon();
  UdpSocket(const Endpoint& local, int fd) : local_(local), fd_(fd), admission_(Admission::of(local.port)) {}
  void receive();
  void receive_errors();
  void keep(int& users, int change);
  static void close_longest_lingering();
  static bool close_lingering();
  Endpoint local_;
  int fd_, data_fd_ = -1;
  bool shared_ = false;
  int ids_ = 0, conns_ = 0;
  uint64_t lingers_since_ = 0;  ///< order in which sockets began to be held by lingering connections only; 0: it is not
  std::shared_ptr<Admission> admission_;
  uint64_t serial_ = 0;      ///< names it in the thread's epoll set
  __u64 stray_next_us_ = 0;  ///< before that, stray datagrams are not answered
};

/// [big lock] Is there any?
bool sockets_open();
/// [big lock] Closes all without a word (a child of fork()).
void sockets_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_UDP_SOCKET_H
