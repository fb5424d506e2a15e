// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file udp_socket.h
/// UDP ports of the handshake. A port has one socket for the handshake, which this library reads. The first connection
/// that is installed adds a second one for data, which the provider reads. A filter on the opcode, which the kernel
/// runs, chooses between them. So each half receives the same datagrams as with the module.
///
/// A socket passes its datagrams up by struct SocketCalls and knows nothing of connections.
#ifndef USIW_RUN_UDP_SOCKET_H
#define USIW_RUN_UDP_SOCKET_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "cm/usiw_cm.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/host/fd.h"
#include "tools/run/host/host.h"

namespace usiw::run {

class Admission;
class Listener;
class UdpSocket;

/// Calls of a socket to the code above it, which holds the connections. All [big lock].
struct SocketCalls {
  /// A datagram of the handshake, or a stray one, has arrived.
  void (*receive)(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len);
  /// ICMP about a datagram to @p to has arrived. It quotes @p len bytes of the payload.
  void (*icmp)(UdpSocket& sock, const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len);
  /// Forgets the connections at this socket, all of which linger.
  void (*end_lingering)(const UdpSocket& sock);
};

class UdpSocket : public std::enable_shared_from_this<UdpSocket> {
 public:
  /// [big lock] Opens a socket; port 0 asks for any free port. If @p shared, processes of all users may be bound to the
  /// port as well, provided that they ask for sharing too. Returns null and sets @p error to -errno if that fails:
  /// -EADDRINUSE, -EADDRNOTAVAIL ...
  static std::shared_ptr<UdpSocket> open(const Endpoint& local, bool shared, const SocketCalls& calls, int& error);
  /// [big lock] Returns the socket that is bound to exactly this address, or null.
  static std::shared_ptr<UdpSocket> find(const Endpoint& local);
  /// [big lock] In a child of fork(): closes all sockets without a datagram.
  static void abandon_all();
  ~UdpSocket();

  const Endpoint& local() const { return local_; }

  /// [big lock] Claims the port for this process, before the first datagram is expected. Returns 0, or -EADDRINUSE:
  /// another process has the port too, and it stays shared.
  int claim();

  /// [big lock] Sends from exactly @p from with this TOS or traffic class. Returns 0 or -errno. The caller repeats what
  /// matters.
  int send(const Endpoint& from, const Endpoint& to, uint8_t tos, const void* data, size_t len);
  /// [big lock] Drops data at this socket. Without a data socket the raw port receives the data, and the handshake must
  /// not answer it as stray. Returns 0 or -errno.
  int ignore_data();
  /// [big lock] Returns a new descriptor of the data socket, close-on-exec, or -errno.
  int dup_data_fd();

  /// [big lock] The listener at this socket, or null. Not owned.
  Listener* listener = nullptr;
  /// [big lock] Admission of REQs to this port. Set by whoever opens the socket.
  std::shared_ptr<Admission> admission;

  /// [big lock] Ids that are bound here, and connections that do not linger, keep the socket. Sockets that only
  /// lingering connections hold are closed when there are too many of them or when descriptors run out. cm/usiw_cm.h
  /// allows that, and the one that has lingered longest is closed first.
  void add_id() { keep(ids_, 1); }
  void remove_id() { keep(ids_, -1); }
  void add_conn() { keep(conns_, 1); }
  void remove_conn() { keep(conns_, -1); }

 private:
  UdpSocket(const Endpoint& local, Fd fd, const SocketCalls& calls)
      : local_(local), fd_(std::move(fd)), calls_(calls) {}
  void receive();
  void receive_errors();
  void keep(int& users, int change);
  void close_descriptors();
  static void close_longest_lingering();
  static bool close_lingering();

  const Endpoint local_;
  Fd fd_, data_fd_;
  const SocketCalls& calls_;
  bool shared_ = false;
  int ids_ = 0, conns_ = 0;
  uint64_t lingers_since_ = 0;  ///< rank among the sockets that only lingering connections hold; 0: it is none of them
  CmWatch watch_;
  __u64 stray_next_us_ = 0;  ///< time before which stray datagrams are not answered
};

}  // namespace usiw::run

#endif  // USIW_RUN_UDP_SOCKET_H
