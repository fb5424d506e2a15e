// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_acks.cc
/// One engine that sends, and a peer, played by the fuzzer, that acknowledges: truly, late, twice,
/// contradicting itself, or what was never sent. The engine must keep to the window that it was
/// given and complete only what was acknowledged; and when the peer becomes honest in the
/// end, everything must complete, or the connection must have ended.
#include <optional>

#include "mutate.h"

namespace {

using namespace usiw;
using namespace usiw::fuzz;

class Sender {
 public:
  explicit Sender(Input& in)
      : in_(in), limits_{.wr = 16, .cqe = 256, .window = 1u + in.get<uint16_t>() % kWindow}, host_(clock_, 0, limits_) {
    host_.port.on_tx = [this](std::span<const std::byte> d) { check_sent_in_order(d); };
    host_.on_send_done = [this](size_t index, const Cqe& c) { check_done(index, c); };
    host_.connect();
  }

  void run() {
    for (unsigned n = 0; !in_.done() && n < 600; ++n) op();
    be_honest();
    host_.engine().qp_abort(host_.qp);
    host_.poll();
    FUZZ_CHECK(host_.outstanding() == 0, "a work request never completes");
  }

 private:
  void op() {
    const uint8_t what = in_.get();
    switch (what % 12) {
      case 0:
      case 1: run_engine(); break;
      case 2: {
        static constexpr uint64_t kSteps[] = {100, 4'000, 30'000, 400'000, 5'000'000, 60'000'000, 600'000'000};
        clock_.now += in_.pick(kSteps);
        break;
      }
      case 3:
      case 4:
      case 5: post(); break;
      case 6: ack(in_.get(), 0); break;                       // some of what it has sent
      case 7: ack(in_.get<uint16_t>() % 1100, 0); break;
      case 8:
      case 9: sack(); break;
      case 10: {
        Datagram d = trp(USIW_TRP_SACK, acked_ + in_.get(), acked_);
        mutate(in_, d);
        deliver(std::move(d));
        break;
      }
      case 11:
        host_.port.tx_limit = in_.flag() ? SIZE_MAX : in_.get() % 8;
        break;
    }
  }

  void post() {
    const uint8_t what = in_.get();
    const auto op = (what & 1) != 0 ? WrOpcode::kSend : WrOpcode::kRdmaWrite;
    static constexpr uint32_t kLengths[] = {0, 8, 1000, 1440, 1441, 4096};
    std::vector<Sge> sges((what >> 1) % 4);
    for (Sge& s : sges) s = {to_of(kSource), in_.pick(kLengths), stag_of(kSource)};
    host_.post_send(op, 0, std::move(sges), 0x1000, 1);
  }

  static Datagram trp(uint8_t opcode, uint32_t psn, uint32_t ack, uint16_t flags = 0, uint16_t credit = 1024,
                      uint16_t echo = 0) {
    Datagram d(kTrpBytes);
    encode_trp(d.data(), {psn, ack, flags, opcode, credit, echo});
    return d;
  }
  void ack(uint32_t more, uint16_t flags) {
    const uint32_t to = acked_ + std::min(more, next_ - acked_);
    deliver(trp(USIW_TRP_SACK, to, to, static_cast<uint16_t>(flags | (in_.get() & 3)), credit(), in_.get<uint16_t>()));
  }
  uint16_t credit() {
    static constexpr uint16_t kCredits[] = {1024, 1024, 1024, 0, 1, 2, 64, 0xffff};
    return in_.pick(kCredits);
  }
  /// A bitmap over what it has sent, as a rule.
  void sack() {
    const uint32_t out = next_ - acked_;
    if (out < 2) return;
    const uint32_t base = acked_ + in_.get() % std::min(out, 8u);
    const uint32_t bits = 2 + in_.get<uint16_t>() % (next_ - base + 1);
    Datagram d = trp(USIW_TRP_SACK, base + bits, base, in_.get() & 3, credit(), in_.get<uint16_t>());
    for (uint32_t i = 0; i < (bits + 7) / 8; ++i) d.push_back(std::byte{in_.get()});
    d[kTrpBytes] &= std::byte{0xfe};
    const uint32_t last = (bits - 1) % 8;
    d.back() &= static_cast<std::byte>((2u << last) - 1);
    d.back() |= static_cast<std::byte>(1u << last);
    deliver(std::move(d));
  }

  void deliver(Datagram d) {
    TrpHeader h{};
    if (decode_trp(d, h) && (h.opcode == USIW_TRP_SACK || h.opcode == USIW_TRP_DATA ||
                             h.opcode == USIW_TRP_SHUTDOWN))
      arriving_ = h;
    believe();
    host_.port.arrived.emplace_back(flow_of(0), std::move(d));
    run_engine();
    arriving_.reset();
  }

  /// What the engine may take the datagram for that arrives in this run, at most: it may send in the same run, ahead of
  /// the look at what has come.
  void believe() {
    if (!arriving_ || !psn_in(arriving_->ack_psn, next_ - 2 * kWindow, 2 * kWindow + 1)) return;
    if (psn_lt(acked_, arriving_->ack_psn)) acked_ = arriving_->ack_psn;
    const uint32_t edge = arriving_->ack_psn + std::min<uint32_t>(arriving_->credit, kWindow);
    if (psn_lt(window_edge_, edge)) window_edge_ = edge;
  }

  void run_engine() {
    host_.progress();
    host_.port.sent.clear();
    clock_.now += 500;
    host_.poll();
  }

  void check_sent_in_order(std::span<const std::byte> d) {
    TrpHeader h{};
    decode_trp(d, h);
    if (h.opcode != USIW_TRP_DATA && h.opcode != USIW_TRP_SHUTDOWN) return;
    FUZZ_CHECK(psn_lt(h.psn, window_edge_), "sent beyond the window of the peer");
    FUZZ_CHECK(psn_le(h.psn, next_), "a PSN left out");
    if (h.psn != next_) return;
    ++next_;
    believe();
    FUZZ_CHECK(next_ - acked_ <= kWindow, "more outstanding than the window");
    DdpSegment s{};
    decode_ddp(d.subspan(kTrpBytes), s);
    if (s.last) ends_.push_back(next_);
  }

  /// Work requests end in the order in which they were posted.
  void check_done(size_t index, const Cqe& c) {
    if (c.status != WcStatus::kSuccess) return;
    FUZZ_CHECK(index < ends_.size() && psn_le(ends_[index], acked_), "complete, and not acknowledged");
  }

  void be_honest() {
    host_.port.tx_limit = SIZE_MAX;
    const uint64_t end = clock_.now + 60'000'000'000;
    while (host_.sends_outstanding() != 0 && host_.qp->state() != QpState::kError) {
      FUZZ_CHECK(clock_.now < end, "everything is acknowledged, and work remains");
      run_engine();
      deliver(trp(USIW_TRP_SACK, next_, next_));
      clock_.now = std::max(clock_.now, std::min(host_.engine().next_deadline_ns(), end));
    }
  }

  Input& in_;
  VirtualClock clock_;
  HostLimits limits_;
  Host host_;
  std::optional<TrpHeader> arriving_;
  uint32_t next_ = Host::kIsn[0];   ///< the first PSN that it has not sent
  uint32_t acked_ = Host::kIsn[0];  ///< highest acknowledgement that it may have believed
  uint32_t window_edge_ = Host::kIsn[0] + limits_.window;  ///< first PSN that the peer has never allowed
  std::vector<uint32_t> ends_;  ///< by message: the PSN behind its last datagram
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Sender(in).run();
  return 0;
}
