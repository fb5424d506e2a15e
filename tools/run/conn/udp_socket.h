// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file udp_socket.h
/// The class UdpSocket: one UDP port with up to two sockets. This library reads the handshake socket. The provider
/// reads the data socket, which is opened when the provider reads the first CONNECT record of the port. From then on a
/// BPF filter selects the socket for each datagram by its opcode. So the provider receives data and stray RESETs, and
/// this library receives the handshakes, which the module would handle.
///
/// UdpSocket passes the datagrams of the handshake socket to the functions of struct SocketCalls. It does not access
/// connections itself.
#ifndef USIW_RUN_UDP_SOCKET_H
#define USIW_RUN_UDP_SOCKET_H

#include <sys/types.h>

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

/// The functions that a UdpSocket calls, under the big lock. The code that has the table of connections defines them.
struct SocketCalls {
  /// Handles a datagram of the handshake, or another datagram that may be stray.
  void (*receive)(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len);
  /// Handles an ICMP message about a datagram to @p to. The message quotes @p len bytes of the UDP payload.
  void (*icmp)(UdpSocket& sock, const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len);
  /// Forgets the connections of @p sock, all of which are in the state LINGER.
  void (*end_lingering)(const UdpSocket& sock) = nullptr;
  /// Counts a datagram that is ignored, because it is no handshake and too many arrive. Null: it is not counted.
  void (*ignored)(UdpSocket& sock) = nullptr;
};

/// A UDP port at one local address: the handshake socket, and the data socket if there is one.
class UdpSocket : public std::enable_shared_from_this<UdpSocket> {
 public:
  /// [big lock] Opens a handshake socket that is bound to @p local; port 0 selects any free port. If @p shared, other
  /// processes that also request sharing may bind to the port, whatever their user. If the socket cannot be opened,
  /// returns null and sets @p error to -errno: -EADDRINUSE, -EADDRNOTAVAIL or another.
  static std::shared_ptr<UdpSocket> open(const Endpoint& local, bool shared, const SocketCalls& calls, int& error);
  /// [big lock] Opens the handshake socket of a QP at a port that is free for IPv4 and IPv6. Without IPv6 on this host,
  /// it is free for IPv4. The descriptor is above the soft limit of the process if the hard limit permits it. If the
  /// socket cannot be opened, returns null and sets @p error to -errno. find() does not return such a socket.
  static std::shared_ptr<UdpSocket> open_for_qp(const SocketCalls& calls, int& error);
  /// [big lock] Returns the socket that is bound to exactly @p local, or null.
  static std::shared_ptr<UdpSocket> find(const Endpoint& local);
  /// [big lock] In a child of fork(): closes the descriptors of all sockets, with those that the provider has of data
  /// sockets of QPs, and forgets the sockets. Sends nothing, because the connections belong to the parent.
  static void abandon_all();
  ~UdpSocket();

  const Endpoint& local() const { return local_; }

  /// [big lock] Claims the port for this process. Call it before the first datagram is expected. Returns 0, or -errno
  /// if the port stays shared. See claim_port() for the errors.
  int claim();

  /// [big lock] Sends a datagram with the source address @p from. @p tos is the IPv4 TOS or IPv6 traffic class. Returns
  /// 0 or -errno. Also returns 0 if the send buffer is full, so the caller must repeat datagrams that matter.
  int send(const Endpoint& from, const Endpoint& to, uint8_t tos, const void* data, size_t len);
  /// [big lock] Makes the kernel drop data datagrams that arrive at the handshake socket. Call it if dup_data_fd() has
  /// failed: the raw port then receives the data, and the handshake socket may get a copy, which must not be answered
  /// as stray. Returns 0 or -errno.
  int ignore_data();
  /// [big lock] Returns a new descriptor of the data socket, close-on-exec, or -errno. Opens the data socket if it is
  /// not open yet.
  int dup_data_fd();

  /// [big lock] The listener at this socket, or null. Not owned.
  Listener* listener = nullptr;
  /// [big lock] The admission of REQs to this port. Conn::open_port() sets it.
  std::shared_ptr<Admission> admission;

  /// [big lock] Count the users of the socket: rdma_cm ids that are bound to it, and connections that are not in
  /// LINGER. A socket without users only serves connections in LINGER, which may be dropped at any time (cm/usiw_cm.h).
  /// If there are too many sockets without users, those that lost their last user first are closed. If this library
  /// needs a descriptor and the process has none left, all of them are closed.
  void add_id() { keep(ids_, 1); }
  void remove_id() { keep(ids_, -1); }
  void add_conn() { keep(conns_, 1); }
  void remove_conn() { keep(conns_, -1); }

 private:
  UdpSocket(const Endpoint& local, Fd fd, const SocketCalls& calls)
      : local_(local), fd_(std::move(fd)), calls_(calls) {}
  int begin();
  int open_data_socket(Fd& fd);
  void receive();
  void receive_errors();
  void keep(int& users, int change);
  void close_descriptors();
  void close_lent();
  static void close_longest_lingering();
  static bool close_lingering();

  const Endpoint local_;
  Fd fd_, data_fd_;
  int lent_fd_ = -1;    ///< last descriptor that the provider got of a data socket of a QP; the provider closes it
  ino_t lent_ino_ = 0;  ///< inode number of that data socket
  const SocketCalls calls_;
  bool shared_ = false;
  bool of_qp_ = false;
  int ids_ = 0, conns_ = 0;
  uint64_t lingers_since_ = 0;  ///< key of this socket in Sockets::lingering; 0: not in that map
  CmWatch watch_;
  __u64 stray_next_us_ = 0;  ///< time before which the socket ignores datagrams that are not handshakes
};

}  // namespace usiw::run

#endif  // USIW_RUN_UDP_SOCKET_H
