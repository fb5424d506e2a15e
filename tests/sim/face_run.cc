// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "face_run.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cm/usiw_cm.h"

namespace usiw::sim {
namespace {

constexpr uint64_t kTick = 1'000, kLimit = 1'500 * kSec, kMaxSteps = 20'000'000;

// The memory of a QP: who it is and the word of atomics, WRITE cells, then buffers of SENDs, receives and READs, one
// for each work request.
constexpr uint32_t kCell = 64, kMost = 32, kMessage = 4096;
constexpr uint32_t kCells = kCell, kSends = kCells + kMost * kCell, kReceives = kSends + kMost * kMessage,
                   kSinks = kReceives + kMost * kMessage, kBytes = kSinks + kMost * kCell;
constexpr uint32_t kHeader = 16;
/// A word in the first cell, to which the peer adds 1 by each atomic. Its upper half is the life of the QP.
constexpr uint32_t kAddWord = 32;
constexpr uint32_t kRights = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
constexpr uint64_t kRecvBit = uint64_t{1} << 31;

uint64_t wr_id(uint32_t life, size_t n) { return uint64_t{life} << 32 | n; }
uint64_t iova(uint32_t stag) { return uint64_t{stag} << 24; }

uint64_t word_at(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

FaceRun::FaceRun(const FacePlan& plan, Mutation mutation, size_t trace_lines)
    : w(plan.base, mutation, trace_lines), plan_(plan), strangers_(plan.base.seed ^ 0x57a2) {
  w.wire.faults = plan.base.wire;
  for (size_t i = 0; i < plan.base.hosts.size(); ++i) machines_.push_back({static_cast<int>(i), 0, nullptr, nullptr});
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    Slot s{};
    s.number = static_cast<uint32_t>(i);
    s.qpn = usiw_face_qpn(static_cast<uint16_t>(2000 + 7 * i), static_cast<uint32_t>(w.rng()));
    s.side = plan.slots[i];
    for (size_t n = plan.sessions.size(); n-- > 0;) {
      const FaceSession& session = plan.sessions[n];
      if (session.slot[0] == static_cast<int>(i) || (session.slot[1] == static_cast<int>(i) && !session.claim))
        s.todo.push_back(n);
    }
    slots_.push_back(std::move(s));
  }
}

void FaceRun::later(Slot& s, uint64_t ns, void (FaceRun::*what)(Slot&)) {
  w.after(ns, alive_, [this, n = s.number, step = s.step, what] {
    Slot& slot = slots_[n];
    if (slot.step != step) return;
    const FaceProcess* p = process(slot);
    if (p != nullptr && p->frozen) return later(slot, 1 * kMs, what);
    (this->*what)(slot);
  });
}

// ---- Programs ----

void FaceRun::next_session(Slot& s) {
  s.session = nullptr;
  if (s.todo.empty()) {
    ++over_;
    return;
  }
  s.waits_since = w.clock.now;
  begin(s);
}

/// Waits for the process, and for the other end if the two programs begin together.
void FaceRun::begin(Slot& s) {
  if (process(s) == nullptr) return later(s, 10 * kMs, &FaceRun::begin);
  const FaceSession& session = plan_.sessions[s.todo.back()];
  s.session = &session;
  s.end = session.slot[0] == static_cast<int>(s.number) ? 0 : 1;
  const FaceEndPlan& plan = session.end[s.end];
  const Slot& other = slots_[static_cast<size_t>(session.slot[1 - s.end])];
  const bool waits = plan.together && !session.claim && other.number != s.number &&
                     w.clock.now - s.waits_since < 60 * kSec && !other.todo.empty() && other.session != &session;
  const bool passed = std::find(other.todo.begin(), other.todo.end(), s.todo.back()) == other.todo.end();
  if (waits && !passed) return later(s, 1 * kMs, &FaceRun::begin);
  later(s, plan.init, &FaceRun::to_init);
}

void FaceRun::to_init(Slot& s) {
  FaceProcess* p = process(s);
  if (!s.exists) {
    p->create(s.qpn, machines_[static_cast<size_t>(s.side)].cq, kRights);
    s.exists = true;
  }
  p->init(s.qpn);
  const FaceEndPlan& plan = s.session->end[s.end];
  later(s, plan.rtr, &FaceRun::to_rtr);
}

void FaceRun::to_rtr(Slot& s) {
  const FaceSession& session = *s.session;
  const Slot& other = slots_[static_cast<size_t>(session.slot[1 - s.end])];
  FaceLife l{};
  l.id = static_cast<uint32_t>(lives_.size());
  l.slot = s.number;
  l.names = other.number;
  l.plan = &session.end[s.end];
  l.psn_fits = session.wrong_psn == 0;
  l.rtr_at = l.last_progress = w.clock.now;
  l.partner = kNoLife;
  lives_.push_back(l);
  s.life = l.id;
  w.trace("-- life %u: QP %u (%06x, host %c) is in RTR, names %06x", l.id, s.number, s.qpn, 'A' + s.side, other.qpn);
  store_be32(s.memory.data(), s.number);
  store_be32(s.memory.data() + 4, l.id);
  const uint64_t word = uint64_t{l.id} << 32;
  std::memcpy(s.memory.data() + kAddWord, &word, sizeof word);
  std::copy_n(s.memory.begin(), kCell, s.shadow.begin());
  if (l.plan->receives == 0)
    post_receives(s);
  else
    later(s, l.plan->receives, &FaceRun::post_receives);
  const uint32_t rq_psn = session.psn[1 - s.end] + (s.end == 1 ? session.wrong_psn : 0);
  process(s)->rtr(s.qpn, {SimWire::address(s.side, plan_.ipv6), SimWire::address(other.side, plan_.ipv6), other.qpn,
                          rq_psn & USIW_FACE_PSN_MASK});
  later(s, l.plan->rts, &FaceRun::to_rts);
}

void FaceRun::post_receives(Slot& s) {
  FaceLife* l = life_of(s);
  FaceProcess* p = process(s);
  if (l->receives_posted || l->by_program) return;
  l->receives_posted = true;
  for (uint32_t n = 0; n < kMost; ++n) {
    const Sge sge{iova(s.stag) + kReceives + n * kMessage, kMessage, s.stag};
    if (p->qp(s.qpn)->post_recv(wr_id(l->id, kRecvBit | n), {&sge, 1}) != 0) return w.fail("post", "post_recv");
    ++l->receives;
  }
  p->qp(s.qpn)->ring_recv();
}

void FaceRun::to_rts(Slot& s) {
  FaceLife& l = *life_of(s);
  l.rts_at = l.last_progress = w.clock.now;
  process(s)->rts(s.qpn, s.session->psn[s.end], l.plan->limits);
  later(s, l.plan->first_send, &FaceRun::post);
  if (l.plan->sqd != 0) later(s, l.plan->sqd_at, &FaceRun::to_sqd);
  watch_stay(s);
}

void FaceRun::to_sqd(Slot& s) {
  FaceProcess* p = process(s);
  FaceLife& l = *life_of(s);
  if (p->state(s.qpn) != USIW_QPS_RTS || l.by_program) return;
  w.trace("-- life %u: to SQD", l.id);
  l.in_sqd = true;
  l.before_sqd = l.posted.size();
  p->sqd(s.qpn);
  if (w.mutation == Mutation::kGoOnEarly) ++w.mutated, p->engine->qp_resume(p->qp(s.qpn));
  later(s, l.plan->sqd, &FaceRun::leave_sqd);
}

void FaceRun::leave_sqd(Slot& s) {
  FaceProcess* p = process(s);
  FaceLife& l = *life_of(s);
  poll(machines_[static_cast<size_t>(s.side)]);
  if (p->state(s.qpn) != USIW_QPS_SQD || l.failed || p->qp(s.qpn)->state() == QpState::kError) return;
  if (l.completed >= l.before_sqd && !l.drained) w.fail("sqd", "life %u is not told that SQD has drained", l.id);
  w.trace("-- life %u: from SQD to RTS", l.id);
  l.in_sqd = false;
  l.last_progress = w.clock.now;
  p->leave_sqd(s.qpn);
}

/// The event may come before its completions are polled.
void FaceRun::on_drained(uint32_t qpn) {
  if (w.mutation == Mutation::kSwallowDrained) return void(++w.mutated);
  for (Slot& s : slots_) {
    if (s.qpn != qpn) continue;
    FaceLife* l = life_of(s);
    if (l == nullptr || !l->in_sqd) return w.fail("sqd", "QP %u has drained, and is not in SQD", s.number);
    l->drained = true;
    w.after(0, alive_, [this, &s, id = l->id] {
      if (s.life != id) return;
      poll(machines_[static_cast<size_t>(s.side)]);
      const FaceLife& now = lives_[id];
      if (now.completed < now.before_sqd)
        w.fail("sqd", "life %u has drained, and %zu of %zu work requests have completed", id, now.completed,
               now.before_sqd);
    });
  }
}

void FaceRun::post(Slot& s) {
  FaceLife& l = *life_of(s);
  if (l.by_program || l.failed || l.posted.size() == l.plan->ops.size()) return;
  FaceProcess* p = process(s);
  const auto n = static_cast<uint32_t>(l.posted.size());
  const WrOpcode op = l.plan->ops[n];
  Slot& peer = slots_[l.names];
  const bool add = op == WrOpcode::kFetchAdd, read = op == WrOpcode::kRdmaRead;
  const uint32_t size = op == WrOpcode::kSend ? l.plan->sizes[n] : add ? kAtomicBytes : read ? kHeader : kCell;
  const uint32_t at = read || add ? kSinks + n * kCell : kSends + n * kMessage;
  if (!read && !add) fill(s.memory.data() + at, l, op == WrOpcode::kSend ? static_cast<uint32_t>(l.sends) : n, size);
  const Sge sge{iova(s.stag) + at, size, s.stag};
  const uint64_t remote = iova(peer.stag) + (add ? kAddWord : read ? 0 : kCells + n * kCell);
  // The memory of a process that has died: the access may be refused, and this ends the connection at both ends.
  const bool foreign = op != WrOpcode::kSend && (l.partner == kNoLife || lives_[l.partner].over);
  const Qp::SendWr wr{wr_id(l.id, n), op, kWrSignaled, remote, peer.stag, 0, {1, 0}};
  const int rc = p->qp(s.qpn)->post_send(wr, {&sge, 1});
  if (rc != 0) return w.fail("post", "post_send: %d", rc);
  p->qp(s.qpn)->ring_send();
  if (l.posted.size() == l.completed) l.last_progress = w.clock.now;
  l.posted.push_back({op, size, w.clock.now, foreign});
  l.bad |= foreign;
  l.sends += op == WrOpcode::kSend;
  l.adds += add;
  later(s, l.plan->pause == 0 ? 0 : w.rng.below(l.plan->pause), &FaceRun::post);
}

bool FaceRun::done(const FaceLife& l) {
  if (l.partner == kNoLife) return false;
  const FaceLife& p = lives_[l.partner];
  const auto sends = static_cast<size_t>(std::count(p.plan->ops.begin(), p.plan->ops.end(), WrOpcode::kSend));
  return l.completed == l.plan->ops.size() && l.received == sends;
}

void FaceRun::watch_stay(Slot& s) {
  const FaceLife& l = *life_of(s);
  if (w.clock.now - l.rts_at >= l.plan->stay || (l.plan->until_done && done(l))) return end_session(s);
  const uint64_t left = l.plan->stay - (w.clock.now - l.rts_at);
  later(s, l.plan->until_done ? std::min<uint64_t>(left, 5 * kMs) : left, &FaceRun::watch_stay);
}

/// Ends the session of this end, and with it the life, in the planned way.
void FaceRun::end_session(Slot& s) {
  ++s.step;
  FaceLife& l = *life_of(s);
  const FaceEndPlan& plan = *l.plan;
  Machine& m = machines_[static_cast<size_t>(s.side)];
  if (plan.ending == FaceEnding::kKill) {
    w.trace("-- the process of host %c dies at the end of life %u", 'A' + m.side, l.id);
    kill(m);
    return w.after(plan.gap, alive_, [this, &m] { start(m); });
  }
  if (plan.ending == FaceEnding::kError) {
    l.by_program = true;
    w.trace("-- life %u: to ERR", l.id);
    process(s)->error(s.qpn);
    return later(s, plan.gap, &FaceRun::after_error);
  }
  poll(m);
  w.trace("-- life %u: %s", l.id, plan.ending == FaceEnding::kReset ? "reset" : "destroyed");
  if (plan.ending == FaceEnding::kReset) {
    process(s)->reset(s.qpn);
  } else {
    process(s)->destroy(s.qpn);
    s.exists = false;
  }
  end_life(s, false);
  s.todo.pop_back();
  later(s, plan.ending == FaceEnding::kDestroy ? plan.gap : 0, &FaceRun::next_session);
}

/// The QP is in ERR: each work request has completed. The QP is reset.
void FaceRun::after_error(Slot& s) {
  Machine& m = machines_[static_cast<size_t>(s.side)];
  poll(m);
  const FaceLife& l = *life_of(s);
  if (l.completed != l.posted.size() || l.received + l.flushed != l.receives)
    w.fail("flush", "life %u is in ERR: %zu of %zu work requests have completed, and %zu of %zu receives", l.id,
           l.completed, l.posted.size(), l.received + l.flushed, l.receives);
  process(s)->reset(s.qpn);
  end_life(s, false);
  s.todo.pop_back();
  next_session(s);
}

void FaceRun::end_life(Slot& s, bool killed) {
  FaceLife& l = *life_of(s);
  if (!killed) check_written(s);
  if (!killed && l.partner != kNoLife &&
      static_cast<uint32_t>(word_at(s.memory.data() + kAddWord)) < lives_[l.partner].added)
    w.fail("agree", "life %u has added more often than memory of life %u has it", l.partner, l.id);
  l.over = true;
  l.killed = killed;
  s.life = kNoLife;
  if (w.mutation != Mutation::kResetEnds || killed || l.partner == kNoLife) return;
  const Slot& peer = slots_[lives_[l.partner].slot];
  if (peer.life == l.partner && process(peer) != nullptr) process(peer)->obey_reset(peer.qpn);
}

// ---- Completions ----

void FaceRun::poll(Machine& m) {
  std::array<Cqe, 16> out;
  while (const size_t n = m.cq->poll(out))
    for (size_t i = 0; i < n; ++i) {
      if (w.mutation == Mutation::kSwallowCompletion && w.mutated == 0 && w.rng.chance(5)) {
        ++w.mutated;
        continue;
      }
      on_cqe(out[i]);
    }
}

void FaceRun::on_cqe(const Cqe& c) {
  const auto id = static_cast<uint32_t>(c.wr_id >> 32);
  if (id >= lives_.size()) return w.fail("completion", "of nobody's work request");
  FaceLife& l = lives_[id];
  Slot& s = slots_[l.slot];
  const auto n = static_cast<uint32_t>(c.wr_id & (kRecvBit - 1));
  if (l.over || s.life != id) return w.fail("completion", "of life %u, which is over", id);
  if (c.qpn != s.qpn) return w.fail("completion", "on QP %06x, which did not post it", c.qpn);
  if ((c.wr_id & kRecvBit) != 0) {
    if (n != l.received + l.flushed) return w.fail("completion", "life %u: receive %u out of turn", id, n);
    if (c.status == WcStatus::kSuccess) return on_received(s, l, c);
    ++l.flushed;
    if (c.status != WcStatus::kWrFlushErr)
      w.fail("status", "life %u: receive %u: %d", id, n, static_cast<int>(c.status));
    if (!l.by_program && !l.failed && !l.bad && !l.partner_bad && process(s)->qp(s.qpn)->state() != QpState::kError)
      w.fail("status", "life %u: receive %u is flushed, and nothing has failed", id, n);
    return;
  }
  if (n != l.completed || n >= l.posted.size()) return w.fail("completion", "life %u: request %u out of turn", id, n);
  ++l.completed;
  l.last_progress = w.clock.now;
  const FaceLife::Posted& p = l.posted[n];
  w.trace("%c program: life %u, request %u: status %d", 'A' + s.side, id, n, static_cast<int>(c.status));
  check_status(s, l, p, c.status);
  if (c.status != WcStatus::kSuccess) {
    l.failed = true;
    return;
  }
  ++l.succeeded;
  if (l.in_sqd && n >= l.before_sqd) w.fail("sqd", "life %u: request %u was posted in SQD, and completes", id, n);
  const std::byte* sink = s.memory.data() + kSinks + n * kCell;
  if (p.op == WrOpcode::kFetchAdd) return on_added(l, word_at(sink));
  if (p.op != WrOpcode::kRdmaRead) return;
  if (load_be32(sink) != l.names) return w.fail("bytes", "life %u has read memory of QP %u", id, load_be32(sink));
  link(l, load_be32(sink + 4), "has read from");
}

void FaceRun::check_status(Slot& s, FaceLife& l, const FaceLife::Posted& p, WcStatus status) {
  const QpLimits& limits = l.plan->limits;
  const auto wrong = [&](const char* why) {
    w.fail("status", "life %u: request %zu: status %d, %s", l.id, l.completed - 1, static_cast<int>(status), why);
  };
  switch (status) {
    case WcStatus::kSuccess:
      if (l.failed) wrong("after an error");
      return;
    case WcStatus::kWrFlushErr:
      if (!l.failed && !l.by_program && !l.partner_bad && !l.bad) wrong("and nothing has failed");
      return;
    case WcStatus::kRetryExcErr: {
      if (l.failed) return wrong("after an error");
      if (limits.retry_ns == kForEver) return wrong("without a limit");
      // A response to a READ that was outstanding before counts from up to 0.5 s before this request.
      if (w.clock.now - p.at + 600 * kMs < std::min(limits.retry_ns, limits.first_ns)) return wrong("before its time");
      const uint64_t since = w.clock.now - limits.retry_ns - 1 * kSec;
      const FaceLife* partner = l.partner == kNoLife ? nullptr : &lives_[l.partner];
      const bool sound = plan_.base.wire.loss < 0.021 && quiet(since) && partner != nullptr && !partner->over &&
                         !partner->failed && !partner->by_program && l.connected_at != 0 && l.connected_at < since;
      if (sound && slots_[l.names].life == l.partner) wrong("and the peer was there");
      return;
    }
    case WcStatus::kRnrRetryExcErr:
      if (l.failed || limits.rnr_ns == kForEver) return wrong("without a limit");
      if (l.partner != kNoLife && lives_[l.partner].plan->receives == 0) wrong("and receives were posted");
      return;
    case WcStatus::kRemAccessErr:
      if (l.failed || !p.foreign) return wrong("and the memory exists");
      for (const FaceLife& o : lives_)
        if (o.slot == l.names && !o.over) lives_[o.id].partner_bad = true;
      return;
    default: return wrong("which nothing explains");
  }
  (void)s;
}

/// Only the partner adds, so it finds the number of its atomics before this one.
void FaceRun::on_added(FaceLife& l, uint64_t found) {
  link(l, static_cast<uint32_t>(found >> 32), "has added to the word of");
  if (static_cast<uint32_t>(found) != l.added)
    w.fail("bytes", "life %u has added %u times, and finds %u", l.id, l.added, static_cast<uint32_t>(found));
  ++l.added;
  if (w.mutation != Mutation::kRepeatAtomic) return;
  ++w.mutated;
  std::byte* word = slots_[l.names].memory.data() + kAddWord;
  const uint64_t twice = word_at(word) + 1;
  std::memcpy(word, &twice, sizeof twice);
}

void FaceRun::on_received(Slot& s, FaceLife& l, const Cqe& c) {
  const auto n = static_cast<uint32_t>(l.received++);
  const std::byte* at = s.memory.data() + kReceives + n * kMessage;
  if (c.byte_len < kHeader) return w.fail("bytes", "life %u has received %u bytes", l.id, c.byte_len);
  const uint32_t from = load_be32(at + 4), number = load_be32(at + 8);
  w.trace("%c program: life %u has received message %u of life %u", 'A' + s.side, l.id, number, from);
  if (from >= lives_.size()) return w.fail("bytes", "life %u has received bytes that nobody has sent", l.id);
  link(l, from, "has received from");
  if (number != n) return w.fail("bytes", "life %u has received message %u of life %u as %u", l.id, number, from, n);
  if (!holds(at, from, number, c.byte_len))
    w.fail("bytes", "life %u has received message %u with wrong bytes", l.id, number);
  check_written(s);
}

// ---- Memory ----

void FaceRun::fill(std::byte* at, const FaceLife& l, uint32_t number, uint32_t size) const {
  store_be32(at, l.slot);
  store_be32(at + 4, l.id);
  store_be32(at + 8, number);
  store_be32(at + 12, size);
  for (uint32_t i = kHeader; i < size; ++i)
    at[i] = static_cast<std::byte>(Rng::mix(uint64_t{l.id} << 32 | number << 16 | i / 8) >> (i % 8 * 8));
}

bool FaceRun::holds(const std::byte* at, uint32_t id, uint32_t number, uint32_t size) const {
  std::vector<std::byte> want(size);
  fill(want.data(), lives_[id], number, size);
  return std::equal(want.begin(), want.end(), at);
}

/// Checks the WRITE cells that have changed: only the partner of the present life may have written to them.
void FaceRun::check_written(Slot& s) {
  if (std::equal(s.memory.begin(), s.memory.begin() + kSends, s.shadow.begin())) return;
  check_word(s);
  if (!std::equal(s.memory.begin(), s.memory.begin() + kCells, s.shadow.begin()))
    return w.fail("bytes", "memory of QP %u that no peer writes has changed", s.number);
  for (uint32_t n = 0; n < kMost; ++n) {
    const std::byte* at = s.memory.data() + kCells + n * kCell;
    std::byte* before = s.shadow.data() + kCells + n * kCell;
    if (std::equal(at, at + kCell, before)) continue;
    const uint32_t from = load_be32(at + 4);
    if (from >= lives_.size() || load_be32(at + 8) != n || !holds(at, from, n, kCell))
      return w.fail("bytes", "cell %u of QP %u has bytes that nobody has written", n, s.number);
    std::copy_n(at, kCell, before);
    if (s.life == kNoLife) return w.fail("bytes", "life %u has written to QP %u, which has no peer", from, s.number);
    link(lives_[s.life], from, "was written to by");
  }
}

/// Checks the word to which the peer adds. Its present value becomes the known one.
void FaceRun::check_word(Slot& s) {
  const std::byte* at = s.memory.data() + kAddWord;
  const uint64_t word = word_at(at);
  if (word == word_at(s.shadow.data() + kAddWord)) return;
  std::copy_n(at, sizeof word, s.shadow.begin() + kAddWord);
  const FaceLife* l = life_of(s);
  if (l == nullptr) return w.fail("bytes", "the word of QP %u changes, and it has no peer", s.number);
  const size_t most = l->partner == kNoLife ? kMost : lives_[l->partner].adds;
  if (word >> 32 != l->id || static_cast<uint32_t>(word) > most)
    w.fail("bytes", "the word of life %u is %llx after at most %zu atomics", l->id, ull(word), most);
}

/// Data has passed between two lives: they have to be partners, and to have named each other.
void FaceRun::link(FaceLife& a, uint32_t other, const char* how) {
  if (other >= lives_.size()) return w.fail("bytes", "life %u %s nobody", a.id, how);
  FaceLife& b = lives_[other];
  if (a.names != b.slot || b.names != a.slot)
    return w.fail("stranger", "life %u, which names QP %u, %s life %u of QP %u", a.id, a.names, how, other, b.slot);
  if ((a.partner != kNoLife && a.partner != other) || (b.partner != kNoLife && b.partner != a.id))
    return w.fail("old", "life %u %s life %u, and their partners are %d and %d", a.id, how, other,
                  static_cast<int>(a.partner), static_cast<int>(b.partner));
  a.partner = other;
  b.partner = a.id;
}

// ---- Hosts ----

void FaceRun::start(Machine& m) {
  if (m.process != nullptr) return;
  ++m.born;
  m.process = std::make_unique<FaceProcess>(w, plan_, m.side);
  FaceProcess& p = *m.process;
  m.cq = p.engine->cq_create(4096, nullptr);
  for (Slot& s : slots_) {
    if (s.side != m.side) continue;
    s.stag = ((m.born % 4096 * 16 + s.number + 1) << 8) | 5;
    s.memory.assign(kBytes, std::byte{0});
    s.shadow = s.memory;
    const MrAttr attr{s.stag, kPd, kRights, reinterpret_cast<uint64_t>(s.memory.data()), kBytes, iova(s.stag)};
    if (p.engine->mr_add(attr) != 0) w.fail("setup", "mr_add");
  }
  p.on_installed = [this](uint32_t qpn, const FaceProcess::Installed& conn) {
    for (const Slot& s : slots_)
      if (s.qpn == qpn && s.life != kNoLife) installed_[{conn.local_isn, conn.peer_isn}] = s.life;
  };
  p.on_drained = [this](uint32_t qpn) { on_drained(qpn); };
  p.on_failed = [this](uint32_t qpn) {
    for (const Slot& s : slots_) {
      if (s.qpn != qpn) continue;
      FaceLife* l = life_of(s);
      if (l == nullptr) return w.fail("silent", "QP %u fails without a peer", s.number);
      bool refused = l->partner_bad;
      for (const FaceLife& o : lives_) refused |= o.names == l->slot && o.bad;
      if (l->completed == l->posted.size() && !refused)
        w.fail("silent", "life %u has failed, and it had nothing outstanding", l->id);
      l->partner_bad |= refused;
    }
  };
}

void FaceRun::kill(Machine& m) {
  if (m.process == nullptr) return;
  m.process.reset();
  for (Slot& s : slots_) {
    if (s.side != m.side) continue;
    s.exists = false;
    const bool over = s.session == nullptr && s.todo.empty();
    ++s.step;
    if (s.life != kNoLife) {
      end_life(s, true);
      s.todo.pop_back();
    }
    if (!over) later(s, 0, &FaceRun::next_session);
  }
}

void FaceRun::incident(const Incident& i, bool on) {
  const auto kind = static_cast<FaceFault>(i.kind);
  Machine& m = machines_[static_cast<size_t>(i.side)];
  w.trace("-- %s %s, host %c", face_fault_name(kind), on ? "begins" : "is over", 'A' + i.side);
  incidents_open_ += on ? 1 : -1;
  last_incident_ = w.clock.now;
  if (kind == kFaceCut) w.wire.faults.cut[i.side] = on;
  if (kind == kFaceFreeze && m.process != nullptr) m.process->frozen = on;
  if (kind != kFaceKill) return;
  if (on)
    kill(m);
  else
    start(m);
}

void FaceRun::arrivals() {
  Datagram d;
  FlowKey flow;
  bool ce;
  for (Machine& m : machines_) {
    while (w.wire.receive(m.side, d, flow, ce)) {
      FaceProcess* p = m.process.get();
      if (d.size() == 5 && d[0] == std::byte{0xff}) {
        if (p != nullptr) p->unreachable(flow, std::span(d).subspan(1));
        continue;
      }
      if (w.tracing()) w.trace("%c <wire %s", 'A' + m.side, describe(d).c_str());
      if (plan_.has(kFaceReplay)) capture({m.side, d, flow});
      if (plan_.late != 0 && strangers_.chance(3))
        w.wire.inject(m.side, d, flow, w.clock.now + strangers_.below(plan_.late));
      if (p != nullptr && p->has_port(flow.local_port)) {
        p->arrive(d, flow);
        continue;
      }
      // ICMP has no TRP opcode. It is sent as a datagram that no port would send, and quotes the PSN.
      std::byte icmp[5] = {std::byte{0xff}};
      std::copy_n(d.begin(), std::min(d.size(), sizeof icmp - 1), icmp + 1);
      w.wire.send(m.side, icmp, flow);
    }
  }
}

// ---- Strangers ----

/// Sends a REQ with all that the programs have exchanged, from the address of any QP.
void FaceRun::forge() {
  const Slot& victim = slots_[strangers_.below(slots_.size())];
  const bool as_peer = strangers_.chance(70) && victim.session != nullptr;
  const uint32_t any = strangers_.below(static_cast<uint32_t>(slots_.size()));
  const Slot& from = slots_[as_peer ? static_cast<uint32_t>(victim.session->slot[1 - victim.end]) : any];
  const auto address = [&](const Slot& s) { return SimWire::address(s.side, plan_.ipv6); };
  usiw_face face;
  usiw_face_init(&face, from.qpn, 0);
  usiw_face_set_peer(&face, address(from).data(), address(victim).data(), 0, victim.qpn,
                     as_peer ? victim.session->psn[victim.end] : 0);
  usiw_face_ask ask;
  usiw_face_build_ask(&face, &ask);
  usiw_cm_conn c;
  usiw_cm_init_active(&c, static_cast<uint32_t>(strangers_()), 16, 16, 1500, 64, &ask, sizeof ask);
  usiw_cm_set_silent(&c);
  usiw_cm_offer(&c, USIW_FEATURE_FACE);
  usiw_cm_connect(&c, 1);
  Datagram d(USIW_CM_MAX_DATAGRAM);
  d.resize(usiw_cm_build(&c, d.data()));
  if (strangers_.chance(50)) store_be32(d.data() + 4, static_cast<uint32_t>(strangers_()));
  const FlowKey flow{address(victim), address(from), htons(usiw_face_port(victim.qpn)),
                     htons(usiw_face_port(from.qpn))};
  w.wire.inject(victim.side, d, flow);
  w.after(strangers_.log_range(100 * kUs, 500 * kMs), alive_, [this] { forge(); });
}

/// Keeps each datagram of a handshake, and some others.
void FaceRun::capture(Captured c) {
  constexpr size_t kCaptured = 1000;
  const bool handshake = usiw_cm_look(c.data.data(), static_cast<uint32_t>(c.data.size())) == USIW_CM_LOOK_HANDSHAKE;
  if (!handshake && !strangers_.chance(20)) return;
  std::vector<Captured>& of_kind = captured_[handshake];
  if (of_kind.size() < kCaptured)
    of_kind.push_back(std::move(c));
  else
    of_kind[strangers_.below(kCaptured)] = std::move(c);
}

void FaceRun::replay() {
  const std::vector<Captured>& of_kind = captured_[strangers_.below(2)];
  if (!of_kind.empty()) {
    const Captured& c = of_kind[strangers_.below(of_kind.size())];
    w.wire.inject(c.side, c.data, c.flow);
  }
  w.after(strangers_.log_range(100 * kUs, 300 * kMs), alive_, [this] { replay(); });
}

// ---- Rules ----

uint64_t FaceRun::connect_limit() const { return (plan_.base.wire.loss > 0 ? 20 : 4) * kSec + 6 * plan_.event_pause; }

/// Returns true if the QP has a connection that a life other than the present one of @p other has had, too.
bool FaceRun::busy(const Slot& s, const Slot& other) {
  const FaceProcess::Installed c = process(s)->installed(s.qpn);
  if (!c.there) return false;
  const auto it = installed_.find({c.peer_isn, c.local_isn});
  return it != installed_.end() && it->second != other.life;
}

/// Two QPs that name each other and stay have to be connected after a while.
void FaceRun::inspect_pair(Slot& a, Slot& b) {
  FaceLife *la = life_of(a), *lb = life_of(b);
  if (la == nullptr || lb == nullptr || la->names != b.number || lb->names != a.number) return;
  if (la->by_program || lb->by_program || la->failed || lb->failed || la->partner_bad || lb->partner_bad) return;
  if (!la->psn_fits || !lb->psn_fits || la->plan == lb->plan) return;
  if (&plan_.sessions[a.todo.back()] != &plan_.sessions[b.todo.back()]) return;  // the PSNs may differ
  const FaceProcess::Installed ca = process(a)->installed(a.qpn), cb = process(b)->installed(b.qpn);
  if (ca.there && cb.there && ca.local_isn == cb.peer_isn && ca.peer_isn == cb.local_isn) {
    if (la->connected_at == 0) la->connected_at = lb->connected_at = w.clock.now;
    return;
  }
  const uint64_t since = w.clock.now - std::min(w.clock.now, connect_limit());
  if (la->rtr_at > since || lb->rtr_at > since || !quiet(since) || busy(a, b) || busy(b, a)) return;
  w.fail("connect", "lives %u and %u name each other, and are not connected: %s%s", la->id, lb->id,
         process(a)->describe().c_str(), process(b)->describe().c_str());
}

void FaceRun::inspect(Slot& s, FaceLife& l) {
  const FaceProcess& p = *process(s);
  const bool failed = p.qp(s.qpn)->state() == QpState::kError;
  const bool explained = l.by_program || l.failed || l.bad || l.partner_bad || l.completed < l.posted.size();
  if (failed && !explained) return w.fail("silent", "life %u is in ERR, and nothing has failed", l.id);
  if (l.rts_at == 0 || l.completed == l.posted.size()) return;
  if (l.in_sqd && l.completed >= l.before_sqd) return;
  const QpLimits& limits = l.plan->limits;
  uint64_t most = connect_limit() + 8 * kSec;
  if (limits.retry_ns != kForEver)
    most += limits.retry_ns + limits.first_ns + std::min(limits.rnr_ns, 4 * kSec);
  else if (l.connected_at == 0 || lives_[l.id].partner == kNoLife || lives_[l.partner].over ||
           lives_[l.partner].failed || lives_[l.partner].by_program)
    return;  // it may wait for ever
  // A replayed NOT_READY of a peer that is gone is like one of a peer that lives.
  const bool sends = l.posted[l.completed].op == WrOpcode::kSend;
  if (plan_.has(kFaceReplay) && sends && limits.rnr_ns == kForEver) return;
  const uint64_t since = w.clock.now - std::min(w.clock.now, most);
  if (l.last_progress < since && quiet(since))
    w.fail("hang", "life %u: request %zu does not complete: %s", l.id, l.completed, p.describe().c_str());
}

void FaceRun::inspect() {
  for (Slot& s : slots_) {
    if (s.life == kNoLife || process(s) == nullptr) continue;
    inspect(s, lives_[s.life]);
    for (Slot& o : slots_)
      if (o.number > s.number && process(o) != nullptr) inspect_pair(s, o);
  }
  w.after(100 * kMs, alive_, [this] { inspect(); });
}

void FaceRun::final_checks() {
  for (const FaceLife& l : lives_) {
    if (l.partner == kNoLife || l.killed) continue;
    const FaceLife& p = lives_[l.partner];
    size_t sent = 0;
    for (size_t i = 0; i < l.succeeded; ++i) sent += l.posted[i].op == WrOpcode::kSend;
    if (!p.killed && sent > p.received)
      w.fail("agree", "life %u has sent %zu messages, and life %u has received %zu", l.id, sent, p.id, p.received);
    if (l.received > p.sends) w.fail("agree", "life %u has received more than life %u has sent", l.id, p.id);
  }
  for (Slot& s : slots_)
    if (s.exists) process(s)->destroy(s.qpn);
  for (Machine& m : machines_)
    if (m.process != nullptr && !w.failed()) m.process->check_empty();
}

// ---- Time ----

bool FaceRun::step() {
  bool work = w.run_due();
  arrivals();
  for (Machine& m : machines_) {
    if (m.process == nullptr) continue;
    const unsigned n = m.process->run();
    w.mix(n);
    if (!m.process->frozen) poll(m);
    work |= n != 0;
  }
  w.mix(w.clock.now);
  w.clock.now += kTick;
  if (work) return true;
  uint64_t at = std::min(w.next_due(), w.wire.next_arrival());
  for (const Machine& m : machines_)
    if (m.process != nullptr) at = std::min(at, m.process->next_deadline());
  if (at == UINT64_MAX) return false;
  w.clock.now = std::max(w.clock.now, at);
  return true;
}

bool FaceRun::go() {
  const uint64_t begin_ns = w.clock.now;
  for (Machine& m : machines_) start(m);
  for (const Incident& i : plan_.incidents) {
    w.after(i.at, alive_, [this, &i] { incident(i, true); });
    w.after(i.at + i.length, alive_, [this, &i] { incident(i, false); });
  }
  for (Slot& s : slots_) next_session(s);
  if (plan_.has(kFaceForger)) forge();
  if (plan_.has(kFaceReplay)) replay();
  inspect();
  uint64_t steps = 0;
  while ((over_ != slots_.size() || incidents_open_ != 0) && !w.failed()) {
    if (!step()) w.fail("hang", "nothing will ever happen");
    if (++steps > kMaxSteps || w.clock.now - begin_ns > kLimit) w.fail("hang", "it does not end");
    if (!w.wire.broken.empty()) w.fail("port", "%s", w.wire.broken.c_str());
  }
  if (!w.failed()) final_checks();
  return !w.failed();
}

}  // namespace usiw::sim
