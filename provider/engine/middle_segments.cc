// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file middle_segments.cc
/// The middle of long messages on its usual way: one loop over the full segments of a SEND, a WRITE or the response to
/// a READ, whose memory is looked up once and whose headers differ in two numbers; and each of them from the datagram to
/// its memory in one piece. The general way (rdmap_tx.cc, trp_tx.cc; rdmap_rx.cc) does the same for the first and the
/// last segment, for memory in several pieces or registered on demand, and whatever has to be judged: here nothing
/// fails.
#include <algorithm>
#include <array>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

/// Segments that are not the last of their message.
constexpr uint16_t kSendMiddle = segment_kind(0, USIW_RDMAP_SEND);
constexpr uint16_t kSolicitedMiddle = segment_kind(0, USIW_RDMAP_SEND_SE);
constexpr uint16_t kWriteMiddle = segment_kind(USIW_DDP_F_TAGGED, USIW_RDMAP_WRITE);
constexpr uint16_t kReadMiddle = segment_kind(USIW_DDP_F_TAGGED, USIW_RDMAP_READ_RESP);

}  // namespace

/// Full segments that come one after the other in a message.
struct Engine::Impl::Middle {
  const std::byte* from;  ///< the bytes of the first
  uint32_t count;
  uint16_t full;          ///< bytes of each
  TxPkt first;            ///< as it is remembered
  DdpSegment header;      ///< of the first
};

/// Sends what comes next of a message that has begun, or of a response: full segments, @p most at most and as far as
/// windows allow, but neither the last of the message nor the last that windows allow. Returns how many. The QP is
/// connected, nothing is lost, and receivers are ready.
unsigned Engine::Impl::send_middle(QpContext& qp, unsigned most) {
  if (qp.responder.left() <= qp.seg_tagged && !qp.sq.started()) return 0;
  if (!qp.life.is(Phase::kOpen) || qp.force_send) return 0;
  const uint32_t in_flight = qp.snd.in_flight(), window = qp.cc.window();
  if (in_flight >= window) return 0;
  const uint32_t room = std::min(window - in_flight, qp.snd.room());
  if (room <= 1) return 0;
  Middle middle;
  most = std::min(most, room - 1);
  const bool found = qp.responder.idle() ? middle_of_work(qp, most, middle) : middle_of_response(qp, most, middle);
  return found ? send_middle(qp, middle) : 0;
}

/// What comes next of the work request that has begun. false: nothing that could be sent here.
bool Engine::Impl::middle_of_work(QpContext& qp, uint32_t most, Middle& middle) const {
  if (!qp.sq.started() || qp.sq.failed()) return false;
  const uint32_t owner = qp.sq.next(), offset = qp.sq.offset();
  const SqWork& w = qp.sq.work(owner);
  const Operation& op = operation(w.opcode);
  const uint32_t full = op.tagged ? qp.seg_tagged : qp.seg_untagged, left = w.length - offset;
  if (op.answered || w.num_sge != 1 || (w.flags & kWrInline) != 0 || left <= full) return false;
  if (op.tagged && misaligned(w, offset) != 0) return false;  // the first segment aligns all others
  Sge sge;
  snapshot(&sge, qp.sq.wqe(owner).sges());
  if (sge.length != w.length) return false;
  const uint32_t count = std::min(most, (left - 1) / full);
  MrFault why;
  const std::byte* from = mrs_.resolve(sge.lkey, qp.attr.pd, 0, sge.addr + offset, count * full, why).direct();
  if (from == nullptr) return false;
  middle = {from, count, static_cast<uint16_t>(full), {}, work_header(qp, owner, offset)};
  middle.first.kind = PktKind::kSend;
  middle.first.owner = owner;
  middle.first.offset = offset;
  return true;
}

/// What comes next of the response that is to be sent, while the send queue has nothing that would take turns with it.
bool Engine::Impl::middle_of_response(QpContext& qp, uint32_t most, Middle& middle) const {
  if (qp.sq.started() || qp.sq.posted() != nullptr) return false;
  const uint32_t full = qp.seg_tagged;
  TxPkt first{};
  if (!qp.responder.next(full, first)) return false;
  const Job& job = qp.responder.at(first.owner);
  const ReadRequest& r = job.request;
  const uint32_t left = r.size - first.offset;
  if (left <= full) return false;
  const uint32_t count = std::min(most, (left - 1) / full);
  MrFault why;
  const std::byte* from = mrs_.resolve_remote(r.src_stag, qp.granted(), kAccessRemoteRead, r.src_to + first.offset,
                                              count * full, why).direct();
  if (from == nullptr) return false;
  middle = {from, count, static_cast<uint16_t>(full), first, response_header(r, first)};
  return true;
}

unsigned Engine::Impl::send_middle(QpContext& qp, const Middle& middle) {
  PortState& port = ports_[qp.port];
  const uint32_t full = middle.full, rcv_nxt = qp.rcv.nxt();
  const bool empty = qp.snd.empty();
  // An acknowledgement that is owed waits for the end of the message (acknowledges_later()).
  const bool tells = !acks_.owes(qp) || qp.ack.is_due(now_);
  std::array<std::byte, kTrpBytes + kUntaggedBytes> headers;
  encode_trp(headers.data(), {.psn = 0,
                              .ack_psn = tells ? rcv_nxt : qp.ack.told(rcv_nxt),
                              .flags = qp.marks.flags(),
                              .opcode = USIW_TRP_DATA,
                              .credit = qp.rcv.credit(),
                              .echo = stamp()});
  const size_t header_bytes = kTrpBytes + encode_ddp(headers.data() + kTrpBytes, middle.header);
  TxPkt pkt = middle.first;
  pkt.len = static_cast<uint16_t>(full);
  const std::byte* from = middle.from;
  unsigned n = 0;
  for (; n != middle.count; ++n, from += full, pkt.offset += full) {
    TxBuf* const buf = tx_buffer(port);
    if (buf == nullptr || qp.snd.lost() != 0) break;
    std::byte* const out = buf->data;
    const uint32_t psn = qp.snd.nxt();
    std::memcpy(out, headers.data(), headers.size());  // of a tagged segment the first bytes of its payload, too
    store_be32(out + offsetof(usiw_trp_hdr, psn), psn);
    if (middle.header.tagged)
      store_be64(out + kTrpBytes + offsetof(usiw_ddp_tagged, to), middle.header.to + n * full);
    else
      store_be32(out + kTrpBytes + offsetof(usiw_ddp_untagged, mo), pkt.offset);
    if (!refer(port, *buf, from, full)) std::memcpy(out + header_bytes, from, full);
    tx_commit(port, qp, header_bytes + full, true, psn);
    qp.snd.sent(pkt, now_);
  }
  if (n == 0) return 0;
  if (empty) {  // else it counts from an earlier one
    qp.timeout.start(now_);
    touch_timer(qp, qp.timeout.at(qp.rtt));
  }
  if (tells) {
    qp.ack.tell(rcv_nxt);
    acknowledged_by_data(qp);
  } else if (qp.replies.outstanding()) {
    acks_.put_off(qp, qp.replies.complete_by(qp.rtt));
  }
  qp.replies.sent(now_);
  qp.longs.more(n);
  qp.responder_turn = pkt.kind == PktKind::kSend;
  if (qp.responder_turn)
    qp.sq.sent(n * full, qp.snd.nxt());
  else
    qp.responder.sent(n * full, qp.snd.nxt());
  return n;
}

/// Accepts a segment in its turn, of more than kUntaggedBytes, that is not the last of its SEND, WRITE or response to a
/// READ, while nothing is missing. false: it is something else, and nothing has been done.
bool Engine::Impl::receive_middle(QpContext& qp, std::span<const std::byte> segment) {
  if (!qp.life.is(Phase::kOpen) || qp.rcv.has_gap() || !qp.rq.ready()) return false;
  const std::byte* p = segment.data();
  uint16_t kind;
  std::memcpy(&kind, p, sizeof kind);
  bool placed;
  switch (kind) {
    case kWriteMiddle:
      placed = place_write_middle(qp, segment);
      break;
    case kReadMiddle:
      placed = place_read_middle(qp, segment);
      break;
    case kSendMiddle:
    case kSolicitedMiddle:
      placed = place_send_middle(qp, segment);
      break;
    default:
      placed = false;
  }
  if (!placed) return false;
  qp.rcv.saw(false);
  qp.rcv.accept();
  qp.longs.more(1);
  return true;
}

bool Engine::Impl::place_write_middle(QpContext& qp, std::span<const std::byte> segment) const {
  const std::byte* p = segment.data();
  const auto len = static_cast<uint32_t>(segment.size() - kTaggedBytes);
  MrFault why;
  std::byte* at = mrs_.resolve_remote(load_be32(p + offsetof(usiw_ddp_tagged, stag)), qp.peer(), kAccessRemoteWrite,
                                      load_be64(p + offsetof(usiw_ddp_tagged, to)), len, why).direct();
  if (at == nullptr) return false;
  std::memcpy(at, p + kTaggedBytes, len);
  return true;
}

bool Engine::Impl::place_read_middle(QpContext& qp, std::span<const std::byte> segment) const {
  const std::byte* p = segment.data();
  ReadOp* const op = qp.sq.read(load_be32(p + offsetof(usiw_ddp_tagged, stag)));
  if (op == nullptr) return false;
  const SqWork& w = qp.sq.work(op->sq_index);
  const uint64_t to = load_be64(p + offsetof(usiw_ddp_tagged, to));
  const auto len = static_cast<uint32_t>(segment.size() - kTaggedBytes);
  if (w.opcode != WrOpcode::kRdmaRead || w.num_sge != 1 || op->placed + len > w.length) return false;
  std::byte* at = sink(qp.sq.wqe(op->sq_index).sges(), w.length, qp.attr.pd, to, len);
  if (at == nullptr) return false;
  std::memcpy(at, p + kTaggedBytes, len);
  op->placed += len;
  return true;
}

bool Engine::Impl::place_send_middle(QpContext& qp, std::span<const std::byte> segment) const {
  const std::byte* p = segment.data();
  const auto len = static_cast<uint32_t>(segment.size() - kUntaggedBytes);
  RqWork* const work = qp.rq.begun(load_be32(p + offsetof(usiw_ddp_untagged, msn)));
  if (work == nullptr || work->num_sge != 1 || load_be32(p + offsetof(usiw_ddp_untagged, qn)) != USIW_DDP_QN_SEND)
    return false;
  const uint32_t mo = load_be32(p + offsetof(usiw_ddp_untagged, mo));
  std::byte* at = sink(work->wqe->sges(), work->capacity, qp.rq.pd(), mo, len);
  if (at == nullptr) return false;
  std::memcpy(at, p + kUntaggedBytes, len);
  work->received += len;
  return true;
}

/// Where @p len bytes at @p offset of a message go that has one SGE and room for @p all; nullptr: they do not fit, or it
/// takes more than a copy.
std::byte* Engine::Impl::sink(const Sge* only, uint64_t all, uint32_t pd, uint64_t offset, uint32_t len) const {
  Sge sge;
  snapshot(&sge, only);
  all = std::min<uint64_t>(all, sge.length);
  if (offset > all || len > all - offset) return nullptr;
  MrFault why;
  return mrs_.resolve(sge.lkey, pd, kAccessLocalWrite, sge.addr + offset, len, why).direct();
}

}  // namespace usiw
