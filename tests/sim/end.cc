// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file end.cc
/// The program at one end of a connection.
#include <array>
#include <cerrno>

#include "run.h"

namespace usiw::sim {

namespace {
constexpr uint64_t kFlushLimit = 10'000'000'000;

/// Gives access to a member that only the engine's own code may use.
struct Bell : Qp {
  using Qp::doorbell_;
};
/// Returns true if the engine has not yet taken the work requests that were posted.
bool has_rung(Qp& qp) { return (qp.*&Bell::doorbell_).queued.load(std::memory_order_relaxed); }
}  // namespace

End::End(Run& run, Attempt* attempt, int which, Machine& machine)
    : Reporter(run.w, machine.side),
      run_(run),
      attempt_(attempt),
      which_(which),
      machine_(machine),
      process_(machine.process.get()),
      life_(machine.process->life) {}

void End::later(uint64_t ns, void (End::*what)()) {
  w_.after(ns, life_, [s = shared_from_this(), what] { (s.get()->*what)(); });
}

Lane* End::out() const { return attempt_ == nullptr ? nullptr : attempt_->lane[which_].get(); }
Lane* End::in() const { return attempt_ == nullptr ? nullptr : attempt_->lane[1 - which_].get(); }
Qp* End::qp() const { return process_ == nullptr || qpn == 0 || no_qp_ ? nullptr : process_->qp(qpn); }

uint32_t End::pd() const { return w_.sc.pairs[attempt_->pair].pd[which_]; }

bool End::shared() const { return attempt_ != nullptr && attempt_->plan->lane[1 - which_].shared; }

// ---- Opening ----

void End::make_qp() {
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = attr.max_send_sge = attr.max_recv_sge = 1;
  attr.pd = kPd;
  attr.send_cq = attr.recv_cq = process_->cqs[0];
  if (attempt_ != nullptr) {
    const SessionPlan& s = *attempt_->plan;
    const PairPlan& pair = w_.sc.pairs[attempt_->pair];
    attr.max_send_wr = s.max_send_wr;
    attr.max_recv_wr = s.max_recv_wr;
    attr.max_send_sge = attr.max_recv_sge = s.max_sge;
    attr.max_inline = s.max_inline;
    attr.sq_sig_all = s.sig_all;
    attr.pd = pd();
    attr.srq = shared() ? process_->shared->srq() : nullptr;
    attr.send_cq = process_->cqs[pair.cq[which_][0]];
    attr.recv_cq = process_->cqs[pair.cq[which_][1]];
    register_memory();
    in()->shared_words = process_->words;
  }
  if (qpn == 0) qpn = process_->create_qp(attr);
  if (attempt_ != nullptr && w_.sc.has(kQpAccess)) permit(attempt_->plan->access[which_], false);
  if (attempt_ != nullptr && attempt_->plan->lane[1 - which_].ahead) post_recvs();
}

void End::permit(uint32_t access, bool connected) {
  if (over || gone_ || qp() == nullptr) return;
  trace("app: qp %u permits %x", qpn, access);
  in()->permit(access, connected);
  if (w_.mutation == Mutation::kIgnoreAccess) access = kAccessOfConnection, ++w_.mutated;
  if (w_.mutation == Mutation::kNoAccess && connected) access = 0, ++w_.mutated;
  if (w_.mutation == Mutation::kKeepAccess && connected) return void(++w_.mutated);
  process_->engine->qp_permit(qp(), access);
}

std::array<Block*, 6> End::blocks() const {
  return {&out()->src, &out()->sink, &in()->recv, &in()->target, &in()->source, &in()->words};
}

void End::register_memory() {
  Engine& e = *process_->engine;
  const Lane& responder = *in();
  for (Block* b : blocks()) {
    b->pd = pd();
    if (e.mr_add(b->attr()) != 0) w_.fail("setup", "mr_add");
  }
  for (const Window* w : responder.first_windows())
    if (e.mw_add({w->stag, pd(), w->plan->type2}) != 0) w_.fail("setup", "mw_add");
  if (responder.lent() == 0) return;
  // The window remains after this end.
  process_->lent->add(responder.lent(), pd(), attempt_->id, [self = weak_from_this()] {
    const auto end = self.lock();
    return end != nullptr && !end->over && !end->gone_ && end->qp() != nullptr && end->qp()->state() == QpState::kRts;
  });
}

void End::remove_memory() {
  Engine& e = *process_->engine;
  for (const Window* w : in()->first_windows())
    if (e.mw_remove(w->stag) != 0) w_.fail("setup", "mw_remove");
  for (const Block* b : blocks())
    if (e.mr_remove(b->stag) != 0) w_.fail("setup", "mr_remove");
}

void End::start_client() {
  make_qp();
  const SessionPlan& s = *attempt_->plan;
  uint8_t pd[16] = {};
  std::memcpy(pd, &attempt_->id, 4);
  const uint32_t isn = attempt_->tries == 0 ? s.isn[0] : static_cast<uint32_t>(w_.rng());
  const int ret = machine_.kernel->connect(this, qpn, attempt_->flow, isn, {s.ird[0], s.ord[0], s.mtu[0], pd});
  trace("app: connect port %u, attempt %u: %d", attempt_->flow.local_port, attempt_->id, ret);
  if (ret == 0) return;
  if (ret != -EADDRINUSE) w_.fail("connect", "connect: %d", ret);
  failures = ret;
  finish();
}

void End::start_server(uint32_t conn_id) {
  make_qp();
  uint16_t ird = 4, ord = 4;
  if (attempt_ != nullptr) ird = attempt_->plan->ird[1], ord = attempt_->plan->ord[1];
  const int ret = machine_.kernel->accept(this, conn_id, qpn, {ird, ord, 0, {}});
  trace("app: accept: %d", ret);
  if (ret == 0 && w_.sc.has(kEarly)) wake_send();
  if (ret == 0) return;
  failures = ret;
  finish();
}

void End::on_reply(int result, std::span<const uint8_t> pd) {
  ++machine_opens;
  if (result == 0) return opened();
  failures = result;
  if (attempt_->rejected && result == -ECONNREFUSED && !w_.sc.has(kRaw) && !pd.empty() &&
      (pd.size() != 2 || pd[0] != 'n'))
    w_.fail("connect", "a reject without its private data");
  later(w_.rng.below(50'000), &End::finish);
}

void End::on_established() {
  ++machine_opens;
  opened();
}

void End::opened() { later(w_.rng.below(50'000), &End::begin_work); }

void End::begin_work() {
  established = true;
  if (over || gone_ || attempt_ == nullptr) return;
  trace("app: established, qp %u", qpn);
  post_recvs();
  wake_send();
  const SessionPlan& plan = *attempt_->plan;
  if (!plan.lane[1 - which_].ahead) wake_recv();
  for (const PausePlan& p : plan.pauses)
    if (p.end == which_) w_.after(p.at, life_, [s = shared_from_this(), &p] { s->pause(p); });
  for (const PermitPlan& p : plan.permits)
    if (p.end == which_) w_.after(p.at, life_, [s = shared_from_this(), &p] { s->permit(p.access, true); });
  if (plan.early_end != 0 && (which_ == plan.closer || plan.ending == Ending::kBoth))
    later(plan.early_end, &End::close);
  run_.attempt_progress(*attempt_);
}

// ---- Posting ----

void End::post_recvs() {
  Lane* lane = in();
  Qp* q = qp();
  if (lane == nullptr || q == nullptr || gone_ || shared()) return;
  const bool ahead = attempt_->plan->lane[1 - which_].ahead;
  unsigned left = ahead ? UINT32_MAX : 1 + w_.rng.below(4);
  bool any = false;
  for (; left != 0 && lane->recv_end.posted < lane->sends(); --left) {
    const size_t i = lane->recv_end.posted;
    const Op& op = lane->recv_op(i);
    if (op.plan->wrong == Wrong::kNoRecv) break;
    if (q->post_recv(uint64_t{attempt_->id} << 32 | i, lane->recv.sges(op.receive)) != 0) break;
    ++lane->recv_end.posted;
    any = true;
  }
  if (any) q->ring_recv();
}

void End::wake_recv() {
  if (over || gone_ || in() == nullptr || shared()) return;
  post_recvs();
  if (in()->recv_end.posted < in()->sends())
    later(1 + w_.rng.below(attempt_->plan->lane[1 - which_].recv_pause + 1), &End::wake_recv);
}

bool End::may_post(const OpPlan& p) const {
  return in()->recv_end.succeeded >= p.after && (!p.alone || out()->send.completed == out()->send.posted);
}

/// Posts the work requests that waited for a completion or a message, which has come now.
void End::wake_waiting() {
  if (!waiting_ || !may_post(*out()->op(out()->next_send()).plan)) return;
  waiting_ = false;
  sending_ = true;
  later(1 + w_.rng.below(attempt_->plan->lane[which_].pause + 1), &End::resume_sending);
}

/// Returns the windows of other connections on the host that carries out @p opcode; nullptr if no process runs there.
LentWindows* End::others_windows(WrOpcode opcode) const {
  if (is_local(opcode)) return process_->lent.get();
  const End* peer = attempt_->end[1 - which_].get();
  return peer == nullptr || peer->life_.expired() ? nullptr : peer->machine_.process->lent.get();
}

/// Returns true if the work request has to wait because no other connection has bound a window yet, or no living one
/// has. The number of attempts is limited.
bool End::looks_for_window(const OpPlan& p) {
  const LentWindows* windows = others_windows(p.opcode);
  return windows != nullptr && windows->of_another(attempt_->id, p.living) == nullptr && ++looked_ < 40;
}

/// Fills in a work request that binds a lent window, or names one. Returns the window of another connection that it
/// names, or nullptr.
const LentWindows::Window* End::fill_foreign(size_t i, Qp::SendWr& wr) {
  const Op& op = out()->op(i);
  if (op.plan->wrong != Wrong::kForeign) {
    process_->lent->fill_bind(in()->lent(), wr);
    return nullptr;
  }
  constexpr uint32_t kNobodys = (USIW_MAX_MR + USIW_MAX_MW - 1) << 8;
  const LentWindows* windows = others_windows(wr.opcode);
  const LentWindows::Window* w = windows == nullptr ? nullptr : windows->of_another(attempt_->id, op.plan->living);
  if (w == nullptr && windows != nullptr) w = windows->of_another(attempt_->id, false);
  if (w == nullptr) {
    out()->post_foreign(i, wr, kNobodys, 0, false);
    return nullptr;
  }
  if (w_.tracing())
    trace("app: %zu names window %08x, which connection %u has bound, %s", i, w->stag, w->owner,
          w->lives() ? "and lives" : "and is over");
  const uint64_t more = w_.rng.below((kLentBytes - op.plan->size) / 8 + 1) * 8;
  out()->post_foreign(i, wr, w->stag, windows->address(w->pd) + more, true);
  return w;
}

void End::wake_send() {
  sending_ = false;
  Lane* lane = out();
  Qp* q = qp();
  if (lane == nullptr || q == nullptr || gone_ || over) return;
  const LanePlan& plan = attempt_->plan->lane[which_];
  bool stalled = false, any = false;
  for (unsigned n = 1 + w_.rng.below(plan.burst); n != 0 && lane->next_send() < lane->size(); --n) {
    const size_t i = lane->next_send();
    const Op& op = lane->op(i);
    if (!may_post(*op.plan)) {
      waiting_ = true;
      break;
    }
    if (op.plan->wrong == Wrong::kForeign && looks_for_window(*op.plan)) {
      stalled = true;
      break;
    }
    const auto flags = static_cast<uint8_t>(
        (op.plan->signalled ? kWrSignaled : 0) | (op.plan->inlined ? kWrInline : 0) |
        (op.plan->solicited ? kWrSolicited : 0) | (op.plan->fence ? kWrFence : 0));
    Block& from = lane->block_of(op);
    auto sges = op.plan->inlined ? from.raw_sges(op.local) : from.sges(op.local);
    if (op.plan->wrong == Wrong::kLkey) sges[0].lkey ^= 1;
    Qp::SendWr wr{.wr_id = uint64_t{attempt_->id} << 32 | i,
                  .opcode = op.plan->opcode,
                  .flags = flags,
                  .remote_addr = op.remote_addr,
                  .rkey = op.rkey,
                  .imm = op.imm,
                  .operands = op.operands};
    if (op.plan->contended) out()->post_contended(i, wr);
    const LentWindows::Window* others = nullptr;
    if (op.plan->foreign)
      others = fill_foreign(i, wr);
    else if (is_local(wr.opcode))
      in()->fill_local(*op.plan, wr);
    const int rc = q->post_send(wr, sges);
    if (rc != 0) {
      if (op.plan->contended && out()->shared_words != nullptr) out()->shared_words->withdraw(wr.opcode, wr.operands);
      if (rc != ENOMEM) w_.fail("post", "post_send: %d", rc);
      stalled = true;
      break;
    }
    lane->posted();
    if (others != nullptr) ++w_.totals[kTrespasses], w_.totals[kOfLiving] += others->lives();
    any = true;
  }
  if (any) q->ring_send();
  if (any && w_.tracing()) trace("app: qp %u has posted %zu of %zu", qpn, lane->send.posted, lane->size());
  if (lane->next_send() == lane->size() || waiting_) return;
  stall_ = stalled ? std::min<uint64_t>(stall_ * 2, 5'000'000) : 2'000;
  sending_ = true;
  later(stalled ? stall_ : 1 + w_.rng.below(plan.pause + 1), &End::resume_sending);
}

void End::resume_sending() {
  if (sending_) wake_send();
}

bool End::set_up_holds() const {
  const End* server = attempt_->end[1].get();
  return attempt_->end[0]->failures == 0 && (server == nullptr || server->status != -ETIMEDOUT);
}

void End::on_cqe(const Cqe& c) {
  if (c.qpn != qpn) return w_.fail("completion", "a completion of QP %u on that of %u", c.qpn, qpn);
  if (w_.tracing())
    trace("app: qp %u completion %llu opcode %d status %d", c.qpn, ull(c.wr_id & 0xffffffff),
          static_cast<int>(c.opcode), static_cast<int>(c.status));
  if (c.opcode == WcOpcode::kRecv || c.opcode == WcOpcode::kRecvRdmaWithImm) {
    in()->on_recv(c, set_up_holds());
    if (attempt_->plan->lane[1 - which_].ahead) post_recvs();
  } else {
    if (paused_ && c.status == WcStatus::kSuccess && (c.wr_id & 0xffffffff) >= pause_limit_)
      fail("drain", "QP %u: %u completes in SQD", qpn, static_cast<unsigned>(c.wr_id));
    out()->on_send(c, set_up_holds());
    stall_ = 2'000;
    for (; local_done_ < out()->send.succeeded; ++local_done_)
      if (const OpPlan& p = *out()->op(local_done_).plan; p.foreign && p.opcode == WrOpcode::kBindMw)
        process_->lent->bound(in()->lent());
      else if (!p.foreign && (p.unbind || p.opcode == WrOpcode::kLocalInv))
        in()->unbound(p.window);
  }
  wake_waiting();
  if (!attempt_->finished) run_.attempt_progress(*attempt_);
}

void End::on_shared_cqe(const Cqe& c, const SharedQueue::Buffer& b) {
  if (w_.tracing())
    trace("app: qp %u receive %llx of the SRQ, status %d", c.qpn, ull(c.wr_id), static_cast<int>(c.status));
  in()->on_shared_recv(c, set_up_holds(), machine_.process->shared->block(), b.at, !b.returned);
  wake_waiting();
  if (!attempt_->finished) run_.attempt_progress(*attempt_);
}

// ---- Ending ----

void End::close() {
  if (closing_ || over || gone_ || qp() == nullptr) return;
  closing_ = true;
  trace("app: closes, kind %d", static_cast<int>(attempt_->plan->ending));
  switch (attempt_->plan->ending) {
    case Ending::kDisconnect:
    case Ending::kBoth:
      return machine_.kernel->disconnect(qpn);
    case Ending::kError:
      return process_->error_qp(qpn);
    case Ending::kDestroy:
      machine_.kernel->forget(this);
      return finish();
  }
}

void End::on_disconnected(int result) {
  ++machine_disconnects;
  status = result;
  trace("cm: disconnected, %d", result);
  later(w_.rng.below(50'000), &End::gone);
}

void End::on_closed() {
  if (++machine_closes > 1) w_.fail("cm", "closed twice");
  later(w_.rng.below(50'000), &End::gone);
}

void End::gone() {
  if (gone_ || over) return;
  gone_ = true;
  try_finish(w_.clock.now);
}

bool End::flushed_recvs() const {
  if (shared()) return process_->state(qpn).last_wqe != 0;
  return in()->recv_end.completed == in()->recv_end.posted;
}

/// The program destroys the QP after all posted work requests have completed.
void End::try_finish(uint64_t since) {
  if (over) return;
  // A silent success and a flush that was not polled yet look the same, as does one that the engine has yet to make of
  // a posted work request.
  bool ended = qp() != nullptr && qp()->state() == QpState::kError && !has_rung(*qp());
  for (const Cq* cq : process_->cqs) ended &= cq->empty();
  if (attempt_ == nullptr || (ended && out()->settled() && flushed_recvs())) {
    flushed = true;
    return finish();
  }
  if (w_.clock.now - since > kFlushLimit)
    return fail("flush", "qp %u has ended, and %zu of %zu sends and %zu of %zu receives have completed", qpn,
                out()->send.completed, out()->send.posted, in()->recv_end.completed, in()->recv_end.posted);
  const uint64_t waited = w_.clock.now - since;
  w_.after(std::max<uint64_t>(20'000, waited), life_, [s = shared_from_this(), since] { s->try_finish(since); });
}

void End::finish() {
  if (over) return;
  over = true;
  trace("app: qp %u is over%s", qpn, flushed ? ", all flushed" : "");
  machine_.kernel->forget(this);
  if (attempt_ != nullptr) remove_memory();
  const bool keep = which_ == 0 && attempt_ != nullptr && flushed &&
                    run_.session_[attempt_->pair] + 1 < w_.sc.pairs[attempt_->pair].sessions.size() &&
                    w_.sc.pairs[attempt_->pair].sessions[run_.session_[attempt_->pair] + 1].reset_qp;
  if (keep) {
    run_.old_client_[attempt_->pair] = shared_from_this();
  } else if (qp() != nullptr) {
    process_->destroy_qp(qpn);
  }
  no_qp_ = true;
  run_.end_is_over(attempt_);
}

void End::process_died() {
  if (over) return;
  over = true;
  no_qp_ = true;
  process_ = nullptr;
  run_.end_is_over(attempt_);
}

void End::describe(std::string& text) const {
  text += which_ == 0 ? "client" : "server";
  text += over ? " over" : gone_ ? " gone" : established ? " open" : " not open";
  if (out() != nullptr)
    text += ", sent " + std::to_string(out()->send.completed) + "/" + std::to_string(out()->send.posted) + "/" +
            std::to_string(out()->size()) + ", received " + std::to_string(in()->recv_end.completed) + "/" +
            std::to_string(in()->recv_end.posted) + "; ";
}

}  // namespace usiw::sim
