// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file read_responder.cc
/// Serving the peer's READs and atomics: up to IRD at a time, in order, each from its request until
/// its response is acknowledged.
#include <algorithm>
#include <atomic>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

/// The peer is asked this often before the Terminate. More questions would make the loss of all answers rarer, and
/// would delay the Terminate by one more time-out each.
constexpr unsigned kAsksBeforeTerminate = 3;

TermCode source_fault(MrFault why) {
  switch (why) {
    case MrFault::kPd: return term::kRdmapStagNotAssociated;
    case MrFault::kAccess: return term::kRdmapAccess;
    case MrFault::kBounds: return term::kRdmapBounds;
    case MrFault::kWrap: return term::kRdmapToWrap;
    case MrFault::kStag:
    case MrFault::kNone: break;
  }
  return term::kRdmapInvalidStag;
}

/// Does it to a word that the program's own processors may be at work on; returns what was there before.
uint64_t do_atomic(uint64_t* word, const AtomicRequest& r) {
  std::atomic_ref<uint64_t> there(*word);
  if (r.opcode == USIW_ATOMIC_FETCH_ADD) return there.fetch_add(r.add_swap);
  uint64_t found = r.compare;
  there.compare_exchange_strong(found, r.add_swap);
  return found;
}

/// Verbs have no masks: all of the word is compared and swapped, and a sum carries through all of it.
bool is_offered(const AtomicRequest& r) {
  if (r.opcode == USIW_ATOMIC_FETCH_ADD) return r.add_swap_mask == 0;
  return r.opcode == USIW_ATOMIC_CMP_SWAP && r.add_swap_mask == ~uint64_t{0} && r.compare_mask == ~uint64_t{0};
}

}  // namespace

/// Ends the jobs whose responses have arrived behind something that has not. The peer, which takes them all the same,
/// counts them as done.
void Engine::Impl::end_arrived_jobs(QpContext& qp) {
  while (qp.responder.oldest_is_sent()) {
    const uint32_t job = qp.responder.oldest(), end = qp.responder.at(job).end_psn;
    for (uint32_t psn = qp.snd.una(); psn_lt(psn, end); ++psn) {
      const TxPkt& pkt = qp.snd.pkt(psn);
      if (pkt.kind == PktKind::kReadResponse && pkt.owner == job && !qp.snd.has_arrived(psn)) return;
    }
    qp.responder.oldest_has_arrived();
  }
}

/// Whether a request of queue 1 with @p bytes of payload, which is in order, may be accepted: kAccept; kFault; kDrop:
/// not now.
Verdict Engine::Impl::judge_request(QpContext& qp, const DdpSegment& seg, size_t bytes) {
  if (seg.msn != qp.responder.msn()) return fault(term::kDdpMsnRange);
  if (seg.mo != 0 || !seg.last) return fault(term::kDdpInvalidMo);
  if (seg.len != bytes) return fault(seg.len > bytes ? term::kDdpTooLong : term::kRdmapStream);
  if (!qp.responder.full()) [[likely]] return Verdict::kAccept;
  end_arrived_jobs(qp);
  if (!qp.responder.full()) return Verdict::kAccept;
  // The peer may have all of the oldest response, and what says so may be lost. The request comes again.
  if (qp.responder.oldest_is_sent()) return Verdict::kDrop;
  return fault(term::kDdpNoBuffer, AsyncEvent::kQpReqErr);
}

/// In its turn, and so once: the reliability of TRP lets no request pass a second time.
Verdict Engine::Impl::accept_atomic_request(QpContext& qp, const DdpSegment& seg) {
  if (const Verdict v = judge_request(qp, seg, kAtomicReqBytes); v != Verdict::kAccept) return v;
  const AtomicRequest request = decode_atomic_request(seg.payload);
  if (!is_offered(request)) return fault(term::kRdmapOpcode, AsyncEvent::kQpReqErr);
  MrFault why;
  const UserMemory at =
      mrs_.resolve_remote(request.stag, qp.peer(), kAccessRemoteAtomic, request.to, kAtomicBytes, why);
  if (!at) return fault(source_fault(why), AsyncEvent::kQpAccessErr);
  // Where a region has an address of its own for peers, both matter: one to them, one to the processor.
  if ((request.to | reinterpret_cast<uintptr_t>(at.address())) % kAtomicBytes != 0)
    return fault(term::kRdmapStream, AsyncEvent::kQpReqErr);
  uint64_t* word = at.word();
  if (word == nullptr) return fault(source_fault(MrFault::kBounds), AsyncEvent::kQpAccessErr);
  qp.responder.accept_atomic(request.id, do_atomic(word, request));
  activate(qp);
  return Verdict::kAccept;
}

Verdict Engine::Impl::accept_read_request(QpContext& qp, const DdpSegment& seg) {
  if (const Verdict v = judge_request(qp, seg, kReadReqBytes); v != Verdict::kAccept) return v;
  const ReadRequest request = decode_read_request(seg.payload);
  MrFault why;
  if (request.size > USIW_MAX_MSG_SIZE) return fault(term::kRdmapBounds, AsyncEvent::kQpAccessErr);
  if (request.size != 0 &&
      !mrs_.resolve_remote(request.src_stag, qp.peer(), kAccessRemoteRead, request.src_to, request.size, why))
    return fault(source_fault(why), AsyncEvent::kQpAccessErr);
  qp.responder.accept(request);
  activate(qp);
  return Verdict::kAccept;
}

/// The header of a segment of a response to a READ.
DdpSegment Engine::Impl::response_header(const ReadRequest& request, const TxPkt& pkt) {
  DdpSegment seg{};
  seg.tagged = true;
  seg.last = pkt.offset + pkt.len == request.size;
  seg.rdmap_opcode = USIW_RDMAP_READ_RESP;
  seg.stag = request.sink_stag;
  seg.to = request.sink_to + pkt.offset;
  return seg;
}

/// DDP header and payload, as build_work_segment(); returns their length, 0 for nothing to send now. When the source
/// is not accessible any more, @p pkt becomes the Terminate: @p psn, which the peer waits for, carries it. So do all
/// others that cannot be sent (again). The peer heeds the first in order, so it is that one's READ that is named.
size_t Engine::Impl::build_response_segment(QpContext& qp, uint32_t psn, TxPkt& pkt, TxBuf& buf) {
  std::byte* const out = buf.data + kTrpBytes;
  const Job& job = qp.responder.at(pkt.owner);
  const ReadRequest& r = job.request;
  if (job.atomic) {
    DdpSegment seg{};
    seg.last = true;
    seg.rdmap_opcode = USIW_RDMAP_ATOMIC_RESP;
    seg.qn = USIW_DDP_QN_ATOMIC_RESP;
    seg.msn = job.response_msn;
    encode_atomic_response(out + kUntaggedBytes, r.sink_stag, job.value);
    return encode_ddp(out, seg) + kAtomicRespBytes;
  }
  const size_t n = encode_ddp(out, response_header(r, pkt));
  if (pkt.len == 0) return n;
  MrFault why;
  const UserMemory from =
      mrs_.resolve_remote(r.src_stag, qp.granted(), kAccessRemoteRead, r.src_to + pkt.offset, pkt.len, why);
  if (refer(ports_[qp.port], buf, from.direct(), pkt.len)) return n + pkt.len;
  if (!from || !from.read(out + n, pkt.len)) {
    if (from) why = MrFault::kBounds;  // nothing is mapped there
    // A datagram that is sent again may have arrived: it was late, the peer was asleep, or the SACK that reports it was
    // lost or overtaken. Then the READ is complete, and the program may have deregistered its source because the peer
    // said so in a message. The peer is asked what it has.
    if (pkt.tx_count != 0 && pkt.asks < kAsksBeforeTerminate) {
      ++pkt.asks;
      send_sack(qp, USIW_TRP_F_ACK_REQ);
      return 0;
    }
    if (!qp.life.terminated_before(psn)) terminate_read_job(qp, job, source_fault(why));
    qp.responder.cut();
    pkt.kind = PktKind::kTerminate;
    return build_terminate(qp, out);
  }
  return n + pkt.len;
}

}  // namespace usiw
