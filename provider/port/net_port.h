// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file net_port.h
/// A port of this host: what the runtime needs of it besides datagrams.
#ifndef USIW_PORT_NET_PORT_H
#define USIW_PORT_NET_PORT_H

#include "port/port.h"

namespace usiw {

class NetPort : public Port {
 public:
  /// Largest IP packet, bytes.
  virtual uint32_t mtu() const = 0;

  /// poll(2) says readable while a datagram waits in rx(). Belongs to the port.
  virtual int wait_fd() const = 0;
  /// Clears the pending error behind wait_fd() (ENETDOWN), so that poll() may sleep again.
  virtual void clear_error() = 0;

  /// rx() shall get the datagrams for local UDP port @p port (network byte order), which may
  /// be said once per connection. @p fd: the socket that gets them, where there is one, else
  /// -1; the port owns it from then on, also when it fails. 0 or an errno value. [engine held]
  virtual int add_local_port(uint16_t port, int fd) = 0;
  virtual void remove_local_port(uint16_t port) = 0;
};

}  // namespace usiw

#endif  // USIW_PORT_NET_PORT_H
