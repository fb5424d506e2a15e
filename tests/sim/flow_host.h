// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flow_host.h
/// A host in the simulation of many flows. It has the real engine, a port with its own line, and a processor that each
/// run of the engine occupies for a while. Its programs keep flows of messages going and check every message.
#ifndef USIW_TESTS_SIM_FLOW_HOST_H
#define USIW_TESTS_SIM_FLOW_HOST_H

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "port/shares.h"
#include "link.h"
#include "uapi/usiw_abi.h"
#include "world.h"

namespace usiw::sim {

class FlowHost;

/// Bytes on the line besides the datagram: Ethernet, IPv4 and UDP headers, checksum, preamble, gap.
constexpr uint32_t kAroundDatagram = 14 + 20 + 8 + 4 + 20;

class FlowPort final : public SimPort {
 public:
  /// @p holds: received datagrams that fit in the port, from which the engine derives its credit. 0: no limit.
  FlowPort(World& w, int side, std::function<void(Packet&&)> out, size_t holds)
      : SimPort(w.wire, side, 9000, kBuffers), side_(side), holds_(holds), out_(std::move(out)) {}
  size_t tx(std::span<TxBuf> bufs) override;
  void arrive(Packet&& p);
  uint32_t share(Path& path, uint32_t, uint64_t now) override {
    return holds_ == 0 ? UINT32_MAX : static_cast<uint32_t>(holds_) / shares_.users(path.counted, now);
  }
  bool pending() const { return !ring_.empty(); }
  uint64_t arrived = 0;
  uint64_t overflowed = 0;  ///< datagrams among them that found the ring full

 private:
  static constexpr size_t kBuffers = 2048, kRing = 4096;
  bool next(Datagram& d, FlowKey& flow, bool& ce) override;
  const int side_;
  const size_t holds_;
  Shares shares_;
  std::function<void(Packet&&)> out_;
  std::deque<Packet> ring_;
};

/// A flow of messages from one host to another by one connection. The source sends them, or the sink READs them. Each
/// message carries its number, which the programs of both ends check.
class Flow {
 public:
  struct Plan {
    uint32_t message = 32'768;  ///< bytes, at least 16
    uint32_t depth = 8;         ///< messages under way at a time
    bool read = false;          ///< the sink READs the messages
  };
  Flow(World& world, const Plan& plan, int id, FlowHost& source, FlowHost& sink, uint16_t mtu);

  /// The number of messages to send in all; UINT64_MAX: without end.
  void want(uint64_t messages);
  /// Posts no more messages.
  void stop() { wanted_ = posted_; }
  bool at_rest() const { return dead || (completed_ == posted_ && received_ == posted_); }
  bool finished() const { return dead || received_ >= wanted_; }
  uint64_t received() const { return received_; }
  uint64_t bytes() const { return received_ * plan_.message; }
  /// From now on first() is the time of the next message that arrives; 0: none yet.
  void look_for_first() { first_ = 0; }
  uint64_t first() const { return first_; }

  void on_cqe(const Cqe& c, const FlowHost& at);
  void died(int error);

  bool dead = false;
  int error = 0;
  uint64_t died_at = 0;
  std::function<void()> on_message;

 private:
  void fill();
  void post_recv();
  std::span<std::byte> slot(std::vector<std::byte>& v, uint64_t n) const {
    return std::span(v).subspan(n % slots() * plan_.message, plan_.message);
  }
  uint64_t slots() const { return 2ull * plan_.depth; }
  void stamp(uint64_t n);
  void check(uint64_t n);

  World& w_;
  const Plan plan_;
  const int id_;
  FlowHost &source_, &sink_;
  Qp *qs_ = nullptr, *qr_ = nullptr;
  std::vector<std::byte> out_, in_;
  uint32_t out_stag_ = 0, in_stag_ = 0;
  uint64_t wanted_ = 0, posted_ = 0, completed_ = 0, received_ = 0, receives_ = 0;
  uint64_t first_ = 0;
};

class FlowHost final : public EngineEvents {
 public:
  /// @p holds: as in FlowPort. @p run: ns from one run of the engine to the next.
  FlowHost(World& world, int side, std::function<void(Packet&&)> out, size_t holds = 0, uint64_t run = kRunNs);
  ~FlowHost() override;
  static constexpr uint64_t kRunNs = 500;

  void arrive(Packet&& p);
  /// Runs the engine as soon as the processor is free.
  void wake();
  /// Stops the host as SIGSTOP does, while its ring fills; or lets it continue.
  void freeze(bool now);
  uint32_t add_memory(std::vector<std::byte>& bytes);
  uint64_t count(usiw_counter c) const { return counters_[c]; }
  uint64_t repeated() const;

  void cq_ready(Cq&) override {}
  void cq_overrun(Cq&) override { w_.fail("overrun", "a CQ has overrun"); }
  void qp_peer_closed(Qp&) override {}
  void qp_closed(Qp&) override {}
  void qp_failed(Qp& qp, int error, AsyncEvent) override { static_cast<Flow*>(qp.owner())->died(error); }

  const int side;
  FlowPort port;
  std::unique_ptr<Engine> engine;
  Cq* cq = nullptr;
  int port_no = -1;
  uint32_t next_qpn = 1;
  std::vector<Flow*> flows;  ///< in the order of their QP numbers

 private:
  void run();
  void run_at(uint64_t at);

  World& w_;
  std::array<uint64_t, USIW_CNT_MAX> counters_{};
  const uint64_t run_ns_;
  uint64_t free_at_ = 0, run_at_ = UINT64_MAX;
  uint32_t next_stag_ = 17;
  bool frozen_ = false;
  const Life life_ = std::make_shared<int>(0);
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FLOW_HOST_H
