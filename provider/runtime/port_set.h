// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_set.h
/// The ports of a runtime, made when first needed, and the link that they are made for.
#ifndef USIW_RUNTIME_PORT_SET_H
#define USIW_RUNTIME_PORT_SET_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/lock_rank.h"
#include "port/net_port.h"
#include "progress/progress.h"
#include "runtime/engine_gate.h"
#include "runtime/objects.h"
#include "uapi/usiw_abi.h"

namespace usiw {

/// What a port reaches.
enum class PortScope { kNetdev, kLoopback, kSockets };

class PortSet final : private Watcher {
 public:
  PortSet(EngineGate& gate, const std::string& device, const usiw_link_info& link, uint32_t port_kind);

  void set_link(const usiw_link_info& link);
  usiw_link_info link() const;
  /// What carries connections without a socket of their own: to this host (@p local) or to others.
  PortScope packet_scope(bool local) const;

  /// Makes the port that most connections will use. 0 or an errno value, and a line on stderr.
  int open_first();

  /// Gives @p qp a port of @p scope for packets of up to @p mtu bytes along @p path, and lets go of the one that it
  /// has. @p fd, or -1, is the port's from then on, also when this fails. 0 and the engine's @p number of the port, or
  /// an errno value.
  int give(VQp& qp, PortScope scope, uint32_t mtu, const Path& path, int fd, int& number);
  /// Lets go of the QP's port.
  void release(VQp& qp);

  /// [engine held] The progress thread is about to sleep.
  bool arm();

 private:
  struct Slot {
    std::unique_ptr<NetPort> port;
    int number;  ///< the engine's
    PortScope scope;
  };

  /// Ports' control descriptors.
  struct Control final : Watcher {
    explicit Control(PortSet& s) : set(s) {}
    bool ready(int fd, short revents) override;
    PortSet& set;
  };

  /// Packet sockets.
  bool ready(int fd, short revents) override;

  Slot* port_for(PortScope scope, uint32_t mtu, int& error);
  std::unique_ptr<NetPort> make_port(PortScope scope, uint32_t mtu, int& error);
  std::unique_ptr<NetPort> make_socket_port(int& error);
  std::unique_ptr<NetPort> make_packet_port(bool loopback, uint32_t mtu, int& error);

  EngineGate& gate_;
  const std::string device_;
  const uint32_t ifindex_;
  const uint32_t port_kind_;  ///< enum usiw_port_kind

  mutable RankedMutex<LockRank::kLink> link_lock_;
  usiw_link_info link_;             ///< under link_lock_
  std::atomic<uint32_t> link_mtu_;  ///< link_.mtu, for the ports

  RankedMutex<LockRank::kPorts> lock_;
  std::vector<Slot> ports_;         ///< under lock_
  std::vector<NetPort*> to_arm_;    ///< of ports_; engine held
  Control control_{*this};
};

}  // namespace usiw

#endif  // USIW_RUNTIME_PORT_SET_H
