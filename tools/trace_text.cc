// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/trace_text.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/ip.h"
#include "base/wire.h"
#include "uapi/usiw_abi.h"

namespace usiw::tools {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[256];
  va_list args;
  va_start(args, pattern);
  std::vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  return text;
}

const char* drop_reason(uint64_t counter) {
  switch (counter) {
    case USIW_CNT_DROP_MALFORMED: return "malformed";
    case USIW_CNT_DROP_WINDOW: return "outside of the window";
    case USIW_CNT_DROP_RESET: return "RESET does not verify";
    case USIW_CNT_DROP_STATE: return "not expected in this state";
    case USIW_CNT_DROP_NO_BUFFER: return "no buffer to hold it";
    case USIW_CNT_DROP_EARLY: return "ahead of its turn, cannot be placed yet";
    default: return "?";
  }
}

std::string status_text(unsigned status) {
  switch (status) {
    case IBV_WC_SUCCESS: return "success";
    case IBV_WC_LOC_LEN_ERR: return "local length error";
    case IBV_WC_LOC_QP_OP_ERR: return "local QP operation error";
    case IBV_WC_LOC_PROT_ERR: return "local protection error";
    case IBV_WC_WR_FLUSH_ERR: return "flushed";
    case IBV_WC_REM_INV_REQ_ERR: return "remote invalid request";
    case IBV_WC_REM_ACCESS_ERR: return "remote access error";
    case IBV_WC_REM_OP_ERR: return "remote operation error";
    case IBV_WC_RETRY_EXC_ERR: return "retries exceeded";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "receiver not ready";
    default: return "status " + std::to_string(status);
  }
}

const char* work_name(unsigned opcode) {
  switch (opcode) {
    case IBV_WC_SEND: return "SEND";
    case IBV_WC_RDMA_WRITE: return "WRITE";
    case IBV_WC_RDMA_READ: return "READ";
    case IBV_WC_COMP_SWAP: return "CMP_SWAP";
    case IBV_WC_FETCH_ADD: return "FETCH_ADD";
    case IBV_WC_RECV: return "RECV";
    case IBV_WC_RECV_RDMA_WITH_IMM: return "RECV_IMM";
  }
  return "?";
}

std::string segment_text(std::span<const std::byte> kept, uint32_t missing) {
  static constexpr std::array kNames = {"WRITE",     "READ_REQ",    "READ_RESP", "SEND", "SEND_INV",
                                        "SEND_SE",   "SEND_SE_INV", "TERMINATE", "IMM",  "IMM_SE",
                                        "ATOMIC_REQ", "ATOMIC_RESP", "SEND_IMM",  "SEND_SE_IMM"};
  DdpSegment seg;
  if (decode_ddp(kept, seg) == DdpDecode::kShort) return " | cut short";
  std::string out = format(" | %s", seg.rdmap_opcode < kNames.size() ? kNames[seg.rdmap_opcode] : "?");
  if (seg.tagged)
    out += format(" stag=0x%08x to=0x%llx", seg.stag, static_cast<unsigned long long>(seg.to));
  else
    out += format(" qn=%u msn=%u mo=%u", seg.qn, seg.msn, seg.mo);
  return out + format(" len=%u", seg.len + missing) + (seg.last ? " L" : "");
}

std::string packet_text(const TraceEvent& e) {
  static constexpr const char* kNames[] = {"DATA", "REQ", "ACCEPT", "REJECT", "SHUTDOWN", "SACK", "CONFIRM", "RESET"};
  static constexpr std::pair<uint16_t, const char*> kFlags[] = {{USIW_TRP_F_ACK_REQ, "ACK_REQ"},
                                                                {USIW_TRP_F_NOT_READY, "NOT_READY"},
                                                                {USIW_TRP_F_RETRANS, "RETRANS"},
                                                                {USIW_TRP_F_PENDING, "PENDING"},
                                                                {USIW_TRP_F_STRAY, "STRAY"},
                                                                {USIW_TRP_F_MERGED, "MERGED"},
                                                                {USIW_TRP_F_SKIP, "SKIP"},
                                                                {USIW_TRP_F_SKIPPED, "SKIPPED"}};
  const std::string way = e.kind == TraceKind::kTx ? "TX " : "RX ";
  const std::span kept(reinterpret_cast<const std::byte*>(e.bytes), e.kept);
  TrpHeader h;
  if (!decode_trp(kept, h)) return way + format("%u bytes, no TRP header", e.len);
  std::string flags;
  for (const auto& [bit, name] : kFlags)
    if ((h.flags & bit) != 0) flags += (flags.empty() ? "" : "|") + std::string(name);
  std::string out = way + (h.opcode < 8 ? kNames[h.opcode] : "?") + (flags.empty() ? "" : "[" + flags + "]") +
                    format(" psn=0x%08x ack=0x%08x credit=%u echo=%u", h.psn, h.ack_psn, h.credit, h.echo);
  if ((h.flags & USIW_TRP_F_TELLS_CE) != 0)
    out += format(" ce=%u", (h.flags & USIW_TRP_F_CE_COUNT) >> USIW_TRP_CE_SHIFT);
  if (h.opcode == USIW_TRP_DATA) out += segment_text(kept.subspan(kTrpBytes), e.len - e.kept);
  if (h.opcode == USIW_TRP_SACK && h.psn != h.ack_psn) {
    out += " have=";
    const uint32_t bits = std::min<uint32_t>(h.psn - h.ack_psn, static_cast<uint32_t>(kept.size() - kTrpBytes) * 8);
    for (uint32_t i = 0; i < bits; ++i)
      out += (std::to_integer<unsigned>(kept[kTrpBytes + i / 8]) >> i % 8 & 1) != 0 ? '1' : '0';
  }
  return out;
}

std::string endpoint(const uint8_t (&addr)[16], const uint8_t (&port)[2]) {
  char text[INET6_ADDRSTRLEN] = "";
  const bool v4 = usiw::is_mapped_ipv4(addr);
  inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? addr + 12 : addr, text, sizeof text);
  const unsigned number = port[0] << 8 | port[1];
  return v4 ? format("%s:%u", text, number) : format("[%s]:%u", text, number);
}

/// Returns layer, type and code of a Terminate, and the vendor_err of the completion that reports it.
std::string term_text(uint64_t word) {
  return format("layer=%u etype=%u ecode=0x%02x (vendor_err 0x%04x)", static_cast<unsigned>(word >> 12 & 7),
                static_cast<unsigned>(word >> 8 & 0xf), static_cast<unsigned>(word & 0xff),
                static_cast<unsigned>(word & 0xffff));
}

}  // namespace

bool is_packet(const TraceEvent& event) { return event.kind == TraceKind::kTx || event.kind == TraceKind::kRx; }

std::string describe(const TraceEvent& e) {
  if (is_packet(e)) return packet_text(e);
  const auto psn = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto ms = [](uint64_t ns) { return static_cast<double>(ns) / 1e6; };
  const auto& [a, b, c] = e.arg;
  switch (e.kind) {
    case TraceKind::kConnect:
      return format("connected: first psn=0x%08x, expects 0x%08x, MTU %u", psn(a), psn(b), psn(c));
    case TraceKind::kRto:
      return format("RTO: psn=0x%08x again, %u in a row, next in %.3f ms", psn(a), psn(b), ms(c));
    case TraceKind::kFast:
      return format("fast retransmit: psn=0x%08x lost, sent %.3f ms ago, RTT %.3f ms", psn(a), ms(b), ms(c));
    case TraceKind::kNotReady:
      return format("peer not ready: no receive posted for psn=0x%08x", psn(a));
    case TraceKind::kRnrRetry:
      return format("RNR retry: psn=0x%08x again, try %u, next in %.3f ms", psn(a), psn(b), ms(c));
    case TraceKind::kUnsent:
      return format("port full: psn=0x%08x not taken, again", psn(a));
    case TraceKind::kSpurious:
      return format("needless retransmission: ack=0x%08x shows it", psn(a));
    case TraceKind::kDrop:
      return format("drop: psn=0x%08x %s", psn(a), drop_reason(b));
    case TraceKind::kHold:
      return format("placement hold: psn=0x%08x waits for 0x%08x", psn(a), psn(b));
    case TraceKind::kRelease:
      return format("gap filled: psn=0x%08x came, next is 0x%08x", psn(a), psn(b));
    case TraceKind::kNoReceive:
      return format("no receive posted for psn=0x%08x", psn(a));
    case TraceKind::kSkip:
      return format("psn=0x%08x skipped: its message comes again when %s", psn(a),
                    b != 0 ? "the peer has posted a receive" : "a receive is posted");
    case TraceKind::kProbe:
      return format("keepalive probe, %u unanswered", psn(a));
    case TraceKind::kTermTx:
      return "Terminate sent: " + term_text(a);
    case TraceKind::kTermRx:
      return "Terminate received: " + term_text(a);
    case TraceKind::kComplete:
      return format("completion: %s %s wr_id=0x%llx bytes=%u", work_name(static_cast<unsigned>(c >> 8 & 0xff)),
                    status_text(static_cast<unsigned>(c & 0xff)).c_str(), static_cast<unsigned long long>(a), psn(b));
    case TraceKind::kPeerClosed:
      return "peer closed";
    case TraceKind::kFailed:
      return format("QP failed: %s", strerror(static_cast<int>(a & 0xfff)));
    case TraceKind::kAbort:
      return "ended from outside (user or kernel)";
    case TraceKind::kMove:
      return format("goes on by port %u, went by port %u%s", psn(a), psn(b), c != 0 ? ": nothing got through" : "");
    default:
      return "?";
  }
}

std::string describe(const TraceFlow& f) {
  return endpoint(f.local_addr, f.local_port) + " > " + endpoint(f.remote_addr, f.remote_port);
}

std::string line_of(const Trace& trace, const TraceEvent& event) {
  const uint64_t ns = event.time_ns + trace.wall_ns;
  const auto seconds = static_cast<time_t>(ns / 1'000'000'000u);
  tm parts{};
  localtime_r(&seconds, &parts);
  return format("%02d:%02d:%02d.%09u qp %u ", parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<unsigned>(ns % 1'000'000'000u), event.qpn) +
         describe(event);
}

}  // namespace usiw::tools
