// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file usiw_trace.h
/// Layout of a trace: a header page, a table of connections, and a ring of events.
///
/// The engine writes the trace into memory that is shared with a file. `usiw trace` reads the file while the engine
/// runs, or after the process has ended. Fields have the byte order of the processor unless their
/// comment names another one. A process can write anything into its file, so a reader checks each
/// value before it uses it.
#ifndef USIW_TRACE_H
#define USIW_TRACE_H

#include <cstddef>
#include <cstdint>

namespace usiw {

inline constexpr uint64_t kTraceMagic = 0x3163'7274'7769'7375;  // "usiwtrc1"
inline constexpr size_t kTraceHeaderBytes = 4096;
inline constexpr uint32_t kTraceFlows = 1024;          ///< slots for connections: a power of two
inline constexpr uint32_t kTraceMinEvents = 1u << 6;   ///< events in the ring: a power of two
inline constexpr uint32_t kTraceMaxEvents = 1u << 20;
inline constexpr uint32_t kTraceEvents = 1u << 15;  ///< default: 4 MiB

enum TraceFlags : uint32_t {
  kTraceStopOnError = 1,  ///< recording stops when a QP fails, so that no later events overwrite its last ones
};

struct TraceHeader {
  uint64_t magic;
  uint32_t event_bytes;   ///< sizeof(TraceEvent)
  uint32_t events;        ///< number of events in the ring
  uint32_t flow_bytes;    ///< sizeof(TraceFlow)
  uint32_t flows;         ///< number of slots for connections
  uint32_t pid;
  uint32_t on;            ///< not 0: events are recorded. Engine and `usiw trace` write it
  uint32_t flags;         ///< TraceFlags
  uint32_t reserved;
  uint64_t wall_ns;  ///< add it to the time of an event to get ns since 1970
  uint64_t next;     ///< number of the next event. The ring has the events [next - events, next)
  char device[16];
};

/// A connection, in the slot id % kTraceFlows.
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

/// Kind of an event. Each comment lists the arguments a, b, c of the event. Remarks are in parentheses.
enum class TraceKind : uint16_t {
  kNone,
  kTx,          ///< (datagram sent; the event has its first bytes in place of arguments)
  kRx,          ///< (datagram received; likewise with its first bytes)
  kConnect,     ///< first PSN of this end, first PSN of the peer, MTU
  kRto,         ///< PSN sent again, time-outs in a row, ns until the next
  kFast,        ///< PSN that counts as lost, ns since it was sent, smoothed RTT in ns
  kNotReady,    ///< PSN for which the peer has no receive posted
  kRnrRetry,    ///< PSN sent again, tries so far, ns until the next
  kUnsent,      ///< PSN that the port did not accept
  kSpurious,    ///< ACK PSN by which the peer shows that a retransmission was spurious
  kDrop,        ///< PSN of the datagram, reason (enum usiw_counter)
  kHold,        ///< PSN parked, PSN that is missing
  kRelease,     ///< PSN that was missing and has arrived, next PSN expected
  kNoReceive,   ///< PSN for which this end has no receive posted
  kProbe,       ///< number of keepalive probes without an answer
  kTermTx,      ///< a Terminate, as in vendor_err: 0x8000 | layer << 12 | type << 8 | code
  kTermRx,      ///< the same
  kComplete,    ///< wr_id, bytes, opcode << 8 | status (enum ibv_wc_opcode, ibv_wc_status)
  kPeerClosed,  ///< no arguments
  kFailed,      ///< errno
  kAbort,       ///< no arguments (the user or the kernel has ended the connection)
  kMove,        ///< new port, old port, number of times in a row that nothing got through
  kSkip,        ///< PSN of a skipped SEND (USIW_TRP_F_SKIP), 1 if the peer lacks a receive, 0 if this end does
  kEnd,
};

inline constexpr size_t kTraceKept = 96;  ///< an event has at most this many bytes of a datagram

struct TraceEvent {
  uint64_t number;   ///< 1 + number of the event; 0 while the event is being written
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
