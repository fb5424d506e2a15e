// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file short_messages.cc
/// SENDs, WRITEs and requests of READs that are one datagram, on their usual way: from the slot to the port and from
/// the port to the memory, each in one piece. It does what the general way does (rdmap_tx.cc, trp_tx.cc; rdmap_rx.cc)
/// with a third of its instructions. Messages of several datagrams, of other kinds, in less usual states or from and to
/// memory that is registered on demand take the general way, and so does whatever has to be judged: here nothing fails.
#include <algorithm>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

/// Segments that are the last of their message.
constexpr uint16_t kSendEnd = segment_kind(USIW_DDP_F_LAST, USIW_RDMAP_SEND);
constexpr uint16_t kSolicitedEnd = segment_kind(USIW_DDP_F_LAST, USIW_RDMAP_SEND_SE);
constexpr uint16_t kReadEnd = segment_kind(USIW_DDP_F_LAST, USIW_RDMAP_READ_REQ);
constexpr uint16_t kWriteEnd = segment_kind(USIW_DDP_F_TAGGED | USIW_DDP_F_LAST, USIW_RDMAP_WRITE);

/// A SEND, a WRITE, and of a READ the request.
constexpr uint8_t kSend = static_cast<uint8_t>(WrOpcode::kSend), kWrite = static_cast<uint8_t>(WrOpcode::kRdmaWrite),
                  kRead = static_cast<uint8_t>(WrOpcode::kRdmaRead);
constexpr bool has_short_way(uint8_t opcode) { return opcode == kSend || opcode == kWrite || opcode == kRead; }

/// Writes the header of a segment that is all of its message but for the payload; returns its length.
size_t encode_send(std::byte* p, uint16_t kind, uint32_t qn, uint32_t msn) {
  std::memcpy(p, &kind, sizeof kind);
  store_be32(p + offsetof(usiw_ddp_untagged, inv_stag), 0);
  store_be32(p + offsetof(usiw_ddp_untagged, qn), qn);
  store_be32(p + offsetof(usiw_ddp_untagged, msn), msn);
  store_be32(p + offsetof(usiw_ddp_untagged, mo), 0);
  return kUntaggedBytes;
}
size_t encode_write(std::byte* p, uint32_t stag, uint64_t to) {
  std::memcpy(p, &kWriteEnd, sizeof kWriteEnd);
  store_be32(p + offsetof(usiw_ddp_tagged, stag), stag);
  store_be64(p + offsetof(usiw_ddp_tagged, to), to);
  return kTaggedBytes;
}

}  // namespace

/// Sends from the oldest work request that has not been taken, up to @p most and as far as windows allow, until there
/// is one for the general way. Returns how many; @p dry: there is nothing more to send. The QP is connected, nothing is
/// lost, no message has begun, no response is to be sent, and receivers are ready.
unsigned Engine::Impl::send_short(QpContext& qp, unsigned most, bool& dry) {
  if (!qp.life.is(Phase::kOpen) || qp.force_send) return 0;
  const SendWqe* wqe = qp.sq.shown();
  if (wqe == nullptr || !has_short_way(read_once(wqe->opcode))) return 0;
  const uint32_t in_flight = qp.snd.in_flight(), window = qp.cc.window();
  if (in_flight >= window) return 0;
  const uint32_t room = std::min(window - in_flight, qp.snd.room());
  most = std::min(most, room);
  PortState& port = ports_[qp.port];
  const bool empty = qp.snd.empty();
  const uint32_t ack_psn = qp.rcv.nxt();
  const uint16_t credit = qp.rcv.credit(), echo = stamp(), told = qp.marks.flags();
  unsigned n = 0;
  for (; n != most && wqe != nullptr; ++n, wqe = qp.sq.shown()) {
    const uint8_t flags = read_once(wqe->flags), opcode = read_once(wqe->opcode);
    const uint32_t count = read_once(wqe->count);
    if (!has_short_way(opcode) || (flags & kWrFence) != 0) break;
    const bool reads = opcode == kRead;
    const uint32_t full = reads ? uint32_t{USIW_MAX_MSG_SIZE} : opcode == kWrite ? qp.seg_tagged : qp.seg_untagged;
    const std::byte* from;
    uint32_t length;
    if ((flags & kWrInline) != 0) {
      length = count;
      if (reads || length > std::min(full, qp.max_inline_)) break;
      from = wqe->inline_data();
    } else {
      Sge sge;
      if (count != 1 || (reads && !qp.sq.may_read())) break;
      snapshot(&sge, wqe->sges());
      length = sge.length;
      if (length - 1 >= full) break;
      const uint32_t access = reads ? uint32_t{kAccessLocalWrite} : 0;
      MrFault why;
      from = mrs_.resolve(sge.lkey, qp.attr.pd, access, sge.addr, length, why).direct();
      if (from == nullptr) break;
    }
    TxBuf* const buf = tx_buffer(port);
    if (buf == nullptr || qp.snd.lost() != 0) break;
    std::byte* const out = buf->data;

    const uint32_t psn = qp.snd.nxt(), owner = qp.sq.next();
    const SqWork& w = qp.sq.sent_whole({.remote_addr = read_once(wqe->remote_addr),
                                        .rkey = read_once(wqe->rkey),
                                        .length = length,
                                        .end_psn = psn + 1,
                                        .msn = 0,
                                        .stage = SqWork::kWait,
                                        .opcode = static_cast<WrOpcode>(opcode),
                                        .flags = flags,
                                        .num_sge = static_cast<uint8_t>(count),
                                        .error = WcStatus::kSuccess});
    // The last one for now asks for an answer: only that lets more go.
    encode_trp(out, {.psn = psn,
                     .ack_psn = ack_psn,
                     .flags = static_cast<uint16_t>(n + 1 == room ? told | USIW_TRP_F_ACK_REQ : told),
                     .opcode = USIW_TRP_DATA,
                     .credit = credit,
                     .echo = echo});
    std::byte* at = out + kTrpBytes;
    if (opcode == kSend) {
      const uint16_t kind = (flags & kWrSolicited) != 0 ? kSolicitedEnd : kSendEnd;
      at += encode_send(at, kind, USIW_DDP_QN_SEND, w.msn);
    } else if (!reads) {
      at += encode_write(at, w.rkey, w.remote_addr);
    } else {
      at += encode_send(at, kReadEnd, USIW_DDP_QN_READ_REQ, w.msn);
      encode_read_request(at, {.sink_stag = w.msn,
                               .sink_to = 0,
                               .size = length,
                               .src_stag = w.rkey,
                               .src_to = w.remote_addr});
      at += kReadReqBytes;
      length = 0;
      touch_timer(qp, keepalive_at(qp));
    }
    if (!refer(port, *buf, from, length)) std::memcpy(at, from, length);
    tx_commit(port, qp, static_cast<size_t>(at - out) + length, true, psn);
    qp.snd.sent({.sent_ns = now_,
                 .owner = owner,
                 .offset = 0,
                 .len = static_cast<uint16_t>(length),
                 .kind = PktKind::kSend,
                 .tx_count = 0,
                 .timed_out = false,
                 .asks = 0},
                now_);
  }
  if (n == 0) return 0;
  dry = wqe == nullptr && qp.snd.lost() == 0;
  if (empty) {  // else it counts from an earlier one
    qp.timeout.start(now_);
    touch_timer(qp, qp.timeout.at(qp.rtt));
  }
  qp.responder_turn = true;
  qp.replies.sent(now_);
  qp.ack.tell(ack_psn);
  acknowledged_by_data(qp);
  return n;
}

/// Accepts a segment in its turn that is a whole SEND, or the end of a WRITE, while nothing is missing. false: it is
/// something else, and nothing has been done.
bool Engine::Impl::receive_short(QpContext& qp, std::span<const std::byte> segment) {
  if (!qp.life.is(Phase::kOpen) || qp.rcv.has_gap() || !qp.rq.ready() || !place_short(qp, segment)) return false;
  qp.rcv.saw((std::to_integer<unsigned>(segment[0]) & USIW_DDP_F_TAGGED) != 0);
  qp.rcv.accept();
  return true;
}

/// Places a segment whose turn it is and that is a whole SEND, and completes that, or the end of a WRITE. false: it is
/// something else, and nothing has been done.
bool Engine::Impl::place_short(QpContext& qp, std::span<const std::byte> segment) {
  if (segment.size() <= kUntaggedBytes) return false;
  const std::byte* p = segment.data();
  uint16_t kind;
  std::memcpy(&kind, p, sizeof kind);
  MrFault why;
  if (kind == kWriteEnd) {
    const auto len = static_cast<uint32_t>(segment.size() - kTaggedBytes);
    std::byte* to = mrs_.resolve_remote(load_be32(p + offsetof(usiw_ddp_tagged, stag)), qp.peer(), kAccessRemoteWrite,
                                        load_be64(p + offsetof(usiw_ddp_tagged, to)), len, why).direct();
    return to != nullptr && UserMemory::mapped(to).write_end(p + kTaggedBytes, len);
  }
  if (kind != kSendEnd && kind != kSolicitedEnd) return false;
  if (load_be32(p + offsetof(usiw_ddp_untagged, qn)) != USIW_DDP_QN_SEND ||
      load_be32(p + offsetof(usiw_ddp_untagged, msn)) != qp.rq.msn() ||
      load_be32(p + offsetof(usiw_ddp_untagged, mo)) != 0)
    return false;
  RecvWqe* wqe = qp.rq.fresh();
  if (wqe == nullptr || read_once(wqe->num_sge) != 1) return false;
  Sge sge;
  snapshot(&sge, wqe->sges());
  const auto len = static_cast<uint32_t>(segment.size() - kUntaggedBytes);
  if (len > sge.length) return false;
  std::byte* to = mrs_.resolve(sge.lkey, qp.rq.pd(), kAccessLocalWrite, sge.addr, len, why).direct();
  if (to == nullptr) return false;
  std::memcpy(to, p + kUntaggedBytes, len);
  const Cqe cqe{.wr_id = read_once(wqe->wr_id),
                .byte_len = len,
                .qpn = qp.qpn_,
                .imm = 0,
                .status = WcStatus::kSuccess,
                .opcode = WcOpcode::kRecv,
                .vendor_err = 0,
                .flags = 0};
  qp.rq.pop(*wqe);
  push(qp, qp.attr.recv_cq, cqe, *qp.receives, kind == kSolicitedEnd);
  return true;
}

}  // namespace usiw
