// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_end.cc
/// Makes any calls on one end of a connection, in any order and at any time, while its route changes. After each call
/// the contract of the state machine, the invariants of the end and the rules of its host must hold
/// (tests/support/cm_end_host.h). The end has to be over in bounded time.
#include <cerrno>

#include "input.h"
#include "tests/support/cm_end_host.h"
#include "tests/support/cm_packet.h"

namespace {

using usiw::fuzz::Input;

constexpr uint32_t kOwnIsn = 0xfffffff0u, kPeerIsn = 0x01020304u;

class Machine {
 public:
  explicit Machine(Input& in) : in_(in) {
    const auto ird = in.get<uint16_t>(), ord = in.get<uint16_t>();
    if (in.flag()) {
      const auto len = static_cast<uint16_t>(in.get() * 3u);
      alive_ = usiw_cm_init_active(&end_.cm, kOwnIsn, ird, ord, 9000, in.get(), kPrivate, len) == 0;
    } else {
      const usiw_cm_packet req = packet(USIW_TRP_REQ);
      alive_ = usiw_cm_init_passive(&end_.cm, &req, kOwnIsn, 9000, in.get(), now_) == 0;
      end_.in_backlog = alive_;
      if (alive_) end_.contract.handed_up();
    }
  }

  void run() {
    while (alive_ && !in_.done()) {
      op();
      check();
    }
    if (alive_) finish();
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

  /// Delivers the packet as bytes, as from the wire.
  void receive(uint8_t opcode) {
    const usiw_cm_conn peer = sender_of(packet(opcode));
    uint8_t bytes[USIW_CM_MAX_DATAGRAM], answer[USIW_CM_MAX_DATAGRAM];
    usiw_cm_verdict v;
    usiw_cm_end_input(&end_, &v, bytes, usiw_cm_build(&peer, bytes), answer, now_);
  }

  void report() {
    usiw_qp_report r{};
    r.kind = in_.get() % 9;
    r.conn_id = 7;
    r.error = in_.get<int8_t>();
    r.port = in_.get() % 4;
    usiw_cm_end_report(&end_, &r, now_);
  }

  void change_route() {
    usiw_cm_route& r = end_.next_route;
    const uint8_t what = in_.get();
    r.reason = what % 4;  // the end finds out OWN and PEER by itself
    r.mac_known = what >> 2 & 1;
    r.local = what >> 3 & 1;
    r.peer_ports = what >> 4 & 3;
    end_.socket_is_open = (what & 64) == 0;
    end_.route_error = (what & 128) == 0 ? 0 : (what & 1) != 0 ? -EPERM : -ENETUNREACH;
    r.mtu = in_.get<uint16_t>();
    r.remote_mac[5] = in_.get();
    r.next_hop = in_.get() % 8;
  }

  void attach(uint8_t ports) {
    if (!end_.has_qp) end_.attach(ports);
    if (in_.get() % 4 == 0) usiw_cm_offer(&end_.cm, USIW_FEATURE_MERGED);
  }

  void accept() {
    const auto len = static_cast<uint16_t>(in_.get() * 3u);
    if (usiw_cm_end_may_accept(&end_) != 0 || end_.has_user) return;
    attach(kPorts[in_.get() % std::size(kPorts)]);
    if (len <= USIW_MAX_PRIVATE_DATA) end_.contract.accepted();
    const int error = usiw_cm_end_accept(&end_, in_.get<uint16_t>(), in_.get<uint16_t>(), kPrivate, len, now_);
    FUZZ_CHECK((error == -EINVAL) == (len > USIW_MAX_PRIVATE_DATA), "accept's result");
    if (error == 0) return;
    usiw_cm_end_leave(&end_);
    usiw_cm_end_abort(&end_, USIW_ABORT_LOCAL, now_);
  }

  void op() {
    const uint8_t what = in_.get();
    switch (what % 24) {
      case 0:
        if (end_.cm.state != USIW_CM_IDLE) break;
        end_.contract.connected();
        attach(kPorts[in_.get() % std::size(kPorts)]);
        usiw_cm_end_connect(&end_, now_);
        break;
      case 1: accept(); break;
      case 2: usiw_cm_end_reject(&end_, kPrivate, in_.get<uint16_t>(), now_); break;
      case 3: usiw_cm_end_disconnect(&end_, now_); break;
      case 4: usiw_cm_end_abort(&end_, static_cast<usiw_abort_reason>(what >> 6), now_); break;
      case 5:
        if (in_.get() % 8 == 0) usiw_cm_end_leave(&end_);
        break;
      case 6:
        if (in_.get() % 8 == 0) usiw_cm_end_flush(&end_, now_);
        break;
      case 7:
      case 8:
      case 9: report(); break;
      case 10: receive(USIW_TRP_REQ); break;
      case 11:
      case 12: receive(USIW_TRP_ACCEPT); break;
      case 13: receive(USIW_TRP_REJECT); break;
      case 14: receive(USIW_TRP_CONFIRM); break;
      case 15: receive(USIW_TRP_RESET); break;
      case 16: usiw_cm_end_data_seen(&end_, now_); break;
      case 17: usiw_cm_end_icmp(&end_, static_cast<usiw_cm_answer>(in_.get() % 9), now_); break;
      case 18: change_route(); break;
      case 19: change_route(); [[fallthrough]];
      case 20: usiw_cm_end_follow(&end_, now_); break;
      case 21:
        now_ += in_.get<uint16_t>() * 100u;
        usiw_cm_end_tick(&end_, now_);
        break;
      case 22: jump(); break;
      case 23:
        if (in_.flag()) read();
        end_.reply_fails = in_.get() % 8 == 0;
        end_.send_error = in_.get() % 8 == 0 ? -EPERM : 0;
        break;
    }
  }

  /// Moves the clock to the next deadline.
  void jump() {
    const uint64_t due = usiw_cm_end_deadline(&end_);
    if (due > now_) now_ = due;
    usiw_cm_end_tick(&end_, now_);
    FUZZ_CHECK(due == 0 || usiw_cm_end_deadline(&end_) == 0 || usiw_cm_end_deadline(&end_) > now_,
               "a time that stays due");
  }

  /// Reads the records as a process does.
  void read() {
    usiw_event e;
    while (usiw_cm_records_peek(&end_.unread, &e) != 0) {
      FUZZ_CHECK(e.type != USIW_EVENT_CONNECT || e.conn.mtu >= USIW_MIN_MTU, "installed with a tiny MTU");
      FUZZ_CHECK(!killed_, "a record after ABORT");
      FUZZ_CHECK(e.type != USIW_EVENT_PATH || (e.conn.flags & USIW_CONN_F_PACKET) == 0 ||
                     end_.path != USIW_CM_PATH_FORBIDDEN,
                 "raw packets are offered, and forbidden");
      killed_ = e.type == USIW_EVENT_ABORT;
      usiw_cm_records_pop(&end_.unread, &e);
    }
  }

  void check() {
    FUZZ_CHECK(end_.broken.empty(), end_.broken.c_str());
    if (const char* what = usiw_cm_end_check(&end_)) FUZZ_CHECK(what == nullptr, what);
    const usiw_cm_conn& c = end_.cm;
    FUZZ_CHECK(c.pd_len <= USIW_MAX_PRIVATE_DATA && c.peer_pd_len <= USIW_MAX_PRIVATE_DATA, "private data");
    FUZZ_CHECK(c.ird <= USIW_MAX_IRD && c.ord <= USIW_MAX_ORD && c.mtu <= USIW_MAX_MTU, "limits");
    FUZZ_CHECK(c.expire_us == 0 || c.expire_us <= now_ + USIW_CM_REQ_LIMIT_US, "a state without an end");
    FUZZ_CHECK(end_.move_us == 0 || end_.move_us <= now_ + USIW_MOVE_MS * 1000u, "a deadline too late");
  }

  /// Makes no more calls. Each state ends by its timer then, except IDLE and ESTABLISHED, which are aborted.
  void finish() {
    const uint64_t start = now_;
    for (unsigned n = 0; end_.cm.state != USIW_CM_DEAD; ++n) {
      FUZZ_CHECK(n < 2000 && now_ - start < 200'000'000, "never DEAD");
      if (usiw_cm_end_deadline(&end_) == 0)
        usiw_cm_end_abort(&end_, USIW_ABORT_LOCAL, now_);
      else
        jump();
      check();
    }
    FUZZ_CHECK(!end_.has_user && !end_.has_qp && !end_.in_backlog && !end_.in_table, "something is held for ever");
    read();
  }

  static constexpr uint8_t kPorts[] = {USIW_CM_PACKETS, USIW_CM_SOCKET, USIW_CM_SOCKET | USIW_CM_PACKETS,
                                       USIW_CM_SOCKET | USIW_CM_PACKETS | USIW_CM_MOVES,
                                       USIW_CM_SOCKET | USIW_CM_MOVES};
  Input& in_;
  uint64_t now_ = 5'000'000;
  TestEnd end_;
  bool alive_ = false, killed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  Machine(in).run();
  return 0;
}
