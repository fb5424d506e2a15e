// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_calls.cc
/// One connection machine under any calls in any order at any time: what cm/usiw_cm.h promises
/// holds after each (tests/support/cm_contract.h), and it ends in bounded time.
#include <cerrno>

#include "cm/usiw_cm.h"
#include "input.h"
#include "tests/support/cm_contract.h"
#include "uapi/usiw_abi.h"

namespace {

using usiw::fuzz::Input;

constexpr uint32_t kOwnIsn = 0xfffffff0u, kPeerIsn = 0x01020304u;

class Machine {
 public:
  explicit Machine(Input& in) : in_(in) {
    const auto ird = in.get<uint16_t>(), ord = in.get<uint16_t>();
    if (in.flag()) {
      const auto len = static_cast<uint16_t>(in.get() * 3u);
      alive_ = usiw_cm_init_active(&c_, kOwnIsn, ird, ord, 9000, in.get(), kPrivate, len) == 0;
    } else {
      const usiw_cm_packet req = packet(USIW_TRP_REQ);
      alive_ = usiw_cm_init_passive(&c_, &req, kOwnIsn, 9000, in.get(), now_) == 0;
      if (alive_) contract_.handed_up();
    }
    if (alive_) check(0);
  }

  void run() {
    while (alive_ && !in_.done()) op();
    if (alive_) end();
  }

 private:
  static constexpr uint8_t kPrivate[0x10000] = {'p', 'd'};

  usiw_cm_packet packet(uint8_t opcode) {
    usiw_cm_packet p{};
    const uint8_t what = in_.get();
    p.opcode = opcode;
    p.version = USIW_WIRE_VERSION;
    if ((what & 1) != 0 && opcode == USIW_TRP_ACCEPT) p.flags = USIW_TRP_F_PENDING;
    if ((what & 1) != 0 && opcode == USIW_TRP_RESET) p.flags = USIW_TRP_F_STRAY;
    p.psn = (what & 2) != 0 ? kPeerIsn + (what >> 7) : kPeerIsn;
    p.ack_psn = opcode == USIW_TRP_REQ ? 0 : (what & 4) != 0 ? kOwnIsn + (what >> 7) : kOwnIsn;
    p.reason = (what & 8) != 0 ? in_.get() : 0;
    p.ird = p.ord = 16;
    p.mtu = 1500;
    p.window = 64;
    if ((what & 16) != 0) {
      p.ird = in_.get<uint16_t>();
      p.ord = in_.get<uint16_t>();
      p.mtu = in_.get<uint16_t>();
      p.window = in_.get<uint16_t>() | 1u;
    }
    if ((what & 32) != 0) p.features = in_.get<uint32_t>();
    if ((what & 64) != 0) {
      p.pd_len = static_cast<uint16_t>(in_.get() * 2u);
      p.pd = kPrivate;
    }
    return p;
  }

  void receive(uint8_t opcode) {
    const usiw_cm_packet p = packet(opcode);
    check(usiw_cm_receive(&c_, &p, now_));
  }

  void op() {
    const uint8_t what = in_.get();
    switch (what % 22) {
      case 0:
        if (c_.state == USIW_CM_IDLE) contract_.connected();
        check(usiw_cm_connect(&c_, now_));
        break;
      case 1: {
        int err = 1;
        const auto len = static_cast<uint16_t>(in_.get() * 3u);
        const uint32_t actions =
            usiw_cm_accept(&c_, in_.get<uint16_t>(), in_.get<uint16_t>(), kPrivate, len, now_, &err);
        FUZZ_CHECK(err == 0 || err == -EINVAL || err == -ECONNRESET, "accept's result");
        FUZZ_CHECK(err == 0 || actions == 0, "an error with actions");
        if (err == 0) contract_.accepted();
        check(actions);
        break;
      }
      case 2: check(usiw_cm_reject(&c_, kPrivate, in_.get<uint16_t>(), now_)); break;
      case 3: check(usiw_cm_disconnect(&c_, now_)); break;
      case 4: check(usiw_cm_abort(&c_, what >> 6, now_)); break;
      case 5:
      case 6: check(usiw_cm_ready(&c_, now_)); break;
      case 7: check(usiw_cm_refused(&c_, in_.get<int32_t>(), now_)); break;
      case 8: check(usiw_cm_peer_closed(&c_, now_)); break;
      case 9: check(usiw_cm_closed(&c_, now_)); break;
      case 10: check(usiw_cm_failed(&c_, in_.get<int32_t>(), now_)); break;
      case 11: receive(USIW_TRP_REQ); break;
      case 12:
      case 13: receive(USIW_TRP_ACCEPT); break;
      case 14: receive(USIW_TRP_REJECT); break;
      case 15: receive(USIW_TRP_CONFIRM); break;
      case 16: receive(USIW_TRP_RESET); break;
      case 17: receive(in_.get()); break;
      case 18: check(usiw_cm_data_seen(&c_, now_)); break;
      case 19: check(usiw_cm_icmp(&c_, USIW_CM_HEARD_NO_PORT, now_)); break;
      case 20:
        now_ += in_.get<uint16_t>() * 100u;
        timer();
        break;
      case 21:
        if (c_.deadline_us > now_) now_ = c_.deadline_us;
        timer();
        break;
    }
  }

  void timer() {
    const uint64_t due = c_.deadline_us;
    const uint32_t actions = usiw_cm_timer(&c_, now_);
    FUZZ_CHECK(due == 0 || now_ < due || c_.deadline_us == 0 || c_.deadline_us > now_, "a timer that stays due");
    FUZZ_CHECK((due != 0 && now_ >= due) || actions == 0, "actions before the time");
    check(actions);
  }

  void check(uint32_t actions) {
    const std::string broken = contract_.check(c_, actions);
    FUZZ_CHECK(broken.empty(), broken.c_str());
    FUZZ_CHECK(c_.pd_len <= USIW_MAX_PRIVATE_DATA && c_.peer_pd_len <= USIW_MAX_PRIVATE_DATA, "private data");
    FUZZ_CHECK(c_.ird <= USIW_MAX_IRD && c_.ord <= USIW_MAX_ORD && c_.mtu <= USIW_MAX_MTU, "limits");
    FUZZ_CHECK(c_.expire_us == 0 || c_.expire_us <= now_ + USIW_CM_REQ_LIMIT_US, "a state without an end");
    if ((actions & USIW_CM_A_INSTALL) != 0) FUZZ_CHECK(c_.mtu >= USIW_MIN_MTU, "installed with a tiny MTU");
  }

  /// Left alone: every state but IDLE and ESTABLISHED ends by itself, and those by an abort.
  void end() {
    const uint64_t start = now_;
    for (unsigned n = 0; c_.state != USIW_CM_DEAD; ++n) {
      FUZZ_CHECK(n < 1000 && now_ - start < 200'000'000, "never DEAD");
      if (c_.deadline_us == 0) {
        check(usiw_cm_abort(&c_, USIW_KILL_LOCAL, now_));
        continue;
      }
      if (c_.deadline_us > now_) now_ = c_.deadline_us;
      timer();
    }
  }

  Input& in_;
  uint64_t now_ = 5'000'000;
  usiw_cm_conn c_{};
  Contract contract_;
  bool alive_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Machine(in).run();
  return 0;
}
