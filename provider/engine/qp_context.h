// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp_context.h
/// What the engine keeps about a QP: the owners of its state, each with its invariant in a file of its own, and what
/// is left. PSNs and MSNs are serial numbers; times are ns.
#ifndef USIW_ENGINE_QP_CONTEXT_H
#define USIW_ENGINE_QP_CONTEXT_H

#include <cstddef>
#include <cstdint>

#include "engine/ack_state.h"
#include "engine/congestion.h"
#include "engine/lifecycle.h"
#include "engine/long_messages.h"
#include "engine/loss_detector.h"
#include "engine/marks.h"
#include "engine/merge_trust.h"
#include "engine/mr_table.h"
#include "engine/port.h"
#include "engine/port_watch.h"
#include "engine/psn.h"
#include "engine/qp.h"
#include "engine/qp_list.h"
#include "engine/receive_window.h"
#include "engine/recv_queue.h"
#include "engine/responder.h"
#include "engine/rtt.h"
#include "engine/send_queue.h"
#include "engine/send_window.h"
#include "engine/timers.h"
#include "engine/waits.h"
#include "base/wire.h"

namespace usiw {

/// What is known of the datagrams of both windows: in one piece, which borders on others' pages at two ends only.
struct Tables {
  TxPkt tx[kWindow];
  RxPkt rx[kWindow];
};

/// All that belongs to one connection of a QP: qp_reset() assigns a fresh one.
struct QpConnection {
  // ---- Sending: one cache line, behind the bitmaps of what is outstanding ----
  alignas(64) SendWindow snd;
  Lifecycle life;
  uint16_t seg_tagged = 0;           ///< payload bytes of a full tagged segment
  uint16_t seg_untagged = 0;
  bool responder_turn = false;       ///< whose segment is next when both have one
  bool force_send = false;           ///< one datagram may go beyond the congestion window

  // ---- Receiving: one cache line, behind the bitmap of what has arrived early ----
  alignas(64) ReceiveWindow rcv;
  AckState ack;
  Replies replies;
  uint64_t heard_ns = 0;             ///< last datagram of the peer that made sense

  alignas(64) Responder responder;

  // ---- Both, less often ----
  alignas(64) Congestion cc;
  RttEstimator rtt;
  uint16_t held = 0;  ///< of those that came early, kept as they came until their turn
  bool had_room = false;  ///< the port, which is full, took something of it in the last run

  LossDetector losses;
  TimeOut timeout;
  NotReady not_ready;
  Keepalive keepalive;
  bool cwnd_limited = false;  ///< the congestion window has held something back since the last acknowledgement

  UnsetArray<Tables> tables;
  TermInfo refusal{};  ///< what our Terminate says

  uint64_t stream = 0;  ///< names the connection among all of the engine: whose a window of type 2 is
  ConnAttr conn{};
  // ---- What a datagram is known by, and its mark: one cache line, and what only ports want of the path ----
  alignas(64) Marks marks;
  Path path{};
  int port = -1;        ///< it sends by this one
  int other_port = -1;  ///< the other one; -1: there is none
  int hears_also = -1;  ///< it receives by that one, too, or -1
  uint32_t longest = UINT32_MAX;  ///< bytes of what is received; what is longer is not one datagram
  uint32_t path_mtu = 0;  ///< segments are cut by it
  bool in_flows = false;
  bool last_wqe_told = false;  ///< to the owner of a QP with an SRQ

  bool merged = false;  ///< the peer takes merged datagrams all the time
  MergeTrust merge_trust;
  LongMessages longs;
  PortWatch watch;
  uint32_t share_psn = 0;   ///< ReceiveWindow::max() when the port was asked last for its share
  uint32_t refused_psn = 0; ///< the highest that came and found no receive work request
  uint64_t review_at = kNever;  ///< when the choice of the port is to be looked at again
  uint32_t trace_flow = 0;
  QpLimits limits{};               ///< all 0: none are set
  uint64_t first_at = kNever;      ///< a connection is waited for until then
  uint64_t wanted_nothing_at = 0;  ///< when no work request was seen to wait for the peer, with limits

  /// The limits are set, and hold for the connection.
  bool limited() const { return conn.silent && limits.retry_ns != 0; }
};

struct QpContext final : Qp, TimerNode, QpConnection {
  using Qp::doorbell_;
  using Qp::doorbells_;
  using Qp::max_inline_;
  using Qp::max_recv_sge_;
  using Qp::max_send_sge_;
  using Qp::owner_;
  using Qp::qpn_;
  using Qp::recv_allowance_;
  using Qp::recv_wanted_;
  using Qp::rq_;
  using Qp::rq_tail_;
  using Qp::send_allowance_;
  using Qp::sq_;
  using Qp::sq_tail_;
  using Qp::state_;

  __u64* counters = nullptr;  ///< the QP's own, or the engine's
  uint32_t access = 0;  ///< as the program has set it, or the connection
  uint32_t rights = 0;  ///< that it leaves the peer
  QpAttr attr{};
  size_t all_index = 0;  ///< in the engine's list of all QPs
  ListHook active_hook{this}, ack_hook{this};
  ListHook srq_hook{this};  ///< among those that wait for a receive of their SRQ
  alignas(64) SendQueue sq;
  alignas(64) RecvQueue rq;
  Completions sends;
  Completions own_receives;
  Completions* receives = &own_receives;  ///< or those of an SRQ
  std::atomic<uint32_t> sends_silent{0};
  std::atomic<uint32_t> receives_silent{0};

  bool connected() const { return life.connected(); }
  void permit(uint32_t flags) {
    access = flags;
    rights = conn.silent ? flags & kAccessOfPeer : rights_of(flags);
  }
  MrTable::Peer peer() const { return {.pd = attr.pd, .rights = rights, .stream = stream}; }
  /// What the peer has been granted already, whatever the QP's flags are by now.
  MrTable::Peer granted() const { return {.pd = attr.pd, .rights = ~0u, .stream = stream}; }
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // no virtuals: GCC and Clang lay it out as C
static_assert(offsetof(QpConnection, rcv) - offsetof(QpConnection, snd) == SendWindow::kCold + 64,
              "sending fits into one cache line");
static_assert(offsetof(QpConnection, responder) - offsetof(QpConnection, rcv) == ReceiveWindow::kCold + 64,
              "receiving fits into one cache line");
#pragma GCC diagnostic pop

}  // namespace usiw

#endif  // USIW_ENGINE_QP_CONTEXT_H
