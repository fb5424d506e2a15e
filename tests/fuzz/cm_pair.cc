// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_pair.cc
/// Drives a pair of connections (tests/support/cm_pair.h) by the bytes of the input. The fuzzer is the wire, the
/// engines and the programs: it makes the calls, lets time pass, and delivers, loses, repeats, reorders, changes and
/// forges the datagrams. At the end the wire works, no more calls come, and everything has to come to rest.
#include <algorithm>
#include <cerrno>
#include <deque>
#include <span>

#include "input.h"
#include "tests/support/cm_pair.h"
#include "uapi/usiw_abi.h"

namespace {

using cmpair::Datagram;
using cmpair::End;
using cmpair::kInitiator;
using usiw::fuzz::Exact;
using usiw::fuzz::Input;

class Fuzz : cmpair::Pair {
 public:
  explicit Fuzz(Input& in) : Pair(5'000'000), in_(in) {}

  void run() {
    begin();
    for (unsigned n = 0; !in_.done() && n < 1000; ++n) op();
    rest();
  }

 private:
  void begin() {
    cmpair::Parameters own{.isn = next_isn_++, .mtu = 9000, .window = 64};
    const auto pd = private_data(in_.get() * 2u);
    own.ird = in_.get();
    own.ord = in_.get();
    connect(own, pd);
  }

  void op() {
    const uint8_t what = in_.get();
    const int side = what >> 7;
    switch (what % 20) {
      case 0:
      case 1:
      case 2:
      case 3: deliver(side, take(side)); return;
      case 4: take(side); return;
      case 5: deliver(side, copy(side)); return;
      case 6: {
        Datagram d = copy(side);
        lied_ = true;
        for (unsigned n = 1 + in_.get() % 3; n != 0 && !d.empty(); --n) d[in_.get() % d.size()] ^= in_.get();
        if (in_.get() % 8 == 0) d.resize(in_.get() % (d.size() + 1));
        deliver(side, d);
        return;
      }
      case 7: {  // a datagram of this connection or of an earlier one: with the present ISNs, or with others near them
        Datagram d(14);
        lied_ = true;
        put32(d, 0, isn_of(side) + (in_.get() % 4 == 0));
        put32(d, 4, isn_of(1 - side) + (in_.get() % 4 == 0));
        d[8] = static_cast<uint8_t>(in_.get() << 4);
        d[9] = in_.get() & 0x18;
        deliver(side, d);
        return;
      }
      case 8:
        now_ += in_.get<uint16_t>() * 50u;
        timers();
        return;
      case 9:
        now_ = std::max(now_, earliest());
        timers();
        return;
      case 10:
        if (live_[kInitiator] == nullptr) begin();
        return;
      default:
        if (live_[side] != nullptr) call(*live_[side], what % 20);
        return;
    }
  }

  /// A call of the user or of the engine.
  void call(End& e, unsigned what) {
    switch (what) {
      case 11: {
        const uint8_t ird = in_.get(), ord = in_.get();
        accept(e, ird, ord, private_data(in_.get() * 2u));
        break;
      }
      case 12: {
        const auto pd = private_data(in_.get());
        act(e, usiw_cm_reject(&e.c, pd.data(), static_cast<uint16_t>(pd.size()), now_));
        break;
      }
      case 13: act(e, usiw_cm_disconnect(&e.c, now_)); break;
      case 14: act(e, usiw_cm_abort(&e.c, USIW_ABORT_LOCAL, now_)); break;
      case 15:
      case 16: act(e, usiw_cm_ready(&e.c, now_)); break;
      case 17: act(e, usiw_cm_refused(&e.c, -ENOMEM, now_)); break;
      case 18: act(e, usiw_cm_report(&e.c, in_.flag() ? USIW_REPORT_PEER_CLOSED : USIW_REPORT_CLOSED, 0, now_)); break;
      case 19:
        if (in_.flag()) {
          act(e, usiw_cm_failed(&e.c, -ETIMEDOUT, now_));
        } else {
          lied_ |= !sends_data(1 - e.side);
          act(e, usiw_cm_data_seen(&e.c));
        }
        break;
    }
  }

  /// True if @p side may send DATA now and the other end takes its PSNs for a CONFIRM.
  bool sends_data(int side) const {
    if (live_[side] == nullptr || live_[1 - side] == nullptr) return false;
    const usiw_cm_conn &from = live_[side]->c, &to = live_[1 - side]->c;
    return usiw_cm_is_installed(&from) && from.local_isn == to.peer_isn && from.peer_isn == to.local_isn;
  }

  static void put32(Datagram& d, size_t at, uint32_t v) {
    for (int i = 0; i < 4; ++i) d[at + static_cast<size_t>(i)] = static_cast<uint8_t>(v >> (24 - 8 * i));
  }
  uint32_t isn_of(int side) const { return live_[side] != nullptr ? live_[side]->c.local_isn : 0; }
  static std::span<const uint8_t> private_data(size_t len) { return std::span(kPrivate).first(len); }

  // ---- The wire: datagrams that a side has sent ----

  Datagram take(int side) {
    auto& w = wire_[side];
    if (w.empty()) return {};
    const size_t i = in_.get() % w.size();
    Datagram d = w[i];
    w.erase(w.begin() + static_cast<ptrdiff_t>(i));
    return d;
  }
  Datagram copy(int side) {
    return wire_[side].empty() ? Datagram{} : wire_[side][in_.get() % wire_[side].size()];
  }
  void deliver(int from, const Datagram& d) {
    Exact bytes(d);
    receive(1 - from, std::span(bytes.data(), bytes.size()));
  }
  void send(int side, const Datagram& d) override {
    // The wire must not grow without bound, so it loses a datagram if too many wait.
    if (wire_[side].size() < 32) wire_[side].push_back(d);
  }

  // ---- The ends ----

  cmpair::Parameters responder() override { return {.isn = next_isn_++, .mtu = 4000, .window = 32}; }
  void fail(const std::string& what) override { FUZZ_CHECK(false, what.c_str()); }

  /// Returns the time of the next timer; 0: none runs.
  uint64_t earliest() const {
    uint64_t at = UINT64_MAX;
    for (const End* e : live_)
      if (e != nullptr && e->c.deadline_us != 0) at = std::min<uint64_t>(at, e->c.deadline_us);
    return at == UINT64_MAX ? 0 : at;
  }
  void timers() {
    for (int side : {0, 1}) {
      End* e = live_[side];
      if (e != nullptr && e->c.deadline_us != 0 && e->c.deadline_us <= now_) timer(*e);
    }
  }

  /// Delivers everything and runs the timers until no datagram is on the wire and no timer runs.
  void rest() {
    const uint64_t start = now_;
    for (unsigned n = 0;; ++n) {
      FUZZ_CHECK(n < 3000 && now_ - start < 300'000'000, "never comes to rest");
      bool moved = false;
      for (int side : {0, 1}) {
        if (wire_[side].empty()) continue;
        const Datagram d = std::move(wire_[side].front());
        wire_[side].pop_front();
        deliver(side, d);
        moved = true;
      }
      if (moved) continue;
      const uint64_t at = earliest();
      if (at == 0) break;
      now_ = std::max(now_, at);
      timers();
    }
    check_rest();
  }

  static constexpr uint8_t kPrivate[512] = {'p', 'd'};

  Input& in_;
  uint32_t next_isn_ = 0xfffffff8;
  std::deque<Datagram> wire_[2];
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Fuzz(in).run();
  return 0;
}
