// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fault_port.h
/// A bad fabric on demand, before any other port: loses, reorders and delays what this process sends.
/// What happens to the n-th datagram depends on the seed and on n only, so a run can be repeated.
#ifndef USIW_PORT_FAULT_PORT_H
#define USIW_PORT_FAULT_PORT_H

#include <memory>
#include <string>
#include <vector>

#include "port/net_port.h"

namespace usiw {

struct Faults {
  double loss = 0, reorder = 0;  ///< probability per datagram, 0..1
  uint64_t delay_ns = 0;         ///< of every datagram
  uint64_t seed = 0;
  uint64_t kill_after = 0;       ///< bytes of a connection (UDP payload), 0: never
  uint64_t fail_wr = 0;          ///< the n-th send work request of the process, 0: none

  bool on_wire() const { return loss > 0 || reorder > 0 || delay_ns != 0 || kill_after != 0; }
  /// Parses "loss=0.01,reorder=0.05,delay-us=50,seed=7,kill-after=65536,fail-wr=3". False if it is
  /// something else.
  static bool parse(const std::string& text, Faults& out);
  /// As USIW_FAULTS says; none if it says nothing, or nothing that can be understood.
  static const Faults& from_environment();
};

class FaultPort final : public NetPort {
 public:
  FaultPort(std::unique_ptr<NetPort> inner, const Faults& faults);
  ~FaultPort() override;

  uint32_t max_payload() const override { return inner_->max_payload(); }
  size_t tx_alloc(std::span<TxBuf> bufs) override { return inner_->tx_alloc(bufs); }
  size_t tx(std::span<TxBuf> bufs) override;
  void tx_free(std::span<TxBuf> bufs) override { inner_->tx_free(bufs); }
  size_t rx(std::span<RxBuf> bufs) override;
  void rx_free(std::span<RxBuf> bufs) override;
  Drops drops() const override { return inner_->drops(); }

  uint32_t mtu() const override { return inner_->mtu(); }
  int wait_fd() const override { return epoll_; }
  void clear_error() override { inner_->clear_error(); }
  int add_flow(Path& path, int fd) override { return inner_->add_flow(path, fd); }
  void remove_flow(const Path& path) override { inner_->remove_flow(path); }
  int control_fd() const override { return inner_->control_fd(); }
  void control() override { inner_->control(); }
  bool arm() override { return inner_->arm(); }

 private:
  /// A datagram that has not gone out yet.
  struct Held {
    TxBuf buf;
    Path path;
    uint64_t due_ns;
    uint64_t due_number;  ///< or when the datagram of this number has gone out
  };
  struct Sent {
    FlowKey flow;
    uint64_t bytes;
  };
  struct Reset {
    FlowKey flow;
    uint32_t len;
    std::byte data[32];
  };

  double chance(uint64_t number, uint64_t of_what) const;
  bool is_killed(const TxBuf& buf);
  void send_due();
  void set_timer();

  std::unique_ptr<NetPort> inner_;
  const Faults faults_;
  int epoll_ = -1, timer_ = -1;
  uint64_t number_ = 0;        ///< datagrams given to tx() so far
  std::vector<Held> held_;     ///< at most kMaxHeldBack; no allocation after construction
  std::vector<Sent> sent_;     ///< with kill_after
  std::vector<Reset> resets_;  ///< on their way to rx()
  static constexpr size_t kMaxHeldBack = 256;
};

}  // namespace usiw

#endif  // USIW_PORT_FAULT_PORT_H
