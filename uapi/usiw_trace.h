// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file usiw_trace.h
/// Layout of a trace: a header page, a table of connections, a ring of events. The engine
/// writes it into memory that is shared with a file; `usiw trace` reads the file while the
/// engine goes on, or when the process is long gone. Host byte order; whoever reads it
/// believes nothing in it.
#ifndef USIW_TRACE_H
#define USIW_TRACE_H

#include <cstddef>
#include <cstdint>

namespace usiw {

inline constexpr uint64_t kTraceMagic = 0x3163'7274'7769'7375;  // "usiwtrc1"
inline constexpr size_t kTraceHeaderBytes = 4096;
inline constexpr uint32_t kTraceFlows = 1024;          ///< connections remembered; a power of two
inline constexpr uint32_t kTraceMinEvents = 1u << 6;   ///< events in the ring: a power of two
inline constexpr uint32_t kTraceMaxEvents = 1u << 20;
inline constexpr uint32_t kTraceEvents = 1u << 15;     ///< unless said otherwise: 4 MiB

enum TraceFlags : uint32_t {
  kTraceStopOnError = 1,  ///< recording stops when a QP fails: its last events stay
};

struct TraceHeader {
  uint64_t magic;
  uint32_t event_bytes;   ///< sizeof(TraceEvent)
  uint32_t events;        ///< in the ring
  uint32_t flow_bytes;    ///< sizeof(TraceFlow)
  uint32_t flows;
  uint32_t pid;
  uint32_t on;            ///< not 0: events are recorded. Written by both sides
  uint32_t flags;         ///< TraceFlags
  uint32_t reserved;
  uint64_t wall_ns;       ///< to be added to a time of an event: ns since 1970
  uint64_t next;          ///< number of the next event: those of [next - events, next) are there
  char device[16];
};

/// A connection, at index id % kTraceFlows.
struct TraceFlow {
  uint32_t id;               ///< from 1 on; 0: none
  uint32_t qpn;
  uint8_t local_addr[16];    ///< IPv4 mapped (::ffff:a.b.c.d)
  uint8_t remote_addr[16];
  uint8_t local_port[2];     ///< network byte order
  uint8_t remote_port[2];
  uint8_t local_mac[6];
  uint8_t remote_mac[6];
  uint8_t reserved[8];
};
static_assert(sizeof(TraceFlow) == 64);

/// What an event is, and what its arguments a, b, c are.
enum class TraceKind : uint16_t {
  kNone,
  kTx,          ///< datagram out: no arguments but its first bytes
  kRx,          ///< datagram in
  kConnect,     ///< first PSN sent, first PSN expected, MTU
  kRto,         ///< PSN sent again, time-outs in a row, ns until the next
  kFast,        ///< PSN taken for lost, ns since it was sent, smoothed RTT in ns
  kNotReady,    ///< PSN that the peer has no receive for
  kRnrRetry,    ///< PSN sent again, tries so far, ns until the next
  kUnsent,      ///< PSN that the port did not take
  kSpurious,    ///< PSN acknowledged: resending (something before) it was needless
  kDrop,        ///< PSN of the datagram, reason (enum usiw_counter)
  kHold,        ///< PSN kept, PSN that is missing
  kRelease,     ///< PSN that was missing, PSN that is missing now
  kNoReceive,   ///< PSN for which no receive is posted at this end
  kProbe,       ///< keepalive probes not answered
  kTermTx,      ///< a Terminate, as vendor_err has it: 0x8000 | layer << 12 | type << 8 | code
  kTermRx,      ///< the same
  kComplete,    ///< wr_id, bytes, opcode << 8 | status (enum ibv_wc_opcode, ibv_wc_status)
  kPeerClosed,  ///< no arguments
  kFailed,      ///< errno
  kAbort,       ///< no arguments: ended from outside (user, kernel)
  kMove,        ///< the port by which it goes on, that by which it went, 1 if nothing got through there
  kSkip,        ///< PSN that counts as arrived without its message, 1 if it is the peer that has no receive
  kEnd,
};

inline constexpr size_t kTraceKept = 96;  ///< first bytes of a datagram that are kept

struct TraceEvent {
  uint64_t number;   ///< 1 + number of the event; another value while it is being written
  uint64_t time_ns;  ///< CLOCK_MONOTONIC
  uint32_t qpn;
  uint32_t flow;     ///< TraceFlow::id
  uint32_t len;      ///< kTx, kRx: bytes of the datagram (UDP payload)
  TraceKind kind;
  uint16_t kept;     ///< kTx, kRx: bytes of @ref bytes that are valid
  union {
    uint8_t bytes[kTraceKept];
    struct {
      uint64_t a, b, c;
    } arg;
  };
};
static_assert(sizeof(TraceEvent) == 128);

constexpr size_t trace_bytes(uint32_t events) {
  return kTraceHeaderBytes + kTraceFlows * sizeof(TraceFlow) + size_t{events} * sizeof(TraceEvent);
}

}  // namespace usiw

#endif  // USIW_TRACE_H
