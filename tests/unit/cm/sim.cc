// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "sim.h"

#include <cerrno>
#include <span>
#include <string_view>

#include "uapi/usiw_abi.h"

namespace cmsim {
namespace {

using cmpair::kInitiator;
using cmpair::kResponder;

constexpr uint64_t kLimitUs = 600'000'000;

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
uint8_t opcode_of(const Datagram& b) { return b[8] >> 4; }
uint32_t get32(const Datagram& b, size_t at) {
  return uint32_t{b[at]} << 24 | uint32_t{b[at + 1]} << 16 | uint32_t{b[at + 2]} << 8 | b[at + 3];
}

}  // namespace

void Sim::at(uint64_t delay_us, std::function<void()> what) {
  events_.push({now_ + delay_us, order_++, std::move(what)});
}

void Sim::fail(const std::string& what) {
  if (out_.broken.empty())
    out_.broken = "seed " + std::to_string(cfg_.seed) + ", " + std::to_string(now_) + " us: " +
                  what;
}

// ---- The wire ----------------------------------------------------------------

void Sim::send(int side, const Datagram& bytes) {
  const bool reset = opcode_of(bytes) == USIW_TRP_RESET && !(bytes[9] & USIW_TRP_F_STRAY);
  resets_sent_[side] += reset;
  const int copies = chance(cfg_.dup) ? 2 : 1;
  for (int i = 0; i < copies; i++) {
    if (now_ >= cut_us_ || chance(cfg_.loss)) continue;
    at(upto(cfg_.max_delay_us), [this, side, bytes, reset] {
      resets_arrived_[side] += reset;
      deliver(1 - side, bytes);
    });
  }
}

void Sim::deliver(int side, const Datagram& bytes) {
  const uint8_t opcode = opcode_of(bytes);
  if (opcode == USIW_TRP_DATA || opcode == USIW_TRP_SHUTDOWN || opcode == USIW_TRP_SACK)
    return deliver_data(side, bytes, opcode);
  if (opcode == USIW_TRP_RESET && (bytes[9] & USIW_TRP_F_STRAY)) return deliver_stray(side, bytes);
  receive(side, bytes);
}

/// The engine takes DATA, SHUTDOWN and SACK. The kernel sees them as well unless Config::kernel_sees_data is false.
void Sim::deliver_data(int side, const Datagram& bytes, uint8_t opcode) {
  Object* o = live(side);
  if (o && cfg_.kernel_sees_data && opcode != USIW_TRP_SACK) {
    act(*o, usiw_cm_data_seen(&o->c));
    o = live(side);
  }
  if (!o || !o->engine_knows) {
    if (o) return;
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    return send_built(side, buf, usiw_cm_build_stray_reset(bytes.data(), static_cast<uint32_t>(bytes.size()), buf));
  }
  if (get32(bytes, 0) != o->c.peer_isn || get32(bytes, 4) != o->c.local_isn) return;
  if (opcode == USIW_TRP_SHUTDOWN) {
    send_data(*o, USIW_TRP_SACK);
    if (o->engine_over) return;
    o->engine_over = true;
    at(upto(20000), [this, o] { act(*o, usiw_cm_closed(&o->c, now_)); });
  } else if (opcode == USIW_TRP_SACK) {
    o->shutdown_acked = true;
  }
}

void Sim::deliver_stray(int side, const Datagram& bytes) {
  Object* o = live(side);
  if (!o || !o->engine_knows || o->engine_over) return;
  if (get32(bytes, 0) != o->c.peer_isn || get32(bytes, 4) != o->c.local_isn) return;
  o->engine_over = true;
  at(upto(20000), [this, o] { act(*o, usiw_cm_failed(&o->c, -ECONNRESET, now_)); });
}

void Sim::send_data(Object& o, uint8_t opcode) {
  Datagram b(14);
  for (int i = 0; i < 4; i++) {
    b[static_cast<size_t>(i)] = static_cast<uint8_t>(o.c.local_isn >> (24 - 8 * i));
    b[static_cast<size_t>(4 + i)] = static_cast<uint8_t>(o.c.peer_isn >> (24 - 8 * i));
  }
  b[8] = static_cast<uint8_t>(opcode << 4);
  send(o.side, b);
}

cmpair::Parameters Sim::responder() {
  cmpair::Parameters own;
  own.window = static_cast<uint16_t>(1 + upto(1000));
  own.mtu = static_cast<uint16_t>(1500 + upto(1) * 7500);
  own.isn = static_cast<uint32_t>(rng_());
  return own;
}

// ---- Engine and application of an end ------------------------------------------

void Sim::arm(Object& o) {
  const uint64_t due = o.c.deadline_us;
  if (!due || due == o.armed_us) return;
  o.armed_us = due;
  at(due > now_ ? due - now_ : 0, [this, &o, due] {
    if (o.armed_us != due) return;
    o.armed_us = 0;
    timer(o);
  });
}

void Sim::engine(End& end, uint32_t actions) {
  Object& o = object(end);
  if (actions & USIW_CM_A_INSTALL) install(o);
  if (actions & USIW_CM_A_DRAIN) at(upto(300'000), [this, &o] { shut_down(o, 20); });
  if (actions & USIW_CM_A_ABORT) o.engine_knows = false;
  if (actions & USIW_CM_A_PROBE) send_data(o, USIW_TRP_SACK);
}

void Sim::acted(End& end, uint32_t actions) {
  Object& o = object(end);
  if ((actions & USIW_CM_A_EV_REPLY) && o.c.status == -ECONNREFUSED) out_.rejected = true;
  if ((actions & USIW_CM_A_RELEASE) && o.c.status == -ETIMEDOUT) out_.timed_out = true;
  if (actions & USIW_CM_A_DEAD) o.engine_knows = false;
  arm(o);
  if (!lied_ && both_established()) out_.established = true;
  const bool opened = (actions & (USIW_CM_A_EV_REPLY | USIW_CM_A_EV_ESTABLISHED)) &&
                      o.c.state == USIW_CM_ESTABLISHED;
  if (opened) {
    if (chance(0.5)) at(upto(1000), [this, &o] {
      if (o.engine_knows) send_data(o, USIW_TRP_DATA);
    });
    if (chance(0.7)) at(upto(chance(0.3) ? 0 : 3'000'000), [this, &o] {
      act(o, usiw_cm_disconnect(&o.c, now_));
    });
  }
}

void Sim::install(Object& o) {
  if (chance(cfg_.trouble / 2)) return;  // the process is stopped, or does not read its events
  const bool refuse = chance(cfg_.trouble / 2);
  at(upto(chance(cfg_.trouble) ? 12'000'000 : 50'000), [this, &o, refuse] {
    if (!usiw_cm_is_installed(&o.c)) return;
    if (refuse) return act(o, usiw_cm_refused(&o.c, -ENOMEM, now_));
    o.engine_knows = true;
    act(o, usiw_cm_ready(&o.c, now_));
    if (chance(cfg_.trouble))
      at(upto(5'000'000), [this, &o] {
        if (!o.engine_knows || o.engine_over) return;
        o.engine_over = true;
        act(o, usiw_cm_failed(&o.c, chance(0.5) ? -ETIMEDOUT : -EPROTO, now_));
      });
  });
}

/// Sends SHUTDOWN, at most @p tries times until it is acknowledged, then reports CLOSED.
void Sim::shut_down(Object& o, int tries) {
  if (!o.engine_knows || o.engine_over) return;
  if (o.shutdown_acked || tries == 0) {
    given_up_ |= !o.shutdown_acked;
    o.engine_over = true;
    return act(o, usiw_cm_closed(&o.c, now_));
  }
  send_data(o, USIW_TRP_SHUTDOWN);
  at(50'000, [this, &o, tries] { shut_down(o, tries - 1); });
}

/// The application at one end accepts or rejects a request, and may die at any time.
void Sim::application(Object& o) {
  if (o.side == kResponder) {
    const uint64_t think = chance(0.1) ? upto(90'000'000) : upto(chance(0.5) ? 2'000'000 : 1000);
    at(think, [this, &o] {
      if (chance(0.15)) return act(o, usiw_cm_reject(&o.c, "no", 2, now_));
      const auto ord = static_cast<uint16_t>(upto(200));
      const auto ird = static_cast<uint16_t>(upto(200));
      accept(o, ird, ord, bytes_of("responder"));
    });
  }
  if (chance(cfg_.trouble))
    at(upto(chance(0.5) ? 15'000'000 : 100'000), [this, &o] {
      const uint32_t actions = usiw_cm_abort(&o.c, USIW_ABORT_LOCAL, now_);
      if (chance(0.5)) o.engine_knows = false;  // the process has died; otherwise only the QP was destroyed
      act(o, actions);
    });
  const int junk = static_cast<int>(cfg_.junk);
  for (int i = 0; i < junk; i++) at(upto(10'000'000), [this, &o] { junk_call(o); });
}

void Sim::junk_call(Object& o) {
  uint32_t actions = 0;
  switch (rng_() % 13) {
    case 0: actions = usiw_cm_connect(&o.c, now_); break;
    case 1: return accept(o, 1, 1, {});
    case 2: actions = usiw_cm_reject(&o.c, nullptr, 0, now_); break;
    case 3: actions = usiw_cm_disconnect(&o.c, now_); break;
    case 4: actions = chance(0.2) ? usiw_cm_abort(&o.c, USIW_ABORT_LOCAL, now_) : 0; break;
    case 5: actions = usiw_cm_ready(&o.c, now_); break;
    case 6: actions = usiw_cm_refused(&o.c, static_cast<int>(rng_()), now_); break;
    case 7: actions = usiw_cm_report(&o.c, USIW_REPORT_PEER_CLOSED, 0, now_); break;
    case 8: actions = usiw_cm_closed(&o.c, now_); break;
    case 9: actions = usiw_cm_failed(&o.c, static_cast<int>(rng_()), now_); break;
    case 10: actions = usiw_cm_data_seen(&o.c); break;
    case 11: actions = usiw_cm_icmp(&o.c, USIW_CM_ANSWER_NO_PORT, now_); break;
    default: {
      usiw_cm_packet pkt{};
      pkt.opcode = static_cast<uint8_t>(rng_() % 8);
      pkt.version = USIW_WIRE_VERSION;
      pkt.flags = chance(0.5) ? 0 : static_cast<uint16_t>(rng_() & 0xfff);
      pkt.psn = chance(0.5) ? o.c.peer_isn : static_cast<uint32_t>(rng_());
      pkt.ack_psn = chance(0.5) ? o.c.local_isn : static_cast<uint32_t>(rng_());
      pkt.ird = static_cast<uint16_t>(rng_());
      pkt.ord = static_cast<uint16_t>(rng_() % 64);
      pkt.mtu = static_cast<uint16_t>(rng_());
      pkt.window = 1;
      actions = usiw_cm_receive(&o.c, &pkt, now_);
    }
  }
  act(o, actions);
}

// ---- The end of a run ---------------------------------------------------------

/// A connection must not be left at one end alone, unless no RESET and no SHUTDOWN of the other end has arrived.
void Sim::check_half_open() {
  if (lied_) return;
  const Object *i = live(kInitiator), *r = live(kResponder);
  if (i && r && i->c.local_isn == r->c.peer_isn) {
    out_.both_established_at_end = true;
    return;
  }
  for (int side : {kInitiator, kResponder}) {
    if (!live(side)) continue;
    const int other = 1 - side;
    const bool lost = resets_sent_[other] && !resets_arrived_[other];
    if (!lost && !given_up_ && cut_us_ == UINT64_MAX)
      fail(side == kInitiator ? "initiator left half-open" : "responder left half-open");
    out_.excused = true;
  }
}

Outcome Sim::run() {
  cmpair::Parameters own;
  own.window = static_cast<uint16_t>(1 + upto(1000));
  own.mtu = static_cast<uint16_t>(1000 + upto(8000));
  own.ord = static_cast<uint16_t>(upto(200));
  own.ird = static_cast<uint16_t>(upto(200));
  own.isn = static_cast<uint32_t>(rng_());
  if (chance(cfg_.cut)) cut_us_ = now_ + upto(6'000'000);
  application(object(connect(own, bytes_of("initiator"))));

  const uint64_t start = now_;
  while (!events_.empty() && out_.broken.empty()) {
    Event event = events_.top();
    events_.pop();
    now_ = event.at_us;
    if (now_ - start > kLimitUs) {
      fail("never comes to rest");
      break;
    }
    event.what();
  }
  if (out_.broken.empty()) {
    check_rest();
    check_half_open();
  }
  out_.end_us = now_ - start;
  return out_;
}

}  // namespace cmsim
