// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "world.h"

#include <array>
#include <cstdio>

namespace usiw::sim {
namespace {

std::string text_of(const char* fmt, va_list args) {
  char text[400];
  std::vsnprintf(text, sizeof text, fmt, args);
  return text;
}

}  // namespace

const char* mutation_name(Mutation m) {
  static constexpr std::array kNames = {"none",
                                        "flip-placed",
                                        "flip-wire",
                                        "swallow-completion",
                                        "repeat-completion",
                                        "swap-completions",
                                        "swallow-event",
                                        "swallow-report",
                                        "place-early",
                                        "leak-buffer",
                                        "ack-future",
                                        "overrun-window",
                                        "repeat-datagrams",
                                        "deaf-timers",
                                        "stay-put",
                                        "lose-receive",
                                        "swallow-last-wqe",
                                        "swallow-limit",
                                        "write-unbound",
                                        "flip-unbound",
                                        "repeat-atomic",
                                        "two-winners",
                                        "go-on-early",
                                        "swallow-drained",
                                        "jump-queue",
                                        "late-limit",
                                        "forget-stream",
                                        "ignore-access",
                                        "keep-access",
                                        "no-access",
                                        "unproven-counts",
                                        "reset-ends",
                                        "any-qp-fits",
                                        "swallow-take"};
  static_assert(kNames.size() == static_cast<size_t>(Mutation::kMutations));
  return kNames[static_cast<size_t>(m)];
}

bool World::run_due() {
  bool any = false;
  while (!later_.empty() && later_.top().at <= clock.now) {
    const Life life = later_.top().life.lock();
    auto what = std::move(const_cast<Later&>(later_.top()).what);
    later_.pop();
    if (life == nullptr) continue;
    what();
    any = true;
  }
  return any;
}

void World::trace(const char* fmt, ...) {
  if (!tracing()) return;
  const auto us = (clock.now - 1'000'000'000) / 1000;
  char time[40];
  std::snprintf(time, sizeof time, "%6llu.%06llu %03llu ", ull(us / 1'000'000), ull(us % 1'000'000),
                ull(clock.now % 1000));
  va_list args;
  va_start(args, fmt);
  lines.push_back(time + text_of(fmt, args));
  va_end(args);
  if (lines.size() > trace_lines_) lines.pop_front();
}

void World::fail(const char* name, const char* fmt, ...) {
  if (failed()) return;
  va_list args;
  va_start(args, fmt);
  rule = name;
  why = text_of(fmt, args);
  va_end(args);
  trace("BROKEN %s: %s", name, why.c_str());
}

void Reporter::fail(const char* rule, const char* fmt, ...) const {
  va_list args;
  va_start(args, fmt);
  w_.fail(rule, "%s: %s", name_.c_str(), text_of(fmt, args).c_str());
  va_end(args);
}

void Reporter::trace(const char* fmt, ...) const {
  if (!w_.tracing()) return;
  va_list args;
  va_start(args, fmt);
  w_.trace("%s %s", name_.c_str(), text_of(fmt, args).c_str());
  va_end(args);
}

std::string describe(std::span<const std::byte> d) {
  static constexpr const char* kOps[] = {"DATA", "REQ", "ACCEPT", "REJECT", "SHUTDOWN", "SACK", "CONFIRM", "RESET"};
  static constexpr const char* kRdmap[] = {"WRITE", "READ_REQ", "READ_RESP", "SEND", "SEND_INV", "SEND_SE",
                                           "SEND_SE_INV",
                                           "TERM", "IMM", "IMM_SE", "ATOMIC_REQ", "ATOMIC_RESP", "SEND_IMM",
                                           "SEND_SE_IMM", "?", "?"};
  TrpHeader h;
  if (!decode_trp(d, h)) return "short";
  char text[200];
  int n = std::snprintf(text, sizeof text, "%s psn=%08x ack=%08x", h.opcode < 8 ? kOps[h.opcode] : "?", h.psn,
                        h.ack_psn);
  const auto add = [&](auto... args) {
    n += std::snprintf(text + n, sizeof text - static_cast<size_t>(n), args...);
  };
  if (h.opcode == USIW_TRP_DATA || h.opcode == USIW_TRP_SHUTDOWN || h.opcode == USIW_TRP_SACK) {
    if (h.flags & USIW_TRP_F_ACK_REQ) add("%s", " ACK_REQ");
    if (h.flags & USIW_TRP_F_NOT_READY) add("%s", " NOT_READY");
    if (h.flags & USIW_TRP_F_RETRANS) add("%s", " RETRANS");
    if (h.flags & USIW_TRP_F_SKIP) add("%s", " SKIP");
    if (h.flags & USIW_TRP_F_SKIPPED) add("%s", " SKIPPED");
  } else {
    if (h.flags & USIW_TRP_F_PENDING) add("%s", " PENDING");
    if (h.flags & USIW_TRP_F_STRAY) add("%s", " STRAY");
  }
  DdpSegment s;
  if (h.opcode != USIW_TRP_DATA) return text;
  if (decode_ddp(d.subspan(kTrpBytes), s) != DdpDecode::kOk) {
    add("%s", " ?");
  } else if (s.tagged) {
    add(" %s stag=%08x to=%llx len=%u%s", kRdmap[s.rdmap_opcode], s.stag, ull(s.to), s.len, s.last ? " L" : "");
  } else {
    add(" %s qn=%u msn=%u mo=%u len=%u%s", kRdmap[s.rdmap_opcode], s.qn, s.msn, s.mo,
        s.len, s.last ? " L" : "");
  }
  return text;
}

}  // namespace usiw::sim
