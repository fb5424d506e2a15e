// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sim_wire.h
/// Virtual time, a wire that misbehaves by a seed, and packet ports on it. Shared by the
/// unit tests of the engine and by the simulation; everything is repeatable.
#ifndef USIW_TESTS_SUPPORT_SIM_WIRE_H
#define USIW_TESTS_SUPPORT_SIM_WIRE_H

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/wire.h"
#include "engine/port.h"

namespace usiw::sim {

class SimClock final : public Clock {
 public:
  uint64_t now_ns() override { return now; }
  uint64_t now = 1'000'000'000;
};

constexpr int kMaxSides = 4;

/// What the wire does to a datagram, in probabilities.
struct WireFaults {
  double loss = 0, duplicate = 0, reorder = 0, corrupt = 0, truncate = 0;
  double burst = 0;              ///< chance that this datagram begins a time without delivery
  bool checksum = true;          ///< damaged datagrams are dropped by the receiving port
  uint64_t burst_ns = 0;         ///< length of that time
  uint64_t delay = 5'000;        ///< ns
  uint64_t jitter = 0;           ///< ns, uniform, keeps the order only by luck
  uint64_t reorder_by = 50'000;  ///< ns, extra delay of a reordered datagram
  uint64_t per_packet = 0;       ///< ns on the sender's line: a rate limit
  size_t queue = SIZE_MAX;       ///< datagrams waiting for a receiver; more are dropped
  size_t max_payload = SIZE_MAX; ///< larger datagrams vanish: the path's MTU
  double mark = 0;               ///< of those that may be marked (ECN)
  bool drops_ect = false;        ///< those that may be marked are lost, all of them
  bool cut[kMaxSides] = {};      ///< nothing passes from this side
};

using Datagram = std::vector<std::byte>;

/// Joins up to kMaxSides hosts. Who is meant says the last byte of the address.
class SimWire {
 public:
  SimWire(SimClock& clock, uint64_t seed) : clock_(clock), rng_(seed) {}

  WireFaults faults;
  /// Sees every datagram before the wire's own faults; may change it. false: it is lost.
  std::function<bool(int side, Datagram& d)> filter;
  /// Is told of every datagram that is lost, and why.
  std::function<void(int side, const Datagram& d, const FlowKey& flow, const char* why)> lost;
  uint64_t sent = 0;
  std::string broken;  ///< "" or the first rule that a port's user has broken

  /// @p fragments: what is larger than the path takes is put together again on the other side. @p ect: may be marked.
  void send(int side, std::span<const std::byte> bytes, const FlowKey& flow, bool fragments = false, bool ect = false) {
    ++sent;
    Datagram d(bytes.begin(), bytes.end());
    if (filter && !filter(side, d)) return;
    if (faults.cut[side]) return lose(side, d, flow, "cut");
    if (faults.drops_ect && ect) return lose(side, d, flow, "ect");
    const bool ce = ect && faults.mark > 0 && to_chance(marks_()) < faults.mark;
    if (d.size() > faults.max_payload && !fragments) return lose(side, d, flow, "mtu");
    if (clock_.now < burst_until_[side]) return lose(side, d, flow, "burst");
    if (chance(faults.burst)) {
      burst_until_[side] = clock_.now + faults.burst_ns;
      return lose(side, d, flow, "burst");
    }
    if (chance(faults.loss)) return lose(side, d, flow, "loss");
    const int copies = chance(faults.duplicate) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      Datagram c = d;
      if (damage(c) && faults.checksum) {
        lose(side, d, flow, "checksum");
        continue;
      }
      line_free_[side] = std::max(line_free_[side], clock_.now) + faults.per_packet;
      uint64_t at = line_free_[side] + faults.delay;
      if (faults.jitter != 0) at += rng_() % faults.jitter;
      if (chance(faults.reorder)) at += faults.reorder_by;
      const int to = side_of(flow.remote_addr);
      if (to < 0 || arriving_[to].size() >= faults.queue)
        lose(side, d, flow, "queue");
      else
        inject(to, std::move(c), reversed(flow), at, ce);
    }
  }
  /// Delivers to @p side at time @p at (0: now). @p ce: marked.
  void inject(int side, Datagram d, const FlowKey& flow, uint64_t at = 0, bool ce = false) {
    if (arriving_[side].size() >= faults.queue) return;
    arriving_[side].emplace(std::pair(std::max(at, clock_.now), order_++), Arrival{std::move(d), flow, ce});
  }
  bool receive(int side, Datagram& d, FlowKey& flow, bool& ce) {
    auto& q = arriving_[side];
    if (q.empty() || q.begin()->first.first > clock_.now) return false;
    d = std::move(q.begin()->second.data);
    flow = q.begin()->second.flow;
    ce = q.begin()->second.ce;
    q.erase(q.begin());
    return true;
  }
  uint64_t next_arrival() const {
    uint64_t at = UINT64_MAX;
    for (int side = 0; side < kMaxSides; ++side) at = std::min(at, next_arrival(side));
    return at;
  }
  uint64_t next_arrival(int side) const {
    return arriving_[side].empty() ? UINT64_MAX : arriving_[side].begin()->first.first;
  }
  bool chance(double p) { return p > 0 && to_chance(rng_()) < p; }
  std::mt19937_64& rng() { return rng_; }

  static FlowKey reversed(const FlowKey& f) {
    return {f.remote_addr, f.local_addr, f.remote_port, f.local_port};
  }
  static std::array<uint8_t, 16> address(int side, bool ipv6) {
    const auto last = static_cast<uint8_t>(side + 1);
    if (ipv6) return {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, last};
  }
  /// -1: nobody's address.
  static int side_of(const std::array<uint8_t, 16>& addr) {
    return addr[15] >= 1 && addr[15] <= kMaxSides ? addr[15] - 1 : -1;
  }

 private:
  struct Arrival {
    Datagram data;
    FlowKey flow;
    bool ce;
  };
  static double to_chance(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }
  void lose(int side, const Datagram& d, const FlowKey& flow, const char* why) {
    if (lost) lost(side, d, flow, why);
  }
  /// true: the datagram is not what it was.
  bool damage(Datagram& d) {
    const bool flip = chance(faults.corrupt) && !d.empty(), cut = chance(faults.truncate) && !d.empty();
    if (flip) d[rng_() % d.size()] ^= static_cast<std::byte>(1u << rng_() % 8);
    if (cut) d.resize(rng_() % d.size());
    return flip || cut;
  }

  SimClock& clock_;
  std::mt19937_64 rng_;
  std::mt19937_64 marks_{1};  ///< of its own: what else happens is the same with and without marks
  std::map<std::pair<uint64_t, uint64_t>, Arrival> arriving_[kMaxSides];
  uint64_t order_ = 0;
  uint64_t line_free_[kMaxSides] = {};
  uint64_t burst_until_[kMaxSides] = {};
};

class SimPort : public Port {
 public:
  /// @p refers: payload is given by reference, as to a socket.
  SimPort(SimWire& wire, int side, uint32_t max_payload, size_t buffers, bool refers = false)
      : wire_(wire), side_(side), max_payload_(max_payload), refers_(refers),
        storage_(new std::byte[buffers * kBufBytes]) {
    for (size_t i = 0; i < buffers; ++i) free_.push_back(storage_.get() + i * kBufBytes);
    total_ = buffers;
  }

  uint32_t max_payload() const override { return max_payload_; }
  size_t tx_alloc(std::span<TxBuf> bufs) override {
    size_t n = 0;
    for (; n < bufs.size() && !free_.empty(); ++n) bufs[n] = {take(), 0, nullptr, nullptr};
    return n;
  }
  bool takes_references() const override { return refers_; }
  size_t tx(std::span<TxBuf> bufs) override {
    const size_t n = std::min(bufs.size(), tx_limit);
    for (size_t i = 0; i < bufs.size(); ++i) {
      join(bufs[i]);
      if (bufs[i].len > max_payload_ || bufs[i].len < kTrpBytes)
        wire_.broken = "datagram of " + std::to_string(bufs[i].len) + " bytes given to the port";
      else if (i < n)
        wire_.send(side_, {bufs[i].data, bufs[i].len}, bufs[i].path->flow, fragments, bufs[i].path->ect);
      free_.push_back(bufs[i].data);
    }
    return n;
  }
  void tx_free(std::span<TxBuf> bufs) override {
    for (TxBuf& b : bufs) free_.push_back(b.data);
  }
  size_t rx(std::span<RxBuf> bufs) override {
    size_t n = 0;
    Datagram d;
    FlowKey flow;
    bool ce = false;
    while (!deaf && n < bufs.size() && !free_.empty() && next(d, flow, ce)) {
      std::byte* p = take();
      if (!d.empty()) std::memcpy(p, d.data(), d.size());
      bufs[n++] = {p, static_cast<uint32_t>(d.size()), flow, nullptr, ce};
    }
    return n;
  }
  void rx_free(std::span<RxBuf> bufs) override {
    for (RxBuf& b : bufs) free_.push_back(const_cast<std::byte*>(b.data));
  }
  Drops drops() const override { return drops_; }

  size_t free_buffers() const { return free_.size(); }
  size_t total_buffers() const { return total_; }

  size_t tx_limit = SIZE_MAX;  ///< datagrams that one tx() takes
  bool deaf = false;  ///< what arrives is left for another port of the side
  bool fragments = false;      ///< what the path does not take whole goes in parts
  Drops drops_{};

 protected:
  /// The next datagram that has arrived, and whether it has been marked on its way; false: none.
  virtual bool next(Datagram& d, FlowKey& flow, bool& ce) { return wire_.receive(side_, d, flow, ce); }
  std::byte* take() {
    std::byte* p = free_.back();
    free_.pop_back();
    return p;
  }

 protected:
  /// All of the datagram in the buffer.
  void join(TxBuf& b) {
    if (b.more_len == 0) return;
    if (!refers_ || b.len > kBufBytes || b.more_len > kBufBytes - b.len) {
      wire_.broken = "a reference to " + std::to_string(b.more_len) + " bytes given to the port";
      b.more_len = 0;
      return;
    }
    std::memcpy(b.data + b.len, b.more, b.more_len);
    b.len += b.more_len;
    b.more_len = 0;
  }

 private:
  static constexpr size_t kBufBytes = 9216;
  SimWire& wire_;
  int side_;
  uint32_t max_payload_;
  bool refers_;
  std::unique_ptr<std::byte[]> storage_;
  std::vector<std::byte*> free_;
  size_t total_ = 0;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SUPPORT_SIM_WIRE_H
