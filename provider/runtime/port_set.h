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
#include "port/choice.h"
#include "port/ethdev_port.h"
#include "port/net_port.h"
#include "progress/progress.h"
#include "runtime/engine_gate.h"
#include "runtime/packet_opener.h"
#include "runtime/objects.h"
#include "uapi/usiw_abi.h"

namespace usiw {

/// What a port reaches.
enum class PortScope { kNetdev, kLoopback, kSockets, kMemory };

class PortSet final : private Watcher {
 public:
  PortSet(EngineGate& gate, const std::string& device, const usiw_link_info& link, uint32_t port_kind);

  void set_link(const usiw_link_info& link);
  usiw_link_info link() const;
  /// Makes the port that most connections will use, where that takes long; what cannot be made matters now only if
  /// nothing can take its place. @p sockets: connections bring data sockets. 0 or an errno value, and a line on stderr.
  int open_first(bool sockets);

  /// Gives @p qp its ports for the connection @p conn along @p path, and lets go of those that it has. The descriptor
  /// that the connection brings belongs to this call, also when it fails. 0, or an errno value, and a line on stderr.
  int give(VQp& qp, const usiw_conn_info& conn, const Path& path);
  /// Raw packets of the connection @p conn_id, which goes by its socket, get there now: a port for them, unless it has
  /// one or must not have one. [engine not held]
  void give_packets(VQp& qp, uint32_t conn_id, const usiw_conn_info& conn);
  /// Raw packets are the right port for the connection that begins, but there is none yet, and its socket can carry it
  /// meanwhile.
  bool packets_take_long(const VQp& qp, const usiw_conn_info& conn);
  /// Opens the raw port that the connection would take. It is not used before adopt_packets(), and may outlive this.
  PacketOpener::Open packet_opener(const usiw_conn_info& conn) const;
  /// The port that packet_opener() has made, or null and why there is none.
  void adopt_packets(const usiw_conn_info& conn, std::unique_ptr<NetPort> port, const std::string& why);
  /// Why the connection's frames are not the engine's to send: what the control path says, or its link.
  usiw_not_packet not_packet(const usiw_conn_info& conn) const;
  /// Lets go of the QP's ports.
  void release(VQp& qp);

  /// [engine held] The progress thread is about to sleep.
  bool arm();

 private:
  struct Slot {
    std::unique_ptr<NetPort> port;
    int number;  ///< the engine's
    PortScope scope;
    VQp::By by() const { return {port.get(), number}; }
  };

  /// Ports' control descriptors.
  struct Control final : Watcher {
    explicit Control(PortSet& s) : set(s) {}
    bool ready(int fd, short revents) override;
    PortSet& set;
  };

  /// Packet sockets.
  bool ready(int fd, short revents) override;

  PortScope packet_scope(bool local) const;
  PortScope socket_scope() const;
  bool is_marked(const usiw_conn_info& conn) const;
  PortFacts facts_of(const usiw_conn_info& conn) const;
  PortChoice choose(const usiw_conn_info& conn) const;
  VQp::By port_of(const usiw_conn_info& conn, PortChoice& choice, int& error);
  VQp::By beside_packets(const VQp& qp, const usiw_conn_info& conn);
  Slot* find_port(PortScope scope, uint32_t mtu);
  Slot* port_for(PortScope scope, uint32_t mtu, int& error, std::string& why);
  Slot& add(std::unique_ptr<NetPort> port, PortScope scope);
  std::unique_ptr<NetPort> make_port(PortScope scope, uint32_t mtu, int& error, std::string& why);
  std::unique_ptr<NetPort> make_socket_port(bool memory, int& error, std::string& why);
  EthdevPort::Spec packet_spec(bool loopback, uint32_t mtu) const;

  EngineGate& gate_;
  const std::string device_;
  const uint32_t ifindex_;
  const uint32_t port_kind_;  ///< enum usiw_port_kind
  const PortWish wish_;

  mutable RankedMutex<LockRank::kLink> link_lock_;
  usiw_link_info link_;             ///< under link_lock_
  std::atomic<uint32_t> link_mtu_;  ///< link_.mtu, for the ports

  RankedMutex<LockRank::kPorts> lock_;
  std::vector<Slot> ports_;         ///< under lock_
  bool packets_broken_ = false;     ///< under lock_: a raw port could not be made
  std::vector<NetPort*> to_arm_;    ///< of ports_; engine held
  Control control_{*this};
};

}  // namespace usiw

#endif  // USIW_RUNTIME_PORT_SET_H
