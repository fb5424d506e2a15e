// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_pair.cc
/// Two engines that talk to each other, and the fuzzer between them: it posts work, and delivers,
/// loses, repeats, reorders, changes and forges datagrams. However hostile: no byte changes that
/// nobody gave away, each work request completes once and in order, time goes on.
#include "mutate.h"

namespace {

using namespace usiw;
using namespace usiw::fuzz;

class Pair {
 public:
  explicit Pair(Input& in) : in_(in), hosts_{{clock_, 0, {.on_demand = in.last() % 8 == 7}},
                                           {clock_, 1, {.srq = in.last() >= 0xc0, .on_demand = in.last() % 4 == 3}}} {
    for (Host& h : hosts_) h.connect();
  }

  void run() {
    for (unsigned n = 0; !in_.done() && n < kMaxOps; ++n) op();
    settle(3'000'000'000);
    for (Host& h : hosts_) {
      h.engine().qp_abort(h.qp);
      h.poll();
      FUZZ_CHECK(h.outstanding() == 0 || h.told.overrun != 0, "a work request never completes");
    }
  }

 private:
  static constexpr unsigned kMaxOps = 400;

  void op() {
    const uint8_t what = in_.get();
    const int side = what >> 7;
    Host& h = hosts_[side];
    switch (what % 20) {
      case 0:
      case 1:
      case 2: turn(); break;
      case 3:
        h.progress();
        collect(side);
        break;
      case 4: {
        static constexpr uint64_t kSteps[] = {300, 5'000, 60'000, 1'000'000, 25'000'000, 450'000'000,
                                              1'600'000'000, 11'000'000'000};
        clock_.now += in_.pick(kSteps);
        break;
      }
      case 5:
      case 6: post_send(h); break;
      case 7: {
        std::vector<Sge> sges(in_.get() % 4);
        for (Sge& s : sges) s = sge_from(in_);
        h.post_recv(std::move(sges));
        break;
      }
      case 8:
      case 9: deliver(side, take(side)); break;
      case 10: take(side); break;
      case 11: deliver(side, copy(side)); break;
      case 12:
      case 13: {
        Datagram d = in_.flag() ? take(side) : copy(side);
        mutate(in_, d);
        deliver(side, std::move(d));
        break;
      }
      case 14: {
        const uint32_t psn = next_psn_[side] + (in_.flag() ? step_from(in_) : 0);
        const uint32_t ack = next_psn_[1 - side] - (in_.flag() ? in_.get() % 16 : 0);
        deliver(side, craft(in_, psn, ack));
        break;
      }
      case 15: h.poll(); break;
      case 16:
        if (in_.get() % 4 == 0) h.engine().qp_shutdown(h.qp);
        break;
      case 17:
        if (in_.get() % 8 == 0) h.engine().qp_abort(h.qp);
        break;
      case 18:
        if (in_.flag())
          h.engine().qp_probe(h.qp);
        else if (const uint8_t kind = in_.get(); kind < kRegions)
          h.remove(kind);
        else if (kind >= 0xf0)
          h.arm(kind & 0xfu);
        break;
      case 19:
        h.port.tx_limit = in_.flag() ? SIZE_MAX : in_.get() % 4;
        h.port.buffers = in_.flag() ? SIZE_MAX : in_.get() % 4;
        break;
    }
  }

  /// Binds a window, invalidates one, by itself or by a SEND, or goes by one.
  void post_window(Host& h) {
    const uint8_t what = in_.get();
    const bool type2 = (what & 1) != 0;
    const uint32_t stag = window_of(type2, what >> 1 & 3);
    std::vector<Sge> sges;
    Qp::SendWr wr{.wr_id = 0, .opcode = WrOpcode::kBindMw, .flags = 0, .remote_addr = 0, .rkey = stag};
    switch (what >> 3 & 3) {
      case 0: {
        const Sge to = sge_from(in_);
        wr.remote_addr = to.addr;
        wr.imm = type2 || (what & 0xe0) == 0xe0 ? 1 : 0;
        wr.bind = {.length = to.length, .access = in_.get(), .region = to.lkey};
        break;
      }
      case 1:
        wr.opcode = WrOpcode::kLocalInv;
        wr.imm = (what & 0xe0) == 0xe0 ? stag_of(kOpen) : stag;
        break;
      case 2:
        wr.opcode = WrOpcode::kSendInv;
        wr.imm = (what & 0xe0) == 0xe0 ? stag_of(kOpen) : stag;
        wr.flags = static_cast<uint8_t>(in_.get() & (kWrFence | kWrSolicited));
        if (in_.flag()) sges.push_back(sge_from(in_));
        break;
      default: {
        static constexpr WrOpcode kOps[] = {WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead, WrOpcode::kFetchAdd};
        sges.push_back(sge_from(in_));
        const uint64_t to = (what & 0x80) != 0 ? in_.get() : to_of(in_.get() % kRegions) + in_.get();
        h.post_send(in_.pick(kOps), 0, std::move(sges), to, stag);
        return;
      }
    }
    h.post_window(wr, std::move(sges));
  }

  void post_send(Host& h) {
    static constexpr WrOpcode kOps[] = {WrOpcode::kSend,    WrOpcode::kRdmaWrite,    WrOpcode::kRdmaRead,
                                       WrOpcode::kSendImm, WrOpcode::kRdmaWriteImm, WrOpcode::kFetchAdd,
                                       WrOpcode::kCompareSwap};
    const WrOpcode op = in_.pick(kOps);
    const uint8_t what = in_.get();
    if ((what & 0xc0) == 0xc0) return post_window(h);
    const auto flags = static_cast<uint8_t>(what & (kWrFence | kWrSignaled | kWrSolicited | kWrInline));
    std::vector<Sge> sges(in_.get() % 4);
    for (Sge& s : sges) s = sge_from(in_);
    const Sge remote = sge_from(in_);
    h.post_send(op, flags, std::move(sges), remote.addr, remote.lkey);
  }

  /// Moves what a side has sent onto the wire.
  void collect(int side) {
    auto& sent = hosts_[side].port.sent;
    for (; !sent.empty(); sent.pop_front()) {
      const TrpHeader h = header_of(sent.front());
      if (h.opcode == USIW_TRP_DATA || h.opcode == USIW_TRP_SHUTDOWN)
        if (psn_lt(next_psn_[side], h.psn + 1)) next_psn_[side] = h.psn + 1;
      wire_[side].push_back(std::move(sent.front()));
    }
  }
  /// A datagram of @p side from the wire; an empty one when there is none.
  Datagram take(int side) {
    auto& w = wire_[side];
    if (w.empty()) return {};
    const size_t i = in_.get() % w.size();
    Datagram d = std::move(w[i]);
    w.erase(w.begin() + static_cast<ptrdiff_t>(i));
    return d;
  }
  Datagram copy(int side) {
    auto& w = wire_[side];
    return w.empty() ? Datagram{} : w[in_.get() % w.size()];
  }
  void deliver(int from, Datagram d) {
    hosts_[1 - from].port.arrived.emplace_back(flow_of(1 - from), std::move(d));
  }
  /// Everything on the wire arrives, both engines run.
  unsigned turn() {
    unsigned work = 0;
    for (int side : {0, 1}) {
      for (; !wire_[side].empty(); wire_[side].pop_front()) deliver(side, std::move(wire_[side].front()));
    }
    for (int side : {0, 1}) {
      work += hosts_[side].progress();
      collect(side);
      hosts_[side].poll();
    }
    clock_.now += 1'000;
    return work;
  }
  /// A wire that does its work for @p ns. What engines have been told may leave them waiting
  /// for ever, but never busy.
  void settle(uint64_t ns) {
    for (Host& h : hosts_) h.port.tx_limit = h.port.buffers = SIZE_MAX;
    const uint64_t end = clock_.now + ns;
    unsigned runs = 0;
    while (clock_.now < end) {
      const unsigned work = turn();
      FUZZ_CHECK(++runs < 100'000, "engines are busy without an end");
      if (work != 0 || !wire_[0].empty() || !wire_[1].empty()) continue;
      uint64_t at = end;
      for (Host& h : hosts_) at = std::min(at, h.engine().next_deadline_ns());
      clock_.now = std::max(clock_.now, at);
    }
  }

  Input& in_;
  VirtualClock clock_;
  Host hosts_[2];
  std::deque<Datagram> wire_[2];
  uint32_t next_psn_[2] = {Host::kIsn[0], Host::kIsn[1]};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Pair(in).run();
  return 0;
}
