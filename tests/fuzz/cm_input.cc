// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_input.cc
/// Passes datagrams of any bytes to the port of a host, with a connection and without. Neither step of
/// cm/usiw_cm_input.h may read beyond the datagram, an answer may not be longer than the datagram, and the contract of
/// cm/usiw_cm.h must hold.
#include "cm/usiw_cm_input.h"
#include "cm/usiw_cm_notify.h"
#include "input.h"
#include "tests/support/cm_contract.h"
#include "uapi/usiw_abi.h"

namespace {

using usiw::fuzz::Exact;
using usiw::fuzz::Input;

constexpr uint32_t kOwnIsn = 0xfffffff0u, kPeerIsn = 0x01020304u;

class Host {
 public:
  explicit Host(Input& in) : in_(in) {}

  void run() {
    while (!in_.done()) {
      switch (in_.below(8)) {
        case 0:
          open();
          break;
        case 1:
          now_ += in_.get<uint16_t>() * 1000u;
          if (c_.deadline_us != 0) act(usiw_cm_timer(&c_, now_));
          break;
        case 2:
          act(usiw_cm_ready(&c_, now_));
          break;
        case 3:
          act(usiw_cm_disconnect(&c_, now_));
          break;
        default:
          datagram();
      }
    }
    if (here_) act(usiw_cm_abort(&c_, USIW_ABORT_LOCAL, now_));
  }

 private:
  void open() {
    if (here_) return;
    contract_ = {};
    ledger_ = {};
    here_ = usiw_cm_init_active(&c_, kOwnIsn, 1, 1, 1500, 64, nullptr, 0) == 0;
    contract_.connected();
    usiw_cm_ledger_connected(&ledger_);
    act(usiw_cm_connect(&c_, now_));
  }

  /// Most datagrams are well formed, so that they reach the state machine.
  void datagram() {
    uint8_t bytes[USIW_CM_MAX_DATAGRAM + 8] = {};
    const auto raw = in_.take(1 + in_.below(64));
    std::memcpy(bytes, raw.data(), raw.size());
    const uint8_t shape = in_.get();
    size_t len = raw.size();
    if ((shape & 1) != 0) set(bytes, kPeerIsn);
    if ((shape & 2) != 0) set(bytes + 4, kOwnIsn);
    if ((shape & 4) != 0) len = std::max<size_t>(len, sizeof(usiw_trp_hdr));
    if ((shape & 8) != 0) len = 30, bytes[14] = USIW_WIRE_VERSION, bytes[16] = bytes[17] = 0;
    if ((shape & 16) != 0) len = std::min<size_t>(sizeof bytes, in_.get<uint16_t>());
    Exact d({bytes, len});

    usiw_cm_look(d.data(), static_cast<uint32_t>(len));
    usiw_cm_conn* c = here_ ? &c_ : nullptr;
    usiw_cm_verdict v;
    Exact buf(std::span<const uint8_t>(answer_, USIW_CM_MAX_DATAGRAM));
    usiw_cm_input(&v, c, d.data(), static_cast<uint32_t>(len), now_, buf.data());
    FUZZ_CHECK(v.kind <= USIW_CM_V_ANSWER, "a verdict of no kind");
    FUZZ_CHECK(c != nullptr || v.actions == 0, "actions without a connection");
    FUZZ_CHECK(v.kind != USIW_CM_V_ANSWER || (v.len != 0 && v.len <= std::max<size_t>(len, 18)), "amplification");
    FUZZ_CHECK(v.kind != USIW_CM_V_ADMIT || v.pkt.opcode == USIW_TRP_REQ, "admitted what is no REQ");
    FUZZ_CHECK(v.kind != USIW_CM_V_ADMIT || c == nullptr || c->state == USIW_CM_DEAD, "admitted beside a live one");
    if (c != nullptr) {
      FUZZ_CHECK(!usiw_cm_quotes(c, d.data(), static_cast<uint32_t>(len)) || len >= 4, "ICMP without an ISN");
      act(v.actions);
    }
    if (v.kind == USIW_CM_V_ADMIT && !here_) accept(v.pkt);
  }

  void accept(const usiw_cm_packet& req) {
    contract_ = {};
    ledger_ = {};
    if (usiw_cm_init_passive(&c_, &req, kOwnIsn, 1500, 64, now_) != 0) return;
    here_ = true;
    contract_.handed_up();
    act(0);
    int err = 0;
    const uint32_t actions = usiw_cm_accept(&c_, 1, 1, nullptr, 0, now_, &err);
    contract_.accepted();
    usiw_cm_ledger_accepted(&ledger_);
    act(actions);
  }

  void act(uint32_t actions) {
    if (!here_) return;
    const std::string broken = contract_.check(c_, actions);
    FUZZ_CHECK(broken.empty(), broken.c_str());
    // The ledger must allow each notice that the state machine asks for, and each only once.
    for (const uint32_t event :
         {USIW_CM_A_EV_REPLY, USIW_CM_A_EV_ESTABLISHED, USIW_CM_A_EV_DISCONNECT, USIW_CM_A_EV_CLOSE}) {
      if ((actions & event) != 0) FUZZ_CHECK(usiw_cm_notify(&ledger_, event, c_.status), "a notice that is not due");
    }
    if ((actions & USIW_CM_A_RELEASE) != 0) {
      FUZZ_CHECK(!usiw_cm_awaited(&ledger_), "released and still awaited");
      const uint32_t owed = usiw_cm_owed(&ledger_);
      for (uint32_t event = 1; event != 0; event <<= 1)
        if ((owed & event) != 0) FUZZ_CHECK(!usiw_cm_notify(&ledger_, event, -ECONNABORTED), "owed although paid");
    }
    if (c_.state == USIW_CM_DEAD) here_ = false;
  }

  static void set(uint8_t* p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = static_cast<uint8_t>(v >> (24 - 8 * i));
  }

  Input& in_;
  uint64_t now_ = 5'000'000;
  usiw_cm_conn c_{};
  usiw_cm_ledger ledger_{};
  Contract contract_;
  uint8_t answer_[USIW_CM_MAX_DATAGRAM] = {};
  bool here_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Host(in).run();
  return 0;
}
