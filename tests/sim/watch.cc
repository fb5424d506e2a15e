// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "watch.h"

#include <algorithm>

#include "engine/psn.h"

namespace usiw::sim {
namespace {

uint64_t hash(std::span<const std::byte> d) {
  uint64_t h = 0xcbf29ce484222325ull ^ d.size();
  size_t i = 0;
  for (; i + 8 <= d.size(); i += 8) {
    uint64_t v;
    std::memcpy(&v, &d[i], 8);
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  }
  for (; i < d.size(); ++i) h = (h ^ std::to_integer<uint64_t>(d[i])) * 0x100000001b3ull;
  return h | 1;
}

bool is_terminate(const DdpSegment& s) { return !s.tagged && s.qn == USIW_DDP_QN_TERMINATE; }

bool is_request(const DdpSegment& s) {
  if (s.tagged) return s.rdmap_opcode == USIW_RDMAP_WRITE;
  return s.qn == USIW_DDP_QN_SEND || s.qn == USIW_DDP_QN_READ_REQ;
}

bool is_empty_write(const DdpSegment& s) {
  return s.tagged && s.rdmap_opcode == USIW_RDMAP_WRITE && !s.last && s.len == 0;
}

}  // namespace

Watch::End* Watch::find(int side, const FlowKey& flow) {
  auto it = ends_.find({side, flow});
  return it == ends_.end() ? nullptr : &it->second;
}

Watch::End* Watch::peer_of(const FlowKey& flow) {
  return find(SimWire::side_of(flow.remote_addr), SimWire::reversed(flow));
}

void Watch::open(int side, const FlowKey& flow, const ConnAttr& attr) {
  ends_.erase({side, flow});
  End& e = ends_.try_emplace({side, flow}, w_, side, attr).first->second;
  e.edge += w_.mutation == Mutation::kOverrunWindow ? 2 : std::min(attr.snd_window, kWindow);
  e.opened_ns = w_.clock.now;
}

void Watch::offered(int side, const FlowKey& flow, std::span<const std::byte> d) {
  if (w_.sc.has(kRaw)) return;  // damaged datagrams may have misled the end
  End* e = find(side, flow);
  TrpHeader h;
  if (e == nullptr || !decode_trp(d, h)) return w_.fail("wire", "%c: a datagram of no connection", 'A' + side);
  if (d.size() + 28 + (flow.is_ipv4() ? 0 : 20) > e->attr.mtu)
    e->fail("mtu", "a packet larger than the MTU of %u", e->attr.mtu);
  if (h.credit > kWindow) e->fail("window", "credit %u", h.credit);
  switch (h.opcode) {
    case USIW_TRP_DATA:
    case USIW_TRP_SHUTDOWN: check_data(*e, h, d); break;
    case USIW_TRP_SACK:
      break;
    default: return e->fail("wire", "the engine sends opcode %u", h.opcode);
  }
  check_skipped(*e, flow, h);
  check_ack(flow, *e, h, d);
}

void Watch::check_data(End& e, const TrpHeader& h, std::span<const std::byte> d) {
  DdpSegment s{};
  const bool data = h.opcode == USIW_TRP_DATA;
  if (data && decode_ddp(d.subspan(kTrpBytes), s) != DdpDecode::kOk)
    return e.fail("wire", "a segment that does not decode");
  const uint64_t content = data ? hash(d.subspan(kTrpBytes)) : 0;
  ++w_.totals[kSent];
  if ((h.flags & USIW_TRP_F_RETRANS) == 0) {
    if (h.psn != e.next) return e.fail("psn", "new PSN %08x, expected %08x", h.psn, e.next);
    if (!psn_lt(h.psn, e.edge))
      return e.fail("window", "PSN %08x beyond the peer's window, which ends at %08x", h.psn, e.edge);
    if (e.ended) e.fail("psn", "PSN %08x behind the end of the stream", h.psn);
    ++e.next;
    e.content.push_back(content);
    e.requests.push_back(data && is_request(s));
    if (data && !s.tagged && s.qn == USIW_DDP_QN_READ_REQ) {
      // A READ that the peer discarded is sent again with its old MSN.
      if (e.voids ? s.msn > e.reads + 1 : s.msn != e.reads + 1) e.fail("psn", "READ %u behind READ %u", s.msn, e.reads);
      e.reads = std::max(e.reads, s.msn);
      if (e.reads - e.reads_answered > e.attr.ord)
        e.fail("ord", "%u READs outstanding, ORD %u", e.reads - e.reads_answered, e.attr.ord);
    }
  } else {
    ++w_.totals[kRepeated];
    ++e.repeats;
    const uint32_t at = h.psn - e.attr.snd_psn;
    if (at >= e.content.size()) return e.fail("psn", "repeats PSN %08x, never sent", h.psn);
    // The contents of a PSN may change in two cases. The Terminate replaces a READ response. An empty segment replaces
    // a request that the peer discarded after a skipped message.
    if (e.content[at] != content && !(data && (is_terminate(s) || may_be_emptied(e, h.psn, s))))
      e.fail("content", "PSN %08x does not carry what it did before", h.psn);
    e.content[at] = content;
    check_repeats(e);
    if ((h.flags & USIW_TRP_F_SKIP) != 0) {
      if (!data || s.tagged || s.qn != USIW_DDP_QN_SEND || s.mo != 0)
        e.fail("skip", "PSN %08x cannot be skipped", h.psn);
      e.asked = h.psn;
      e.asks = true;
    }
  }
  if (!data || is_terminate(s)) e.ended = true;
}

bool Watch::may_be_emptied(const End& e, uint32_t psn, const DdpSegment& s) {
  return is_empty_write(s) && e.voids && psn_lt(e.first_void, psn) && e.requests[psn - e.attr.snd_psn];
}

/// When @p e acknowledges a PSN that its peer asked it to skip, the flags of the header show whether it did so.
void Watch::check_skipped(const End& e, const FlowKey& flow, const TrpHeader& h) {
  End* peer = peer_of(flow);
  if (peer == nullptr) return;
  const bool skipped = (h.flags & USIW_TRP_F_SKIPPED) != 0;
  if (peer->asks && psn_lt(peer->asked, h.ack_psn)) {
    peer->asks = false;
    if (skipped && !peer->voids) peer->first_void = peer->asked;
    peer->voids |= skipped;
  }
  if (skipped && !peer->voids) e.fail("skip", "says SKIPPED, and was not asked to skip");
}

/// Bounds the number of retransmissions. Lost datagrams, time-outs and receivers that are not ready explain
/// retransmissions; more would burden the network. The bound is generous, because delay and reordering mislead any
/// sender now and then.
void Watch::check_repeats(const End& e) {
  const uint64_t ms = (w_.clock.now - e.opened_ns) / 1'000'000;
  const bool clean = w_.sc.clean() && !w_.sc.has(kSlowLine);
  const uint64_t bound = (clean ? 16 : 64) + 3 * e.lost + 2 * e.acks_lost + 3 * e.not_ready +
                         (clean ? 0 : 2 * e.content.size()) + ms;
  if (e.repeats > bound)
    e.fail("repeats", "%llu repetitions, %llu datagrams and %llu acknowledgements lost in %llu ms", ull(e.repeats),
           ull(e.lost), ull(e.acks_lost), ull(ms));
}

void Watch::check_ack(const FlowKey& flow, End& e, const TrpHeader& h, std::span<const std::byte> d) {
  if (psn_lt(h.ack_psn, e.acked)) return e.fail("ack", "ACK PSN goes back to %08x", h.ack_psn);
  for (; e.acked != h.ack_psn; ++e.acked) {
    const uint32_t at = e.acked - e.attr.rcv_psn;
    if (at >= e.arrived.size() || !e.arrived[at])
      return e.fail("ack", "acknowledges PSN %08x, which has not arrived", e.acked);
  }
  if (h.opcode != USIW_TRP_SACK) return;
  const auto bitmap = d.subspan(kTrpBytes);
  const uint32_t bits = h.psn - h.ack_psn;
  if (bits > kWindow || bitmap.size() != (bits + 7) / 8) return e.fail("sack", "length of a SACK");
  for (uint32_t i = 0; i < bits; ++i) {
    const bool set = (std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0;
    const uint32_t at = h.ack_psn + i - e.attr.rcv_psn;
    if (i == 0 ? set : i + 1 == bits && !set) return e.fail("sack", "form of a SACK");
    if (set && (at >= e.arrived.size() || !e.arrived[at]))
      return e.fail("sack", "SACK names PSN %08x, which has not arrived", h.ack_psn + i);
  }
  // A datagram that has arrived and is not named was refused, for want of a receive or of memory, so it may be sent
  // again.
  End* peer = peer_of(flow);
  for (uint32_t at = h.ack_psn - e.attr.rcv_psn; peer != nullptr && at < e.arrived.size(); ++at) {
    const uint32_t i = at + e.attr.rcv_psn - h.ack_psn;
    const bool set = i < bits && (std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0;
    if (!e.arrived[at] || set) continue;
    e.arrived[at] = false;
    if (e.answers[at]) --e.reads_answered;
    e.answers[at] = false;
    ++peer->lost;
  }
}

void Watch::delivered(int side, const FlowKey& flow, std::span<const std::byte> d) {
  End* e = find(side, flow);
  TrpHeader h;
  if (e == nullptr || w_.sc.has(kRaw) || !decode_trp(d, h)) return;
  const bool data = h.opcode == USIW_TRP_DATA || h.opcode == USIW_TRP_SHUTDOWN;
  if (!data && h.opcode != USIW_TRP_SACK) return;
  // Late datagrams of an earlier connection with this 4-tuple have other PSNs.
  if (psn_lt(e->next, h.ack_psn) || psn_lt(h.ack_psn, e->attr.snd_psn)) return;
  const uint32_t edge = h.ack_psn + h.credit;
  if (psn_lt(e->edge, edge) && w_.mutation != Mutation::kOverrunWindow) e->edge = edge;
  if (w_.mutation == Mutation::kOverrunWindow) ++w_.mutated;
  if ((h.flags & USIW_TRP_F_NOT_READY) != 0) ++e->not_ready;
  if (!data) return;
  const uint32_t at = h.psn - e->attr.rcv_psn;
  if (at >= 1u << 24) return;
  if (at >= e->arrived.size()) {
    e->arrived.resize(at + 64);
    e->answers.resize(at + 64);
  }
  DdpSegment s{};
  if (!e->arrived[at] && h.opcode == USIW_TRP_DATA && decode_ddp(d.subspan(kTrpBytes), s) == DdpDecode::kOk &&
      s.last && (s.tagged ? s.rdmap_opcode == USIW_RDMAP_READ_RESP : s.qn == USIW_DDP_QN_ATOMIC_RESP)) {
    ++e->reads_answered;
    e->answers[at] = true;
  }
  e->arrived[at] = true;
}

void Watch::lost(int side, const FlowKey& flow, std::span<const std::byte> d) {
  TrpHeader h;
  if (!decode_trp(d, h)) return;
  if (End* e = find(side, flow); e != nullptr && h.opcode != USIW_TRP_SACK) ++e->lost;
  if (End* e = peer_of(flow)) ++e->acks_lost;
}

}  // namespace usiw::sim
