// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file net_port.h
/// A port of this host: what the runtime needs of it besides datagrams.
#ifndef USIW_PORT_NET_PORT_H
#define USIW_PORT_NET_PORT_H

#include "engine/port.h"

namespace usiw {

class NetPort : public Port {
 public:
  /// Largest IP packet, bytes.
  virtual uint32_t mtu() const = 0;

  /// poll(2) says readable while a datagram waits in rx(). Belongs to the port.
  virtual int wait_fd() const = 0;
  /// Clears the pending error behind wait_fd() (ENETDOWN), so that poll() may sleep again.
  virtual void clear_error() = 0;

  /// rx() shall get the datagrams for the local end of @p path; sets path.tag. @p fd: the socket that
  /// gets them, where there is one, else -1; the port owns it from then on, also when it fails.
  /// 0 or an errno value. [engine held]
  virtual int add_flow(Path& path, int fd) = 0;
  /// @p path as add_flow() left it.
  virtual void remove_flow(const Path& path) = 0;
  /// The connection of @p path sends by this port (as it does from add_flow() on), or only receives by it what the
  /// other one cannot: as a rule nothing, so that it need not be looked for in each run. Saying the same twice changes
  /// nothing. [engine held]
  virtual void sends(Path& path, bool yes) { (void)path, (void)yes; }

  /// What is sent to the connection of @p path, which goes by this port and hears nothing else, may come merged for
  /// now, or no more; Path::merge says it of all the time. Saying the same again looks whether it still can be.
  /// [engine held]
  virtual void merges(Path& path, bool yes) { (void)path, (void)yes; }

  /// poll(2) says readable when control() has something to do; -1: never. Belongs to the port.
  virtual int control_fd() const { return -1; }
  /// What is neither data nor urgent. [engine held, not on the data path]
  virtual void control() {}
  /// The caller is about to sleep in poll(2) on both descriptors: what arrives from now on must end
  /// that. False: something has arrived that they do not tell of. [engine held]
  virtual bool arm() { return true; }
};

}  // namespace usiw

#endif  // USIW_PORT_NET_PORT_H
