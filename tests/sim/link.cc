// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "link.h"

#include <utility>

namespace usiw::sim {

void Link::send(Packet&& p) {
  const bool full = queue_.size() >= plan_.buffer;
  const bool marks = !full && p.capable && queue_.size() >= plan_.mark;
  if (!p.tcp) ++engine.offered;
  if (cut_) return;
  if (!p.tcp) engine.dropped += full, engine.marked += marks;
  if (full) return;
  p.marked |= marks;
  queued_bytes_ += p.bytes;
  queue_.push_back(std::move(p));
  if (!serving_) serve();
}

void Link::serve() {
  serving_ = true;
  w_.after(time_of(queue_.front().bytes), life_, [this] { sent(); });
}

void Link::sent() {
  Packet p = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= p.bytes;
  if (queue_.empty())
    serving_ = false;
  else
    serve();
  if (cut_ || w_.wire.chance(plan_.loss)) return;
  if (plan_.delay == 0) return deliver_(std::move(p));
  flying_.push_back(std::move(p));
  w_.after(plan_.delay, life_, [this] {
    Packet q = std::move(flying_.front());
    flying_.pop_front();
    deliver_(std::move(q));
  });
}

void Link::cut(bool now) {
  cut_ = now;
  if (!now || queue_.empty()) return;
  // sent() loses the packet that is being sent.
  while (queue_.size() > 1) {
    queued_bytes_ -= queue_.back().bytes;
    queue_.pop_back();
  }
}

}  // namespace usiw::sim
