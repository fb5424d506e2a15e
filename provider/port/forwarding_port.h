// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file forwarding_port.h
/// A port in front of another one: what it does not do itself the inner one does.
#ifndef USIW_PORT_FORWARDING_PORT_H
#define USIW_PORT_FORWARDING_PORT_H

#include <memory>
#include <utility>

#include "port/net_port.h"

namespace usiw {

template <typename Inner>
class ForwardingPort : public NetPort {
 public:
  uint32_t max_payload() const override { return inner_->max_payload(); }
  size_t tx_alloc(std::span<TxBuf> bufs) override { return inner_->tx_alloc(bufs); }
  size_t tx(std::span<TxBuf> bufs) override { return inner_->tx(bufs); }
  bool takes_references() const override { return inner_->takes_references(); }
  void tx_free(std::span<TxBuf> bufs) override { inner_->tx_free(bufs); }
  size_t rx(std::span<RxBuf> bufs) override { return inner_->rx(bufs); }
  void rx_free(std::span<RxBuf> bufs) override { inner_->rx_free(bufs); }
  uint32_t share(Path& path, uint32_t len, uint64_t now) override { return inner_->share(path, len, now); }
  Drops drops() const override { return inner_->drops(); }

  uint32_t mtu() const override { return inner_->mtu(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  void clear_error() override { inner_->clear_error(); }
  int add_flow(Path& path, int fd) override { return inner_->add_flow(path, fd); }
  void remove_flow(const Path& path) override { inner_->remove_flow(path); }
  void sends(Path& path, bool yes) override { inner_->sends(path, yes); }
  void merges(Path& path, bool yes) override { inner_->merges(path, yes); }
  int control_fd() const override { return inner_->control_fd(); }
  void control() override { inner_->control(); }
  bool arm() override { return inner_->arm(); }

 protected:
  explicit ForwardingPort(std::unique_ptr<Inner> inner) : inner_(std::move(inner)) {}

  const std::unique_ptr<Inner> inner_;
};

}  // namespace usiw

#endif  // USIW_PORT_FORWARDING_PORT_H
