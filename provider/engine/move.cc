// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file move.cc
/// By which port a connection goes, when that is asked, and what a move means.
///
/// A datagram is the same by either port, and a PSN says what it is: so what was sent by one port may be
/// acknowledged, and sent again, by the other, and nothing that was outstanding is cut again. Of the new way
/// nothing is known: round trip time and congestion window start as for a new connection. What is still on the
/// old way gets as long to arrive as the old time-out was before it is taken for lost: else a move to a faster way
/// would have a window sent again.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

/// Segments for IP packets of @p mtu bytes. Payload in multiples of 8 bytes, so that every segment starts aligned in
/// memory.
void Engine::Impl::cut_by(QpContext& qp, uint32_t mtu) {
  uint32_t payload = std::clamp<uint32_t>(mtu, USIW_MIN_MTU, qp.conn.mtu) - outer_bytes(qp.path);
  payload = std::min(payload, ports_[qp.port].port->max_payload());
  if (qp.other_port >= 0) payload = std::min(payload, ports_[qp.other_port].port->max_payload());
  qp.path_mtu = mtu;
  qp.seg_tagged = static_cast<uint16_t>((payload - kTrpBytes - kTaggedBytes) & ~7u);
  qp.seg_untagged = static_cast<uint16_t>((payload - kTrpBytes - kUntaggedBytes) & ~7u);
}

int Engine::Impl::qp_also(QpContext& qp, int port) {
  if (!qp.connected() || port == qp.port || port < 0 || static_cast<size_t>(port) >= ports_.size()) return EINVAL;
  const uint32_t most = std::min(qp.conn.mtu - outer_bytes(qp.path), ports_[qp.port].port->max_payload());
  if (ports_[port].port->max_payload() < most) return EINVAL;
  qp.other_port = qp.hears_also = port;
  cut_by(qp, qp.path_mtu);
  return 0;
}

/// What the ports are told by the path, besides the way itself, follows what has been heard of the peer.
void Engine::Impl::refresh_path(QpContext& qp) {
  qp.path.ect = qp.marks.asks();
  const bool taken = qp.merged || (qp.conn.merges && qp.marks.peer_merges());
  qp.path.merge = taken && qp.merge_trust.holds(qp.snd.nxt());
  // A peer that takes no such frames any more knows one that comes late by its length.
  qp.path.merge_above = qp.merged ? 0 : qp.conn.handshake_mtu;
}

void Engine::Impl::qp_path(QpContext& qp, const Path& path, uint32_t mtu) {
  if (!qp.in_flows || !(path.flow == qp.path.flow)) return;
  const uint64_t counted = qp.path.counted;  // by this port, and in this copy only
  qp.path = path;
  qp.path.counted = counted;
  refresh_path(qp);
  cut_by(qp, mtu);
}

void Engine::Impl::qp_move(QpContext& qp, const EngineEvents::PortAnswer& to) {
  if (qp.port < 0) return;
  now_ = clock_.now_ns();
  qp.review_at = to.review_at;
  if (qp.connected()) touch_timer(qp, deadline_of(qp));
  const bool news = qp.marks.merge(to.merging);
  if (news && qp.connected()) ack_at_once(qp);
  const bool moves = to.port == qp.other_port && to.port >= 0;
  if (moves) qp.other_port = std::exchange(qp.port, to.port);
  qp.hears_also = to.alone ? -1 : qp.other_port;
  if (!moves) return;
  note(TraceKind::kMove, qp, static_cast<uint64_t>(qp.port), static_cast<uint64_t>(qp.other_port), qp.watch.asks());
  if (!qp.connected()) return;  // it only answers repetitions, by the new port from now on
  qp.share_psn = qp.rcv.max() - kShareEvery;  // the port may hold less than the one before
  qp.losses.expect_late(qp.rtt.rto(0));
  qp.rtt = {};
  qp.cc = {};
  qp.cc.start(qp.snd.nxt());
  qp.cwnd_limited = false;
  qp.timeout.prolong(now_);
  ack_at_once(qp);  // the one before may have gone the way that nothing gets through
  activate(qp);
  touch_timer(qp, deadline_of(qp));
}

uint32_t Engine::Impl::longest(QpContext& qp) const {
  if (!qp.connected()) return 0;
  uint32_t most = 0;
  for (uint32_t psn = qp.snd.una(); psn != qp.snd.nxt(); ++psn) {
    if (qp.snd.has_arrived(psn)) continue;
    const TxPkt& pkt = qp.snd.pkt(psn);
    const bool tagged = pkt.kind == PktKind::kReadResponse ||
                        (pkt.kind == PktKind::kSend && is_tagged(qp.sq.work(pkt.owner).opcode));
    most = std::max<uint32_t>(most, (tagged ? kTaggedBytes : kUntaggedBytes) + pkt.len);
  }
  return most == 0 ? 0 : most + outer_bytes(qp.path) + static_cast<uint32_t>(kTrpBytes);
}

EngineEvents::PortAsked Engine::Impl::ways(QpContext& qp, uint64_t now) const {
  return {.silent = false, .longest = longest(qp), .now = now, .long_messages = qp.longs.now(now)};
}

/// So many segments have others of their message behind them that it is time to look whether most have. What still
/// waits for room in a port would be overtaken by what goes out by the other one.
void Engine::Impl::look_for_long(QpContext& qp) {
  if (port_full_) return;
  refresh_path(qp);
  if (qp.longs.look(qp.snd.nxt() + qp.rcv.nxt(), now_) && qp.conn.merges && !qp.marks.merges()) ask_port(qp, false);
}

/// A datagram has come by a port from which the connection takes nothing. The other one has it, too, unless nothing
/// gets through there. Or several datagrams have come as one, merged by a peer that has not yet heard that this end
/// takes them so no more.
bool Engine::Impl::drop_unheard(QpContext& qp, int port, const RxBuf& buf) {
  if (port != qp.port && port != qp.other_port) return drop_unmatched(buf, USIW_CNT_DROP_NO_CONN);
  if (buf.len > qp.longest) return drop_unmatched(buf, USIW_CNT_DROP_MALFORMED);
  if (qp.connected() && silent_since(qp, qp.heard_ns)) ask_port(qp, true);
  return drop_unmatched(buf, USIW_CNT_MAX);
}

/// Nothing has got through since @p since, and it is time for the other port, if there is one.
bool Engine::Impl::silent_since(QpContext& qp, uint64_t since) {
  return qp.other_port >= 0 && qp.watch.silent(since, now_);
}

void Engine::Impl::ask_port(QpContext& qp, bool silent) {
  qp.review_at = kNever;
  if (qp.other_port < 0 && !qp.conn.merges) return;
  if (silent) qp.watch.asked(now_);
  EngineEvents::PortAsked asked = ways(qp, now_);
  asked.silent = silent;
  qp_move(qp, events_.qp_which_port(qp, asked));
}

/// The port holds so much of what comes, divided by the connections that receive by it. One that receives little is not
/// asked for, and takes no part.
void Engine::Impl::ask_share(QpContext& qp) {
  qp.share_psn = qp.rcv.max();
  qp.rcv.limit(ports_[qp.port].port->share(qp.path, qp.path_mtu, now_));
}

/// The peer repeats what it has an acknowledgement of, or asks again because it hears nothing.
void Engine::Impl::peer_repeats(QpContext& qp) {
  missed_answer(qp);
  if (!qp.watch.repeated(qp.rcv.nxt(), now_) || !silent_since(qp, qp.watch.repeats_since())) return;
  qp.watch.repeats_told();
  ask_port(qp, true);
}

}  // namespace usiw
