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
  qp.other_port = port;
  cut_by(qp, qp.path_mtu);
  return 0;
}

void Engine::Impl::qp_path(QpContext& qp, const Path& path, uint32_t mtu) {
  if (!qp.in_flows || !(path.flow == qp.path.flow)) return;
  qp.path = path;
  qp.path.ect = qp.marks.asks();
  cut_by(qp, mtu);
}

void Engine::Impl::qp_move(QpContext& qp, int port, uint64_t review_at) {
  if (qp.port < 0) return;
  now_ = clock_.now_ns();
  qp.review_at = review_at;
  if (qp.connected()) touch_timer(qp, deadline_of(qp));
  if (port != qp.other_port || port < 0) return;
  qp.other_port = std::exchange(qp.port, port);
  note(TraceKind::kMove, qp, static_cast<uint64_t>(qp.port), static_cast<uint64_t>(qp.other_port), qp.watch.asks());
  if (!qp.connected()) return;  // it only answers repetitions, by the new port from now on
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

/// Nothing has got through since @p since, and it is time for the other port, if there is one.
bool Engine::Impl::silent_since(QpContext& qp, uint64_t since) {
  return qp.other_port >= 0 && qp.watch.silent(since, now_);
}

void Engine::Impl::ask_port(QpContext& qp, bool silent) {
  qp.review_at = kNever;
  if (qp.other_port < 0) return;
  if (silent) qp.watch.asked(now_);
  const EngineEvents::PortAnswer answer = events_.qp_which_port(qp, {silent, longest(qp), now_});
  qp_move(qp, answer.port, answer.review_at);
}

/// The peer repeats what it has an acknowledgement of.
void Engine::Impl::peer_repeats(QpContext& qp) {
  missed_answer(qp);
  if (!qp.watch.repeated(qp.rcv.nxt(), now_) || !silent_since(qp, qp.watch.repeats_since())) return;
  qp.watch.repeats_told();
  ask_port(qp, true);
}

}  // namespace usiw
