// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fault_port.h
/// A bad fabric on demand, before any other port: loses, reorders and delays what this process sends.
/// What happens to the n-th datagram depends on the seed and on n only, so a run can be repeated.
#ifndef USIW_PORT_FAULT_PORT_H
#define USIW_PORT_FAULT_PORT_H

#include <memory>
#include <vector>

#include "port/faults.h"
#include "port/forwarding_port.h"

namespace usiw {

class FaultPort final : public ForwardingPort<NetPort> {
 public:
  FaultPort(std::unique_ptr<NetPort> inner, const Faults& faults);
  ~FaultPort() override;

  size_t tx(std::span<TxBuf> bufs) override;
  bool takes_references() const override { return false; }  // some are kept for a while
  size_t rx(std::span<RxBuf> bufs) override;
  void rx_free(std::span<RxBuf> bufs) override;
  int wait_fd() const override { return epoll_; }

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
