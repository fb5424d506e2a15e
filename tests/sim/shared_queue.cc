// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "shared_queue.h"

#include <algorithm>
#include <cerrno>

#include "engine/qp_context.h"
#include "engine/srq_context.h"

namespace usiw::sim {
namespace {

SrqContext& context(Srq* srq) { return *static_cast<SrqContext*>(srq); }

}  // namespace

SharedQueue::SharedQueue(World& world, Engine& engine, int side, const SrqPlan& plan, uint32_t stag, LifeOf life)
    : Reporter(world, side),
      engine_(engine),
      plan_(plan),
      life_(std::move(life)),
      block_(stag << 8 | 0x77, kAccessLocalWrite, world.sc.seed + stag) {
  srq_ = engine.srq_create({.pd = 7, .max_wr = plan.wr, .max_sge = plan.sges(), .owner = this});
  if (srq_ == nullptr) w_.fail("setup", "srq_create");
  // More buffers than fit in the SRQ, so that it is full now and then.
  buffers_.resize(plan.most != 0 ? plan.most : srq_->capacity() + 2);
  for (Buffer& b : buffers_) b.at = block_.take(plan.lengths);
  block_.make();
  if (engine.mr_add(block_.attr()) != 0) w_.fail("setup", "mr_add");
  refill();
}

void SharedQueue::refill_soon() {
  if (refilling_) return;
  refilling_ = true;
  w_.after(1 + w_.rng.below(plan_.pause), life_, [this] { refill(); });
}

void SharedQueue::refill() {
  refilling_ = false;
  if (plan_.early && posted_ < std::min<size_t>(buffers_.size(), srq_->capacity())) arm();
  bool any = false;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Buffer& b = buffers_[i];
    if (b.posted) continue;
    ++b.times;
    if (const int rc = srq_->post_recv(wr_id(i), block_.sges(b.at)); rc != 0) {
      if (rc != ENOMEM) return w_.fail("post", "post_srq_recv: %d", rc);
      if (posted_ < srq_->capacity()) fail("srq", "the SRQ takes no more than %zu of %u", posted_, srq_->capacity());
      break;
    }
    b.posted = any = true;
    ++posted_;
  }
  if (any) srq_->ring_recv();
  trace("app: the SRQ has %zu receives", posted_);
  // If nothing was posted because QPs have taken all receives, the event might come at once, again and again.
  if (!plan_.early && (any || (plan_.most == 0 && context(srq_).has(plan_.limit)))) arm();
  if (w_.mutation == Mutation::kJumpQueue) jump_queue();
}

void SharedQueue::arm() {
  if (plan_.limit == 0 || limit_ != 0) return;
  limit_ = 1 + w_.rng.below(plan_.limit);
  const bool late = w_.mutation == Mutation::kLateLimit;
  w_.mutated += late;
  engine_.srq_arm(srq_, late ? limit_ - 1 : limit_);
}

SharedQueue::Buffer* SharedQueue::take(uint64_t id) {
  const size_t i = id & 0xffff;
  if (i >= buffers_.size() || !buffers_[i].posted || id != wr_id(i)) return nullptr;
  buffers_[i].posted = false;
  --posted_;
  return &buffers_[i];
}

SharedQueue::Buffer* SharedQueue::completed(const Cqe& c) {
  Buffer* b = take(c.wr_id);
  if (b == nullptr) fail("srq", "receive %llx of the SRQ completes, which is not posted", ull(c.wr_id));
  return b;
}

void SharedQueue::reuse(Buffer& b) {
  block_.write_old(b.at);
  b.returned = false;
  // A program with an armed limit waits for the event before it posts.
  if (plan_.eager || limit_ == 0) refill_soon();
}

void SharedQueue::given_back() {
  for (Buffer& b : buffers_) b.returned |= b.posted;
}

void SharedQueue::on_limit() {
  trace("engine: fewer than %u in the SRQ", limit_);
  if (w_.mutation == Mutation::kSwallowLimit) return void(++w_.mutated);
  if (limit_ == 0) return fail("srq", "the SRQ reports its limit, which is not armed");
  if (context(srq_).has(limit_)) fail("srq", "the SRQ reports its limit, which is not reached");
  limit_ = 0;
  refill_soon();
}

/// QPs that have waited longest get a receive first, and new ones join at the end. So the QPs that have left the list
/// since the last check must be its first ones, except those that ended.
void SharedQueue::check_turns(const std::function<bool(const Qp*)>& lives) {
  std::vector<Waiting> now;
  for (const ListHook* h = context(srq_).waiting.begin(); h->owner != nullptr; h = h->next)
    now.push_back({h->owner, h->owner->rq.told_ns()});
  size_t next = 0;  // QPs of the present list that were in the list before
  for (const Waiting& w : waiting_) {
    if (next < now.size() && now[next] == w) {
      ++next;
      continue;
    }
    const bool waits = std::find(now.begin(), now.end(), w) != now.end();
    if (waits || (next != 0 && lives(w.qp)))
      fail("turn", "QP %u is passed by another that waits for the SRQ, or passes it", w.qp->qpn());
  }
  waiting_ = std::move(now);
}

void SharedQueue::jump_queue() {
  QpList& waiting = context(srq_).waiting;
  if (waiting.empty() || waiting.has_one()) return;
  ListHook& first = waiting.front()->srq_hook;
  first.unlink();
  waiting.push_back(first);
  ++w_.mutated;
}

void SharedQueue::check(const std::function<bool(const Qp*)>& lives) {
  check_turns(lives);
  if (limit_ != 0 && (posted_ < limit_ || !context(srq_).has(limit_)))
    fail("srq", "nobody was told that there are fewer than %u in the SRQ", limit_);
}

void SharedQueue::lose_one() {
  uint32_t slot;
  limit_ = 0;
  engine_.srq_arm(srq_, 0);
  if (context(srq_).take(slot) != nullptr) ++w_.mutated;
}

void SharedQueue::check_end() {
  limit_ = 0;
  engine_.srq_arm(srq_, 0);
  uint32_t slot;
  while (const RecvWqe* wqe = context(srq_).take(slot))
    if (take(wqe->wr_id) == nullptr)
      return fail("srq", "receive %llx is in the SRQ twice, or after its completion", ull(wqe->wr_id));
  if (posted_ != 0) fail("srq", "%zu receives have not completed, and are not in the SRQ", posted_);
  std::vector<Piece> used;
  for (const Buffer& b : buffers_) used.insert(used.end(), b.at.begin(), b.at.end());
  if (block_.changed_outside(std::move(used))) fail("memory", "a byte between the SRQ's buffers has changed");
  if (engine_.mr_remove(block_.stag) != 0) w_.fail("setup", "mr_remove");
  engine_.srq_destroy(srq_);
}

}  // namespace usiw::sim
