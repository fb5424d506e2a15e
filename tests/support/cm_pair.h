// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_pair.h
/// Two hosts that make connections of one 4-tuple by the state machine of cm/usiw_cm.h, and the rules for both.
///
/// The state machine has to keep its contract, and the two ends have to agree, whatever the wire, the engines and the
/// programs do. So these belong to a driver, which derives from Pair: tests/unit/cm/sim.h draws them from a seed, and
/// tests/fuzz/cm_pair.cc reads them from the bytes of a fuzzer. Pair has the rest: the control plane of each host
/// passes a datagram to its connection, admits a REQ, or answers. After each call on an end, Pair checks the contract
/// of that end and the agreement of the two.
#ifndef USIW_TESTS_SUPPORT_CM_PAIR_H
#define USIW_TESTS_SUPPORT_CM_PAIR_H

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cm/usiw_cm.h"
#include "cm_contract.h"

namespace cmpair {

/// The initiator's host sends REQs and has no listener. The responder's host accepts each REQ that it can.
inline constexpr int kInitiator = 0, kResponder = 1;

using Datagram = std::vector<uint8_t>;

/// One connection at one host. A driver may derive from End to add its engine and its program.
struct End {
  virtual ~End() = default;
  int side = kInitiator;
  usiw_cm_conn c{};
  Contract contract;
};

/// Own parameters of an end.
struct Parameters {
  uint32_t isn = 0;
  uint16_t ird = 0, ord = 0;  ///< for an initiator; a responder gets them by accept()
  uint16_t mtu = 0, window = 0;
};

class Pair {
 public:
  virtual ~Pair() = default;

 protected:
  explicit Pair(uint64_t now_us) : now_(now_us) {}

  // ---- The driver supplies these calls ----

  /// A rule is broken.
  virtual void fail(const std::string& what) = 0;
  /// Puts a datagram of @p side on the wire.
  virtual void send(int side, const Datagram& datagram) = 0;
  virtual std::unique_ptr<End> make_end() { return std::make_unique<End>(); }
  virtual Parameters responder() = 0;
  /// Carries out the actions that come before USIW_CM_A_TX: those of the engine.
  virtual void engine(End&, uint32_t /*actions*/) {}
  /// Carries out the other actions. @p end has left the table if it is dead.
  virtual void acted(End& /*end*/, uint32_t /*actions*/) {}
  /// A REQ has been admitted: its program may accept or reject it.
  virtual void requested(End&) {}

  // ---- Calls of the driver ----

  /// Makes an end of the initiator's host and connects it. That host must have no live end.
  End& connect(const Parameters& own, std::span<const uint8_t> pd) {
    End& end = add(kInitiator, make_end());
    if (usiw_cm_init_active(&end.c, own.isn, own.ird, own.ord, own.mtu, own.window, pd.data(),
                            static_cast<uint16_t>(pd.size())))
      fail("init_active");
    end.contract.connected();
    act(end, usiw_cm_connect(&end.c, now_));
    return end;
  }

  void accept(End& end, uint16_t ird, uint16_t ord, std::span<const uint8_t> pd) {
    int err = 0;
    const uint32_t actions = usiw_cm_accept(&end.c, ird, ord, pd.data(), static_cast<uint16_t>(pd.size()), now_, &err);
    if (err == 0) end.contract.accepted();
    act(end, actions);
  }

  void timer(End& end) {
    act(end, usiw_cm_timer(&end.c, now_));
    if (end.c.deadline_us != 0 && end.c.deadline_us <= now_) fail_at(end, "a timer that stays due");
  }

  /// Sends a datagram that a function of cm/ has built. @p len: 0: there is none.
  void send_built(int side, const uint8_t* bytes, uint32_t len) {
    if (len == 0) return;
    usiw_cm_packet pkt;
    if (usiw_cm_decode(&pkt, bytes, len) != 0) fail("a datagram of the state machine does not decode");
    send(side, Datagram(bytes, bytes + len));
  }

  /// Gives a datagram that has arrived at @p side to the control plane there, which is not to see DATA, SHUTDOWN, SACK
  /// and a stray RESET.
  void receive(int side, std::span<const uint8_t> datagram) {
    const auto len = static_cast<uint32_t>(datagram.size());
    usiw_cm_packet pkt;
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    const int error = usiw_cm_decode(&pkt, datagram.data(), len);
    if (error == -EPROTONOSUPPORT && pkt.opcode == USIW_TRP_REQ)
      return send_built(side, buf, usiw_cm_build_refusal(&pkt, USIW_REJECT_VERSION, buf));
    if (error != 0) return;
    if (End* end = live_[side]) {
      act(*end, usiw_cm_receive(&end->c, &pkt, now_));
      if (live_[side] != nullptr || pkt.opcode != USIW_TRP_REQ) return;
    }
    if (pkt.opcode != USIW_TRP_REQ)
      send_built(side, buf, usiw_cm_build_stray_reset(datagram.data(), len, buf));
    else if (side == kInitiator)
      send_built(side, buf, usiw_cm_build_refusal(&pkt, USIW_REJECT_NO_LISTENER, buf));
    else
      admit(pkt);
  }

  /// Carries out the actions that a call on @p end has returned. The driver makes the other calls and passes their
  /// results here.
  void act(End& end, uint32_t actions) {
    const std::string broken = end.contract.check(end.c, actions);
    if (!broken.empty()) fail_at(end, broken);
    engine(end, actions);
    if ((actions & USIW_CM_A_TX) != 0) {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      send_built(end.side, buf, usiw_cm_build(&end.c, buf));
    }
    if ((actions & USIW_CM_A_DEAD) != 0 && live_[end.side] == &end) live_[end.side] = nullptr;
    acted(end, actions);
    if (both_established()) check_agreement(live_[kInitiator]->c, live_[kResponder]->c);
  }

  /// True if the two live ends are ESTABLISHED with each other.
  bool both_established() const {
    const End *i = live_[kInitiator], *r = live_[kResponder];
    return i != nullptr && r != nullptr && i->c.state == USIW_CM_ESTABLISHED && r->c.state == USIW_CM_ESTABLISHED &&
           i->c.local_isn == r->c.peer_isn;
  }

  /// To be called when no datagram is on the wire and no timer runs: no end may be on its way to another state.
  void check_rest() {
    for (const auto& end : ends_)
      if (end->c.state != USIW_CM_DEAD && end->c.state != USIW_CM_ESTABLISHED)
        fail_at(*end, "left in state " + std::to_string(end->c.state));
  }

  uint64_t now_;
  End* live_[2] = {nullptr, nullptr};  ///< the connection of the 4-tuple at each host
  /// To be set once an end gets a datagram or a call that no honest peer and no honest engine makes. The ends need not
  /// agree from then on.
  bool lied_ = false;

 private:
  void fail_at(const End& end, const std::string& what) {
    fail((end.side == kInitiator ? "initiator: " : "responder: ") + what);
  }

  End& add(int side, std::unique_ptr<End> end) {
    end->side = side;
    live_[side] = end.get();
    ends_.push_back(std::move(end));
    return *ends_.back();
  }

  void admit(const usiw_cm_packet& req) {
    const Parameters own = responder();
    auto fresh = make_end();
    if (const int refusal = usiw_cm_init_passive(&fresh->c, &req, own.isn, own.mtu, own.window, now_)) {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      return send_built(kResponder, buf, usiw_cm_build_refusal(&req, static_cast<uint8_t>(refusal), buf));
    }
    End& end = add(kResponder, std::move(fresh));
    end.contract.handed_up();
    act(end, 0);
    requested(end);
  }

  /// @p a, @p b: two ends that are ESTABLISHED with each other.
  void check_agreement(const usiw_cm_conn& a, const usiw_cm_conn& b) {
    if (lied_) return;
    if (a.peer_isn != b.local_isn) fail("ISNs differ");
    if (a.mtu != b.mtu) fail("MTUs differ");
    if (a.features != b.features) fail("features differ");
    if (a.ord > b.ird || b.ord > a.ird) fail("ORD of one end over the IRD of the other");
    if (a.peer_window != b.window || b.peer_window != a.window) fail("windows differ");
    if (a.peer_pd_len != b.pd_len || std::memcmp(a.peer_pd, b.pd, b.pd_len) != 0 || b.peer_pd_len != a.pd_len ||
        std::memcmp(b.peer_pd, a.pd, a.pd_len) != 0)
      fail("private data differ");
  }

  std::vector<std::unique_ptr<End>> ends_;  ///< all ends, also the dead ones: a driver may still call these
};

}  // namespace cmpair

#endif  // USIW_TESTS_SUPPORT_CM_PAIR_H
