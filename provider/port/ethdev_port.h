// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ethdev_port.h
/// A DPDK ethdev as a port: today net_af_packet on a netdev of the kernel.
#ifndef USIW_PORT_ETHDEV_PORT_H
#define USIW_PORT_ETHDEV_PORT_H

#include <atomic>
#include <memory>
#include <string>

#include "base/ip.h"
#include "port/net_port.h"
#include "port/packet_filter.h"

struct rte_mempool;

namespace usiw {

class EthdevPort final : public NetPort {
 public:
  struct Spec {
    std::string ifname;
    uint32_t ifindex;  ///< must be ifname's in the caller's network namespace
    uint32_t mtu;      ///< largest IP packet, bytes, up to USIW_MAX_MTU
    /// What the netdev takes now, if not null. Longer packets, of connections that were made before, are lost here:
    /// the kernel would print a line for each of them. The caller's, for the life of the port.
    const std::atomic<uint32_t>* link_mtu = nullptr;
  };

  /// nullptr with a line in @p why for people (what is missing and what to do) and an
  /// errno value in @p error: EPERM, ENODEV, ENOMEM, EIO.
  static std::unique_ptr<EthdevPort> create(const Spec& spec, std::string& why, int& error);
  ~EthdevPort() override;

  uint32_t max_payload() const override { return mtu_ - kIpv4UdpLen; }
  size_t tx_alloc(std::span<TxBuf> bufs) override;
  size_t tx(std::span<TxBuf> bufs) override;
  void tx_free(std::span<TxBuf> bufs) override;
  size_t rx(std::span<RxBuf> bufs) override;
  void rx_free(std::span<RxBuf> bufs) override;
  Drops drops() const override { return drops_; }

  int wait_fd() const override { return fd_; }
  uint32_t mtu() const override { return mtu_; }
  void clear_error() override;
  int add_flow(Path& path, int fd) override {
    (void)fd;
    return filter_.add(path.flow.local_port);
  }
  void remove_flow(const Path& path) override { filter_.remove(path.flow.local_port); }

  /// Local UDP ports (network byte order) whose datagrams rx() shall get. [not the engine's:
  /// one thread at a time, engine held or not]
  PacketFilter& filter() { return filter_; }

 private:
  EthdevPort() = default;
  bool open(const Spec& spec, std::string& why, int& error);
  void widen_send_buffer(unsigned frames, unsigned frame_size);
  size_t longest_frame() const;
  size_t tx_what_fits(std::span<TxBuf> bufs, size_t longest);

  std::string vdev_;
  uint16_t port_id_ = 0;
  bool probed_ = false, started_ = false;
  int fd_ = -1;
  uint32_t mtu_ = 0;
  const std::atomic<uint32_t>* link_mtu_ = nullptr;
  rte_mempool* pool_ = nullptr;
  PacketFilter filter_;
  Drops drops_{};
};

}  // namespace usiw

#endif  // USIW_PORT_ETHDEV_PORT_H
