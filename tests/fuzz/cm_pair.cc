// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_pair.cc
/// Two connection machines, each with the simplest of engines and kernels around it, and the
/// fuzzer between them: it makes the calls, lets time pass, and delivers, loses, repeats,
/// reorders, changes and forges the datagrams. Each end keeps the contract of cm/usiw_cm.h; ends that
/// nobody lied to agree while both are ESTABLISHED.
#include <cerrno>
#include <deque>
#include <memory>
#include <vector>

#include "cm/usiw_cm.h"
#include "input.h"
#include "tests/support/cm_contract.h"
#include "uapi/usiw_abi.h"

namespace {

using usiw::fuzz::Exact;
using usiw::fuzz::Input;
using Datagram = std::vector<uint8_t>;

struct End {
  usiw_cm_conn c{};
  Contract contract;
};

class Pair {
 public:
  explicit Pair(Input& in) : in_(in) {}

  void run() {
    connect();
    for (unsigned n = 0; !in_.done() && n < 1000; ++n) op();
    rest();
  }

 private:
  static constexpr int kInitiator = 0;

  void connect() {
    auto end = std::make_unique<End>();
    const auto pd_len = static_cast<uint16_t>(in_.get() * 2u);
    if (usiw_cm_init_active(&end->c, next_isn_++, in_.get(), in_.get(), 9000, 64, kPrivate, pd_len) != 0) return;
    end->contract.connected();
    ends_[kInitiator] = std::move(end);
    act(kInitiator, usiw_cm_connect(&ends_[kInitiator]->c, now_));
  }

  void op() {
    const uint8_t what = in_.get();
    const int side = what >> 7;
    End* e = ends_[side].get();
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
      case 7: {  // old, or of another connection: both ISNs of the ends' present ones, or near them
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
        if (!ends_[kInitiator]) connect();
        return;
      default: break;
    }
    if (e == nullptr) return;
    switch (what % 20) {
      case 11: {
        int err = 0;
        const uint32_t actions = usiw_cm_accept(&e->c, in_.get(), in_.get(), kPrivate,
                                                static_cast<uint16_t>(in_.get() * 2u), now_, &err);
        if (err == 0) e->contract.accepted();
        act(side, actions);
        break;
      }
      case 12: act(side, usiw_cm_reject(&e->c, kPrivate, in_.get(), now_)); break;
      case 13: act(side, usiw_cm_disconnect(&e->c, now_)); break;
      case 14: act(side, usiw_cm_abort(&e->c, USIW_ABORT_LOCAL, now_)); break;
      case 15:
      case 16: act(side, usiw_cm_ready(&e->c, now_)); break;
      case 17: act(side, usiw_cm_refused(&e->c, -ENOMEM, now_)); break;
      case 18: act(side, in_.flag() ? usiw_cm_peer_closed(&e->c, now_) : usiw_cm_closed(&e->c, now_)); break;
      case 19:
        if (in_.flag()) {
          act(side, usiw_cm_failed(&e->c, -ETIMEDOUT, now_));
        } else {
          lied_ |= !sends_data(1 - side);
          act(side, usiw_cm_data_seen(&e->c, now_));
        }
        break;
    }
  }

  /// DATA that @p side may send now has the PSNs that the other end takes for a CONFIRM.
  bool sends_data(int side) const {
    if (!ends_[side] || !ends_[1 - side]) return false;
    const usiw_cm_conn &from = ends_[side]->c, &to = ends_[1 - side]->c;
    return from.installed && from.local_isn == to.peer_isn && from.peer_isn == to.local_isn;
  }

  static void put32(Datagram& d, size_t at, uint32_t v) {
    for (int i = 0; i < 4; ++i) d[at + static_cast<size_t>(i)] = static_cast<uint8_t>(v >> (24 - 8 * i));
  }
  uint32_t isn_of(int side) const { return ends_[side] ? ends_[side]->c.local_isn : 0; }

  // ---- The wire: datagrams that side has sent ----

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

  /// What the kernel does with a datagram to the other side.
  void deliver(int from, const Datagram& d) {
    const int to = 1 - from;
    Exact bytes(d);
    const auto len = static_cast<uint32_t>(d.size());
    usiw_cm_packet pkt;
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    const int rc = usiw_cm_decode(&pkt, bytes.data(), len);
    if (rc == -EPROTONOSUPPORT && pkt.opcode == USIW_TRP_REQ)
      return send(to, buf, usiw_cm_build_refusal(&pkt, USIW_REJECT_VERSION, buf));
    if (rc != 0) return;
    if (ends_[to]) {
      act(to, usiw_cm_receive(&ends_[to]->c, &pkt, now_));
      if (ends_[to] || pkt.opcode != USIW_TRP_REQ) return;
    }
    if (pkt.opcode != USIW_TRP_REQ) return send(to, buf, usiw_cm_build_stray_reset(bytes.data(), len, buf));
    if (to == kInitiator) return send(to, buf, usiw_cm_build_refusal(&pkt, USIW_REJECT_NO_LISTENER, buf));
    auto end = std::make_unique<End>();
    const int refusal = usiw_cm_init_passive(&end->c, &pkt, next_isn_++, 4000, 32, now_);
    if (refusal != 0) return send(to, buf, usiw_cm_build_refusal(&pkt, static_cast<uint8_t>(refusal), buf));
    end->contract.handed_up();
    ends_[to] = std::move(end);
    act(to, 0);
  }
  void send(int side, const uint8_t* bytes, uint32_t len) {
    // A wire does not grow without bound: what is not taken is lost.
    if (len != 0 && wire_[side].size() < 32) wire_[side].emplace_back(bytes, bytes + len);
  }

  // ---- The ends ----

  void act(int side, uint32_t actions) {
    End& e = *ends_[side];
    const std::string broken = e.contract.check(e.c, actions);
    FUZZ_CHECK(broken.empty(), broken.c_str());
    if ((actions & USIW_CM_A_TX) != 0) {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      send(side, buf, usiw_cm_build(&e.c, buf));
    }
    if ((actions & USIW_CM_A_DEAD) != 0) ends_[side].reset();
    check_both();
  }

  void check_both() {
    if (lied_ || !ends_[0] || !ends_[1]) return;
    const usiw_cm_conn &a = ends_[0]->c, &b = ends_[1]->c;
    if (a.state != USIW_CM_ESTABLISHED || b.state != USIW_CM_ESTABLISHED || a.local_isn != b.peer_isn) return;
    FUZZ_CHECK(a.peer_isn == b.local_isn, "ISNs differ");
    FUZZ_CHECK(a.mtu == b.mtu && a.features == b.features, "MTUs or features differ");
    FUZZ_CHECK(a.ord <= b.ird && b.ord <= a.ird, "ORD of one end over the IRD of the other");
    FUZZ_CHECK(a.peer_window == b.window && b.peer_window == a.window, "windows differ");
    FUZZ_CHECK(a.peer_pd_len == b.pd_len && b.peer_pd_len == a.pd_len, "private data differ");
  }

  uint64_t earliest() const {
    uint64_t at = UINT64_MAX;
    for (const auto& e : ends_)
      if (e && e->c.deadline_us != 0) at = std::min<uint64_t>(at, e->c.deadline_us);
    return at == UINT64_MAX ? 0 : at;
  }
  void timers() {
    for (int side : {0, 1}) {
      if (!ends_[side] || ends_[side]->c.deadline_us == 0 || ends_[side]->c.deadline_us > now_) continue;
      act(side, usiw_cm_timer(&ends_[side]->c, now_));
      FUZZ_CHECK(!ends_[side] || ends_[side]->c.deadline_us == 0 || ends_[side]->c.deadline_us > now_,
                 "a timer that stays due");
    }
  }

  /// The wire works again and nobody calls: datagrams stop, every end is gone or ESTABLISHED.
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
    for (const auto& e : ends_)
      FUZZ_CHECK(!e || e->c.state == USIW_CM_ESTABLISHED, "left in a state that should have ended");
  }

  static constexpr uint8_t kPrivate[512] = {'p', 'd'};

  Input& in_;
  uint64_t now_ = 5'000'000;
  uint32_t next_isn_ = 0xfffffff8;
  std::unique_ptr<End> ends_[2];
  std::deque<Datagram> wire_[2];
  bool lied_ = false;  ///< a datagram was changed or forged
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Pair(in).run();
  return 0;
}
