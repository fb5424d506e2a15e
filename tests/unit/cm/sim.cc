// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "sim.h"

#include <cerrno>
#include <cstring>

#include "uapi/usiw_abi.h"

namespace cmsim {
namespace {

constexpr int kInitiator = 0, kResponder = 1;
constexpr uint64_t kLimitUs = 600'000'000;

uint8_t opcode_of(const std::vector<uint8_t>& b) { return b[8] >> 4; }
uint32_t get32(const std::vector<uint8_t>& b, size_t at) {
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

void Sim::send(int host, const Bytes& bytes) {
  const bool reset = opcode_of(bytes) == USIW_TRP_RESET && !(bytes[9] & USIW_TRP_F_STRAY);
  resets_sent_[host] += reset;
  const int copies = chance(cfg_.dup) ? 2 : 1;
  for (int i = 0; i < copies; i++) {
    if (now_ >= cut_us_ || chance(cfg_.loss)) continue;
    at(upto(cfg_.max_delay_us), [this, host, bytes, reset] {
      resets_arrived_[host] += reset;
      deliver(1 - host, bytes);
    });
  }
}

void Sim::deliver(int host, const Bytes& bytes) {
  const uint8_t opcode = opcode_of(bytes);
  if (opcode == USIW_TRP_DATA || opcode == USIW_TRP_SHUTDOWN || opcode == USIW_TRP_SACK)
    return deliver_data(host, bytes, opcode);

  usiw_cm_packet pkt;
  if (usiw_cm_decode(&pkt, bytes.data(), static_cast<uint32_t>(bytes.size())))
    return fail("a datagram of the machine does not decode");
  if (opcode == USIW_TRP_RESET && (pkt.flags & USIW_TRP_F_STRAY)) return deliver_stray(host, bytes);
  if (Object* o = live_[host]) {
    act(*o, usiw_cm_receive(&o->c, &pkt, now_));
    if (live_[host] || opcode != USIW_TRP_REQ) return;
  }
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  uint32_t len = 0;
  if (opcode == USIW_TRP_REQ && host == kResponder) return new_request(pkt);
  if (opcode == USIW_TRP_REQ)
    len = usiw_cm_build_refusal(&pkt, USIW_REJECT_NO_LISTENER, buf);
  else
    len = usiw_cm_build_stray_reset(bytes.data(), static_cast<uint32_t>(bytes.size()), buf);
  if (len) send(host, Bytes(buf, buf + len));
}

/// DATA, SHUTDOWN, SACK: the engine takes them; the kernel sees them too on most ports.
void Sim::deliver_data(int host, const Bytes& bytes, uint8_t opcode) {
  Object* o = live_[host];
  if (o && cfg_.kernel_sees_data && opcode != USIW_TRP_SACK) {
    act(*o, usiw_cm_data_seen(&o->c, now_));
    o = live_[host];
  }
  if (!o || !o->engine_knows) {
    if (o) return;
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    const uint32_t len =
        usiw_cm_build_stray_reset(bytes.data(), static_cast<uint32_t>(bytes.size()), buf);
    if (len) send(host, Bytes(buf, buf + len));
    return;
  }
  if (get32(bytes, 0) != o->c.peer_isn || get32(bytes, 4) != o->c.local_isn) return;
  if (opcode == USIW_TRP_SHUTDOWN) {
    send_data(*o, USIW_TRP_SACK);
    if (o->engine_over) return;
    o->engine_over = true;
    at(upto(20000), [this, o] { act(*o, usiw_cm_peer_closed(&o->c, now_)); });
  } else if (opcode == USIW_TRP_SACK) {
    o->shutdown_acked = true;
  }
}

void Sim::deliver_stray(int host, const Bytes& bytes) {
  Object* o = live_[host];
  if (!o || !o->engine_knows || o->engine_over) return;
  if (get32(bytes, 0) != o->c.peer_isn || get32(bytes, 4) != o->c.local_isn) return;
  o->engine_over = true;
  at(upto(20000), [this, o] { act(*o, usiw_cm_failed(&o->c, -ECONNRESET, now_)); });
}

void Sim::send_data(Object& o, uint8_t opcode) {
  Bytes b(14);
  for (int i = 0; i < 4; i++) {
    b[static_cast<size_t>(i)] = static_cast<uint8_t>(o.c.local_isn >> (24 - 8 * i));
    b[static_cast<size_t>(4 + i)] = static_cast<uint8_t>(o.c.peer_isn >> (24 - 8 * i));
  }
  b[8] = static_cast<uint8_t>(opcode << 4);
  send(o.host, b);
}

void Sim::new_request(const usiw_cm_packet& pkt) {
  auto o = std::make_unique<Object>();
  o->host = kResponder;
  const int refusal = usiw_cm_init_passive(&o->c, &pkt, static_cast<uint32_t>(rng_()),
                                           static_cast<uint16_t>(1500 + upto(1) * 7500),
                                           static_cast<uint16_t>(1 + upto(1000)), now_);
  if (refusal) {
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    const uint32_t len = usiw_cm_build_refusal(&pkt, static_cast<uint8_t>(refusal), buf);
    return send(kResponder, Bytes(buf, buf + len));
  }
  Object& object = *o;
  live_[kResponder] = o.get();
  objects_.push_back(std::move(o));
  object.contract.handed_up();
  act(object, 0);
  application(object);
}

// ---- A connection's surroundings ---------------------------------------------

void Sim::arm(Object& o) {
  const uint64_t due = o.c.deadline_us;
  if (!due || due == o.armed_us) return;
  o.armed_us = due;
  at(due > now_ ? due - now_ : 0, [this, &o, due] {
    if (o.armed_us != due) return;
    o.armed_us = 0;
    act(o, usiw_cm_timer(&o.c, now_));
  });
}

void Sim::act(Object& o, uint32_t actions) {
  const std::string broken = o.contract.check(o.c, actions);
  if (!broken.empty())
    fail(std::string(o.host == kInitiator ? "initiator: " : "responder: ") + broken);
  if (actions & USIW_CM_A_INSTALL) install(o);
  if (actions & USIW_CM_A_DRAIN) at(upto(300'000), [this, &o] { shut_down(o, 20); });
  if (actions & USIW_CM_A_ABORT) o.engine_knows = false;
  if (actions & USIW_CM_A_PROBE) send_data(o, USIW_TRP_SACK);
  if (actions & USIW_CM_A_TX) {
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    const uint32_t len = usiw_cm_build(&o.c, buf);
    send(o.host, Bytes(buf, buf + len));
  }
  if ((actions & USIW_CM_A_EV_REPLY) && o.c.status == -ECONNREFUSED) out_.rejected = true;
  if ((actions & USIW_CM_A_RELEASE) && o.c.status == -ETIMEDOUT) out_.timed_out = true;
  if (actions & USIW_CM_A_DEAD) {
    o.dead = true;
    o.engine_knows = false;
    if (live_[o.host] == &o) live_[o.host] = nullptr;
  }
  arm(o);
  check_both();
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
  if (chance(cfg_.trouble / 2)) return;  // a process that is stopped, or stuck
  const bool refuse = chance(cfg_.trouble / 2);
  at(upto(chance(cfg_.trouble) ? 12'000'000 : 50'000), [this, &o, refuse] {
    if (!o.c.installed) return;
    if (refuse) return act(o, usiw_cm_refused(&o.c, -ENOMEM, now_));
    o.engine_knows = true;
    act(o, usiw_cm_ready(&o.c, now_));
    if (chance(cfg_.trouble)) at(upto(5'000'000), [this, &o] {
      if (!o.engine_knows || o.engine_over) return;
      o.engine_over = true;
      act(o, usiw_cm_failed(&o.c, chance(0.5) ? -ETIMEDOUT : -EPROTO, now_));
    });
  });
}

/// SHUTDOWN, repeated until it is acknowledged; then, or after the last, CLOSED.
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

/// The application at one end: decides on a request, and may die at any time.
void Sim::application(Object& o) {
  if (o.host == kResponder) {
    const uint64_t think = chance(0.1) ? upto(90'000'000) : upto(chance(0.5) ? 2'000'000 : 1000);
    at(think, [this, &o] {
      if (chance(0.15)) return act(o, usiw_cm_reject(&o.c, "no", 2, now_));
      int err = 0;
      const uint32_t actions =
          usiw_cm_accept(&o.c, static_cast<uint16_t>(upto(200)), static_cast<uint16_t>(upto(200)),
                         "responder", 9, now_, &err);
      if (!err) o.contract.accepted();
      act(o, actions);
    });
  }
  if (chance(cfg_.trouble))
    at(upto(chance(0.5) ? 15'000'000 : 100'000), [this, &o] {
      const uint32_t actions = usiw_cm_abort(&o.c, USIW_ABORT_LOCAL, now_);
      if (chance(0.5)) o.engine_knows = false;  // the process is gone, not only the QP
      act(o, actions);
    });
  const int junk = static_cast<int>(cfg_.junk);
  for (int i = 0; i < junk; i++) at(upto(10'000'000), [this, &o] { junk_call(o); });
}

void Sim::junk_call(Object& o) {
  uint32_t actions = 0;
  int err = 0;
  switch (rng_() % 13) {
    case 0: actions = usiw_cm_connect(&o.c, now_); break;
    case 1:
      actions = usiw_cm_accept(&o.c, 1, 1, nullptr, 0, now_, &err);
      if (!err) o.contract.accepted();
      break;
    case 2: actions = usiw_cm_reject(&o.c, nullptr, 0, now_); break;
    case 3: actions = usiw_cm_disconnect(&o.c, now_); break;
    case 4: actions = chance(0.2) ? usiw_cm_abort(&o.c, USIW_ABORT_LOCAL, now_) : 0; break;
    case 5: actions = usiw_cm_ready(&o.c, now_); break;
    case 6: actions = usiw_cm_refused(&o.c, static_cast<int>(rng_()), now_); break;
    case 7: actions = usiw_cm_peer_closed(&o.c, now_); break;
    case 8: actions = usiw_cm_closed(&o.c, now_); break;
    case 9: actions = usiw_cm_failed(&o.c, static_cast<int>(rng_()), now_); break;
    case 10: actions = usiw_cm_data_seen(&o.c, now_); break;
    case 11: actions = usiw_cm_icmp(&o.c, USIW_CM_HEARD_NO_PORT, now_); break;
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

// ---- Rules of two ends ---------------------------------------------------------

/// While both are ESTABLISHED with each other they agree in everything.
void Sim::check_both() {
  const Object* i = live_[kInitiator];
  const Object* r = live_[kResponder];
  if (!i || !r || cfg_.junk > 0 || i->c.state != USIW_CM_ESTABLISHED ||
      r->c.state != USIW_CM_ESTABLISHED || i->c.local_isn != r->c.peer_isn)
    return;
  out_.established = true;
  const usiw_cm_conn &a = i->c, &b = r->c;
  if (a.peer_isn != b.local_isn) fail("ISNs differ");
  if (a.mtu != b.mtu) fail("MTUs differ");
  if (a.features != b.features) fail("features differ");
  if (a.ord > b.ird || b.ord > a.ird) fail("ORD of one end over the IRD of the other");
  if (a.peer_window != b.window || b.peer_window != a.window) fail("windows differ");
  if (a.peer_pd_len != b.pd_len || std::memcmp(a.peer_pd, b.pd, b.pd_len) ||
      b.peer_pd_len != a.pd_len || std::memcmp(b.peer_pd, a.pd, a.pd_len))
    fail("private data differ");
}

void Sim::check_end() {
  for (const auto& o : objects_)
    if (o->c.state != USIW_CM_DEAD && o->c.state != USIW_CM_ESTABLISHED)
      fail("left in state " + std::to_string(o->c.state));
  if (cfg_.junk > 0) return;
  const Object* i = live_[kInitiator];
  const Object* r = live_[kResponder];
  if (i && r && i->c.local_isn == r->c.peer_isn) {
    out_.both_established_at_end = true;
    return;
  }
  for (int host : {kInitiator, kResponder}) {
    if (!live_[host]) continue;
    const int other = 1 - host;
    const bool lost = resets_sent_[other] && !resets_arrived_[other];
    if (!lost && !given_up_ && cut_us_ == UINT64_MAX)
      fail(host == kInitiator ? "initiator left half-open" : "responder left half-open");
    out_.excused = true;
  }
}

Outcome Sim::run() {
  auto o = std::make_unique<Object>();
  o->host = kInitiator;
  if (usiw_cm_init_active(&o->c, static_cast<uint32_t>(rng_()), static_cast<uint16_t>(upto(200)),
                          static_cast<uint16_t>(upto(200)),
                          static_cast<uint16_t>(1000 + upto(8000)),
                          static_cast<uint16_t>(1 + upto(1000)), "initiator", 9))
    fail("init_active");
  Object& initiator = *o;
  live_[kInitiator] = o.get();
  objects_.push_back(std::move(o));
  if (chance(cfg_.cut)) cut_us_ = now_ + upto(6'000'000);
  initiator.contract.connected();
  act(initiator, usiw_cm_connect(&initiator.c, now_));
  application(initiator);

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
  if (out_.broken.empty()) check_end();
  out_.end_us = now_ - start;
  return out_;
}

}  // namespace cmsim
