// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp_context.h
/// What the engine keeps about a QP. PSNs and MSNs are serial numbers; sq_*, rq_* and
/// rr_* positions run freely and are reduced to their ring on use. Times are ns.
#ifndef USIW_ENGINE_QP_CONTEXT_H
#define USIW_ENGINE_QP_CONTEXT_H

#include <cstddef>
#include <cstdint>

#include "engine/ack_state.h"
#include "engine/congestion.h"
#include "engine/psn.h"
#include "engine/qp.h"
#include "engine/receive_window.h"
#include "engine/rtt.h"
#include "engine/send_window.h"
#include "engine/timers.h"
#include "base/wire.h"
#include "engine/port.h"

namespace usiw {

struct QpContext;

/// Membership of a QP in one list of the engine: circular, so that leaving needs no list.
struct ListHook {
  explicit ListHook(QpContext* qp = nullptr) : owner(qp) {}
  ListHook(const ListHook&) = delete;
  ListHook& operator=(const ListHook&) = delete;

  bool linked() const { return next != this; }
  void unlink() {
    prev->next = next;
    next->prev = prev;
    prev = next = this;
  }

  ListHook* prev = this;
  ListHook* next = this;
  QpContext* owner;  ///< nullptr: the list's own end
};

class QpList {
 public:
  bool empty() const { return !end_.linked(); }
  /// nullptr at the end.
  QpContext* front() const { return end_.next->owner; }
  const ListHook* begin() const { return end_.next; }
  void push_back(ListHook& hook) {
    if (hook.linked()) return;
    hook.prev = end_.prev;
    hook.next = &end_;
    end_.prev->next = &hook;
    end_.prev = &hook;
  }
  /// Takes over all members of @p other, behind its own.
  void take(QpList& other) {
    if (other.empty()) return;
    end_.prev->next = other.end_.next;
    other.end_.next->prev = end_.prev;
    end_.prev = other.end_.prev;
    end_.prev->next = &end_;
    other.end_.prev = other.end_.next = &other.end_;
  }

 private:
  ListHook end_;
};

enum class Phase : uint8_t {
  kIdle,          ///< no connection yet
  kOpen,
  kDraining,      ///< qp_shutdown(): finishing the send queue
  kShutdownSent,
  kTerminating,   ///< our Terminate is on its way; nothing more is accepted
  kDead,          ///< flushed
};

/// A send work request from its start to its completion.
struct SqWork {
  enum Stage : uint8_t { kInit, kTransfer, kWait, kDone };
  uint64_t wr_id;
  uint64_t remote_addr;
  uint32_t rkey;
  uint32_t length;    ///< bytes of the message
  uint32_t end_psn;   ///< behind its last datagram; valid from kWait on
  uint32_t msn;       ///< SEND: MSN of queue 0. READ: MSN of queue 1, which is the sink STag too
  Stage stage;
  WrOpcode opcode;
  uint8_t flags;      ///< WrFlags
  uint8_t num_sge;
  WcStatus error;     ///< kSuccess, or what it will complete with once it is the oldest
};

/// A receive work request that segments have been placed into.
struct RqWork {
  uint64_t received;  ///< bytes placed
  uint32_t capacity;  ///< sum of its SGEs, valid when sized
  bool sized;
};

/// A READ of the peer, from its request until its response is acknowledged.
struct ReadJob {
  ReadRequest request;
  uint32_t msn;
  uint32_t sent;     ///< bytes
  uint32_t end_psn;  ///< behind its last datagram; valid when all are sent
};

/// Own READ on the wire, by MSN.
struct ReadOp {
  uint32_t sq_index;
  uint64_t placed;  ///< bytes
};

/// All that belongs to one connection of a QP, and the queues' positions with it:
/// qp_reset() assigns a fresh one.
struct QpConnection {
  // ---- Sending: one cache line, behind the bitmaps of what is outstanding ----
  alignas(64) SendWindow snd;
  uint32_t sq_head = 0;              ///< oldest work request not completed
  uint32_t sq_next = 0;              ///< work request being sent, or the next one
  uint32_t sq_offset = 0;            ///< bytes of it sent
  uint32_t rr_head = 0;              ///< oldest READ job not acknowledged
  uint32_t rr_next = 0;              ///< READ job being sent
  uint32_t rr_tail = 0;
  uint16_t seg_tagged = 0;           ///< payload bytes of a full tagged segment
  uint16_t seg_untagged = 0;
  Phase phase = Phase::kIdle;
  bool responder_turn = false;       ///< whose segment is next when both have one
  bool force_send = false;           ///< one datagram may go beyond the congestion window
  bool sq_error = false;             ///< a work request has failed; none is started any more

  // ---- Receiving: one cache line, behind the bitmap of what has arrived early ----
  alignas(64) ReceiveWindow rcv;
  AckState ack;
  Replies replies;
  uint64_t heard_ns = 0;             ///< last datagram of the peer that made sense

  alignas(64) uint32_t rcv_msn = 1;              ///< queue 0: MSN expected
  uint32_t rq_head = 0;              ///< its receive work request
  uint32_t read_msn_in = 1;          ///< queue 1: MSN expected
  bool rnr_told : 1 = false;         ///< the peer knows that no receive is posted
  bool keep_acking : 1 = false;      ///< kDead: repetitions of the peer's end are acknowledged

  // ---- Both, less often ----
  alignas(64) Congestion cc;
  RttEstimator rtt;
  uint16_t held = 0;  ///< of those that came early, kept as they came until their turn
  bool had_room = false;  ///< the port, which is full, took something of it in the last run

  // RACK (RFC 8985): the latest sent among what has been delivered.
  uint64_t rack_sent = 0;
  uint64_t rack_rtt = 0;
  uint32_t rack_psn = 0;
  uint32_t highest_delivered = 0;
  uint64_t reo_at = kNever;  ///< look for losses again
  uint64_t reo_late = 0;     ///< ns that what was merely late has taken
  bool reorder_seen = false;
  bool cwnd_limited = false;

  // Time-outs.
  uint64_t rto_base = 0;     ///< the time-out counts from here
  uint64_t stall_since = 0;  ///< last forward progress
  uint64_t nudge_at = kNever;  ///< between two of them: ask whether the wire is there again
  uint8_t backoffs = 0;
  uint8_t probes = 0;        ///< unanswered keepalive probes
  bool window_blocked = false;  ///< the peer's window, not ours, stops sending
  uint64_t probe_ns = 0;     ///< last one asked for
  uint64_t phase_deadline = kNever;  ///< end of kShutdownSent or kTerminating

  // Receiver not ready, this end sending.
  bool rnr_active = false;
  uint8_t rnr_backoffs = 0;
  uint8_t rnr_unheard = 0;   ///< repetitions since a SACK
  uint32_t rnr_psn = 0;
  uint32_t rnr_recover = 0;  ///< losses before this PSN say nothing about the network
  uint64_t rnr_since = 0;
  uint64_t rnr_at = kNever;
  // Receiver not ready, this end receiving.
  uint64_t rnr_told_ns = 0;

  // Work.
  ZeroedArray<TxPkt> tx_storage;
  ZeroedArray<RxPkt> rx_storage;
  ZeroedArray<ReadJob> read_jobs;
  ZeroedArray<ReadOp> read_ops;
  uint32_t sq_limit = 0;     ///< kDraining: the first work request that is not sent any more
  uint32_t rr_limit = 0;     ///< kDraining: the first READ of the peer that is not waited for
  uint32_t send_msn = 1;     ///< next of queue 0
  uint32_t read_msn = 1;     ///< next of queue 1
  uint32_t read_done = 1;    ///< MSN of the oldest own READ not complete
  uint16_t ird = 0, ord = 0;
  bool closing = false;      ///< qp_shutdown() was called: the end is told by qp_closed()
  bool shutdown_sent = false;
  bool term_sent = false;
  uint32_t end_psn = 0;      ///< PSN of our SHUTDOWN or Terminate
  TermInfo term_info{};
  AsyncEvent term_event = AsyncEvent::kNone;

  ConnAttr conn{};
  Path path{};
  int port = -1;        ///< it sends by this one
  int other_port = -1;  ///< and receives by this one, too; -1: there is none
  uint32_t path_mtu = 0;  ///< segments are cut by it
  bool in_flows = false;

  // Moving to the other port.
  uint8_t port_asks = 0;       ///< in a row, while nothing got through
  uint8_t peer_repeated = 0;   ///< what it has an acknowledgement of, while nothing new came
  uint32_t repeated_nxt = 0;   ///< rcv.nxt() then
  uint64_t repeated_since = 0;
  uint64_t port_asked_ns = 0;  ///< the last time
  uint64_t review_at = kNever;
  uint32_t trace_flow = 0;
};

struct QpContext final : Qp, TimerNode, QpConnection {
  using Qp::doorbell_next_;
  using Qp::doorbells_;
  using Qp::max_inline_;
  using Qp::max_recv_sge_;
  using Qp::max_send_sge_;
  using Qp::owner_;
  using Qp::qpn_;
  using Qp::queued_;
  using Qp::recv_wanted_;
  using Qp::rq_;
  using Qp::rq_tail_;
  using Qp::sq_;
  using Qp::sq_tail_;
  using Qp::state_;

  __u64* counters = nullptr;  ///< the QP's own, or the engine's
  QpAttr attr{};
  size_t all_index = 0;  ///< in the engine's list of all QPs
  ListHook active_hook{this}, ack_hook{this};
  ZeroedArray<SqWork> sq_work;
  ZeroedArray<RqWork> rq_work;

  SqWork& work(uint32_t index) { return sq_work[index & (sq_.capacity() - 1)]; }
  RqWork& recv_work(uint32_t index) { return rq_work[index & (rq_.capacity() - 1)]; }
  ReadJob& job(uint32_t index) { return read_jobs[index & (USIW_MAX_IRD - 1)]; }
  ReadOp& read_op(uint32_t msn) { return read_ops[msn & (USIW_MAX_ORD - 1)]; }
  uint32_t reads_out() const { return read_msn - read_done; }
  bool connected() const {
    return phase != Phase::kIdle && phase != Phase::kDead;
  }
  /// The oldest receive work request is posted.
  bool recv_posted(uint32_t index) {
    return rq_.at(index).valid.load(std::memory_order_acquire) != 0;
  }
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // no virtuals: GCC and Clang lay it out as C
static_assert(offsetof(QpConnection, rcv) - offsetof(QpConnection, snd) == SendWindow::kCold + 64,
              "sending fits into one cache line");
static_assert(offsetof(QpConnection, rcv_msn) - offsetof(QpConnection, rcv) == ReceiveWindow::kCold + 64,
              "receiving fits into one cache line");
#pragma GCC diagnostic pop

}  // namespace usiw

#endif  // USIW_ENGINE_QP_CONTEXT_H
