// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_impl.h
/// Inside of the engine: one class, implemented by topic in the .cc files named beside
/// each group. Everything here runs with the engine held.
#ifndef USIW_ENGINE_ENGINE_IMPL_H
#define USIW_ENGINE_ENGINE_IMPL_H

#include <array>
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/wire.h"
#include "engine/ack_queue.h"
#include "engine/engine.h"
#include "engine/flow_table.h"
#include "engine/mr_table.h"
#include "engine/qp_context.h"
#include "engine/timers.h"
#include "engine/trace.h"

namespace usiw {

// ---- Tunables ----
/// Datagrams per call of the port: two messages of a socket that the kernel takes apart, at an MTU of 1500.
inline constexpr size_t kBurst = 96;
inline constexpr size_t kAllocation = 32;          ///< free buffers that are taken from the port at a time
inline constexpr unsigned kQuantum = 16;           ///< datagrams per QP and run ...
inline constexpr unsigned kLoneQuantum = 92;       ///< ... where no other QP waits for its turn
inline constexpr unsigned kRunBudget = 256;        ///< datagrams of all QPs between two looks at what has come
/// Bytes of the program's memory from which on a port that can reads them there: less is copied sooner than described.
inline constexpr uint32_t kReferLeast = 512;
inline constexpr unsigned kMaxTimerSkips = 8;      ///< runs with full bursts between timers
/// After so many runs in a row in which a full port took nothing the next try waits for so long: a port may stay full
/// for ever, and whoever drives the engine would spin.
inline constexpr unsigned kMaxStuckRuns = 64;
inline constexpr uint64_t kStuckNs = 100'000;
/// A message behind this much silence whose reply is not expected soon is acknowledged at
/// once: its sender waits for that, and nobody may drive this end for a while.
inline constexpr uint64_t kLoneMessageNs = 20'000;
inline constexpr uint64_t kAckDelayNs = 200'000;     ///< ns, within a message
/// A port is asked what it holds for a QP whenever so many datagrams have arrived.
inline constexpr uint32_t kShareEvery = 32;
inline constexpr uint64_t kNudgeNs = 100'000;      ///< from one QP's question whether the wire is back to another's
inline constexpr uint64_t kBackNs = 10'000'000;    ///< from one time that all are told that it is to the next
inline constexpr uint64_t kBackTurnNs = 2'000;     ///< from one QP's question then to another's
inline constexpr unsigned kMinRetries = 6;         ///< time-outs in a row, besides patience_, before giving up
inline constexpr unsigned kMaxProbes = 6;          ///< unanswered probes, besides patience_, before giving up
/// A limit of a QP below this is obeyed as exactly as a few repetitions allow (limit_of()).
inline constexpr uint64_t kShortLimitNs = 1'000'000'000;
inline constexpr uint64_t kShutdownTimeNs = 1'500'000'000;
inline constexpr uint64_t kTerminateTimeNs = 500'000'000;
inline constexpr uint64_t kRnrReceiverNs = 10'000'000'000;  ///< the receiver terminates
inline constexpr uint64_t kRnrSenderNs = 12'000'000'000;    ///< the sender gives up by itself
inline constexpr uint64_t kRnrClosingNs = 2'000'000'000;    ///< the same during qp_shutdown()

/// What goes round a datagram.
inline constexpr uint32_t kIpv4Bytes = 20, kIpv6Bytes = 40, kUdpBytes = 8;
inline uint32_t outer_bytes(const Path& path) { return (path.flow.is_ipv4() ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes; }

/// Access of the engine to the private side of a CQ.
struct CqAccess {
  static Cq* create(uint32_t capacity, void* owner, const CqOptions& options);
  static void destroy(Cq* cq, PolledTable& polled);
  /// Counters that queues give back and take.
  static PolledTable::Unused& unused(Cq& cq) { return cq.unused_; }
  /// As Engine::cq_resize().
  static int resize(Cq& cq, uint32_t capacity, std::byte* memory = nullptr);

  /// As Engine::cq_forget().
  static void forget(Cq& cq, uint32_t qpn);

  enum class Push { kPlain, kNotify, kOverrun, kDead, kLost };
  /// Publishes a completion of a work request of @p of. kNotify: the CQ was armed for it and is disarmed now.
  /// kOverrun: it did not fit; returned once, then the CQ is dead, and all that comes is kDead.
  /// kLost: it did not fit, and that is the program's wish (CqOptions::ignore_overrun).
  static Push push(Cq& cq, const Cqe& cqe, Completions& of, bool solicited, uint64_t now);
};

/// The end of a message of queue 0, as its last segment has it.
struct MessageEnd {
  uint8_t rdmap;    ///< RDMAP opcode
  uint32_t length;  ///< bytes of the message
  uint32_t imm;     ///< immediate data, or the STag to invalidate; of other messages anything
};

struct PortState {
  struct Tag {
    QpContext* qp;
    bool has_psn;  ///< false: a SACK
    uint32_t psn;
  };
  Port* port;
  bool refers;  ///< takes_references()
  /// Twice what goes to the port at a time: the free ones behind a batch stay where they are.
  std::array<TxBuf, 2 * kBurst> bufs;
  std::array<Tag, 2 * kBurst> tags;
  size_t begin = 0;      ///< bufs[begin, filled) are to be sent; kBurst of them at most
  size_t filled = 0;     ///< bufs[filled, allocated) are free buffers
  size_t allocated = 0;
  bool blocked = false;  ///< took less than offered: wait for the next run
  Port::Drops drops{};   ///< as counted so far
};

/// What becomes of a received segment.
enum class Verdict : uint8_t {
  kAccept,
  kHold,      ///< accepted, to be placed in its turn: keep the buffer
  kDrop,      ///< as if it had never arrived
  kNotReady,  ///< no receive is posted
  kFault,     ///< refused: Terminate
  kGone,      ///< the QP died meanwhile
};

/// What a datagram in order passes through is inlined into progress() as a whole ([[gnu::flatten]]): some thirty
/// functions of a few lines, whose prologues were a sixth of its instructions. What is rare stays out of it by
/// [[gnu::noinline]].
struct Engine::Impl {
  Impl(Clock& clock, EngineEvents& events, __u64* counters);
  ~Impl();

  // ---- engine.cc: the run ----
  unsigned progress();
  uint64_t next_deadline() const;
  unsigned send_turns();
  void send_turn(QpContext& qp, unsigned quantum);
  unsigned take_doorbells();
  void take_posted(QpContext& qp);
  [[gnu::noinline]] void handle_overruns();
  void poll_drops(PortState& port);
  void count(usiw_counter which, uint64_t n = 1) { counters_[which] += n; }
  /// What belongs to a QP is counted there and only there: the kernel adds up all pages.
  void count(QpContext& qp, usiw_counter which, uint64_t n = 1) {
    qp.counters[which] += n;
  }
  /// A datagram that belongs to @p qp and is not taken.
  [[gnu::noinline]] void drop(QpContext& qp, usiw_counter why, uint32_t psn) {
    count(qp, why);
    note(TraceKind::kDrop, qp, psn, why);
  }
  void note(TraceKind kind, const QpContext& qp, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
    if (tracing_) [[unlikely]] tracer_.note(kind, now_, qp.qpn_, qp.trace_flow, a, b, c);
  }
  void note_packet(TraceKind kind, const QpContext& qp, std::span<const std::byte> head,
                   std::span<const std::byte> rest = {}) {
    if (tracing_) [[unlikely]] tracer_.packet(kind, now_, qp.qpn_, qp.trace_flow, head, rest);
  }
  void activate(QpContext& qp) { active_.push_back(qp.active_hook); }

  // ---- qp.cc: life of a QP ----
  Qp* qp_create(const QpAttr& attr);
  bool open_completions(QpContext& qp);
  void close_completions(QpContext& qp);
  static void allow_posts(QpContext& qp);
  /// Bytes behind the head of a WQE.
  static size_t send_tail(const QpAttr& attr) {
    return std::max<size_t>(std::max(1u, attr.max_send_sge) * sizeof(Sge), attr.max_inline);
  }
  static size_t recv_tail(const QpAttr& attr) { return std::max(1u, attr.max_recv_sge) * sizeof(Sge); }
  [[gnu::noinline]] void qp_destroy(QpContext& qp);
  int qp_connect(QpContext& qp, int port, const Path& path, const ConnAttr& conn);
  void qp_pause(QpContext& qp, bool tell);
  void qp_resume(QpContext& qp);
  void qp_shutdown(QpContext& qp);
  void qp_abort(QpContext& qp);
  void qp_reset(QpContext& qp);
  void qp_acknowledge(QpContext& qp);
  void qp_probe(QpContext& qp);
  void send_sack_now(QpContext& qp, uint16_t flags);
  /// To kDead: stops everything, but leaves the queues as they are.
  void stop(QpContext& qp);
  void end_silently(QpContext& qp);
  /// To kDead: stops everything and flushes; the work request at @p at completes with
  /// @p status, all others with kWrFlushErr.
  [[gnu::noinline]] void kill(QpContext& qp, uint32_t at, WcStatus status, uint16_t vendor_err = 0);
  /// kill() and tell the owner (qp_closed() when it is closing anyway).
  [[gnu::noinline]] void fail(QpContext& qp, uint32_t at, WcStatus status, int error, AsyncEvent event,
                              uint16_t vendor_err = 0);
  [[gnu::noinline]] void check_drained(QpContext& qp);
  [[gnu::noinline]] void peer_shutdown(QpContext& qp);
  [[gnu::noinline]] void drop_flow(QpContext& qp);
  [[gnu::noinline]] void release_held(QpContext& qp);
  [[gnu::noinline]] static void publish(QpContext& qp);

  // ---- move.cc: by which port ----
  void cut_by(QpContext& qp, uint32_t mtu);
  int qp_also(QpContext& qp, int port);
  void qp_move(QpContext& qp, const EngineEvents::PortAnswer& to);
  void qp_path(QpContext& qp, const Path& path, uint32_t mtu);
  static void refresh_path(QpContext& qp);
  uint32_t longest(QpContext& qp) const;
  EngineEvents::PortAsked ways(QpContext& qp, uint64_t now) const;
  [[gnu::noinline]] void ask_port(QpContext& qp, bool silent);
  [[gnu::noinline]] void look_for_long(QpContext& qp);
  [[gnu::noinline]] bool drop_unheard(QpContext& qp, int port, const RxBuf& buf);
  [[gnu::noinline]] bool silent_since(QpContext& qp, uint64_t since);
  [[gnu::noinline]] void peer_repeats(QpContext& qp);
  /// Before a header goes out that advertises credit.
  void look_at_share(QpContext& qp) {
    if (qp.rcv.max() - qp.share_psn >= kShareEvery) [[unlikely]] ask_share(qp);
  }
  [[gnu::noinline]] void ask_share(QpContext& qp);

  // ---- completion.cc ----
  void push(QpContext& qp, Cq* cq, const Cqe& cqe, Completions& of, bool solicited);
  static void lost_by_dead_cq(const QpContext& qp, Completions& of);
  void note_completion(const QpContext& qp, const Cqe& cqe);
  void complete_send(QpContext& qp, WcStatus status, uint16_t vendor_err = 0);
  void complete_recv(QpContext& qp, WcOpcode opcode, const MessageEnd& end);
  void fail_recv(QpContext& qp, WcStatus status, uint16_t vendor_err = 0);
  void reap(QpContext& qp);
  [[gnu::noinline]] void flush(QpContext& qp, uint32_t at, WcStatus status, uint16_t vendor_err = 0);

  // ---- trp_tx.cc: datagrams out ----
  enum class Sent : uint8_t { kYes, kNothing, kNoBuffer };
  bool has_more(const QpContext& qp) const;
  bool transmit(QpContext& qp, unsigned quantum);
  [[gnu::noinline]] bool transmit_answers(QpContext& qp, unsigned quantum);
  Sent send_new(QpContext& qp);
  [[gnu::noinline]] Sent resend(QpContext& qp, uint32_t psn);
  Sent emit(QpContext& qp, uint32_t psn, TxPkt& pkt);
  TxBuf* tx_buffer(PortState& port);
  /// The rest of the datagram in @p buf is that memory, which the port reads where it is. false: it has to be copied.
  bool refer(const PortState& port, TxBuf& buf, const std::byte* to, uint32_t len) {
    if (!port.refers || len < kReferLeast || to == nullptr) return false;
    buf.more = to;
    buf.more_len = len;
    return true;
  }
  void tx_commit(PortState& port, QpContext& qp, size_t len, bool has_psn, uint32_t psn);
  void tx_flush(PortState& port);
  [[gnu::noinline]] void not_sent(QpContext& qp, uint32_t psn);
  [[gnu::noinline]] void sack_not_sent(QpContext& qp);
  void take_turns(QpList& turn);
  /// A DATA goes out that acknowledges all before rcv.nxt(): unless there is more to say, no SACK is owed any more.
  void acknowledged_by_data(QpContext& qp) {
    if (qp.rcv.has_gap() || qp.rq.told()) return;
    qp.ack.settled();
    acks_.settle(qp);
  }
  bool acknowledges_later(QpContext& qp, const TxPkt& pkt) const;
  [[gnu::noinline]] void send_sack(QpContext& qp, uint16_t flags);
  [[gnu::noinline]] void run_acks();
  static uint16_t stamp_at(uint64_t ns) { return static_cast<uint16_t>(ns / 1000); }
  uint16_t stamp() const { return stamp_at(now_); }

  // ---- short_messages.cc ----
  unsigned send_short(QpContext& qp, unsigned most, bool& dry);
  bool receive_short(QpContext& qp, std::span<const std::byte> segment);
  bool place_short(QpContext& qp, std::span<const std::byte> segment);

  // ---- middle_segments.cc ----
  struct Middle;
  unsigned send_middle(QpContext& qp, unsigned most);
  unsigned send_middle(QpContext& qp, const Middle& middle);
  bool middle_of_work(QpContext& qp, uint32_t most, Middle& middle) const;
  bool middle_of_response(QpContext& qp, uint32_t most, Middle& middle) const;
  [[gnu::noinline]] bool receive_middle(QpContext& qp, std::span<const std::byte> segment);
  bool place_write_middle(QpContext& qp, std::span<const std::byte> segment) const;
  bool place_read_middle(QpContext& qp, std::span<const std::byte> segment) const;
  bool place_send_middle(QpContext& qp, std::span<const std::byte> segment) const;
  std::byte* sink(const Sge* only, uint64_t all, uint32_t pd, uint64_t offset, uint32_t len) const;

  // ---- trp_timers.cc ----
  void touch_timer(QpContext& qp, uint64_t at) {
    if (at < qp.deadline) timers_.arm(qp, at);
  }
  [[gnu::noinline]] void on_timer(QpContext& qp);
  void end_unanswered(QpContext& qp);
  void missed_answer(QpContext& qp);
  void lose_oldest(QpContext& qp);
  void on_rto(QpContext& qp);
  void nudge(QpContext& qp);
  void ask_peer(QpContext& qp, bool again);
  [[gnu::noinline]] void nudged(QpContext& qp);
  [[gnu::noinline]] void wire_is_back(const QpContext& heard);
  /// QPs that wait for the end of an outage take turns.
  uint64_t next_nudge() { return nudge_ns_ = std::max(nudge_ns_, now_) + kNudgeNs; }
  void on_rnr_timer(QpContext& qp);
  void lose_late(QpContext& qp);
  static bool is_unused(const QpContext& qp);
  static bool keeps_connection(const QpContext& qp);
  void forget_connection(QpContext& qp);
  static bool wants_nothing(const QpContext& qp);
  void on_keepalive(QpContext& qp);
  void qp_limit(QpContext& qp, const QpLimits& limits);
  void expect_connection(QpContext& qp);
  void on_first_contact(QpContext& qp);
  [[gnu::cold]] bool waited_in_vain(QpContext& qp);
  void rnr_exceeded(QpContext& qp);
  uint64_t limit_of(const QpContext& qp) const;
  uint64_t keepalive_at(const QpContext& qp) const;
  uint64_t probe_at(const QpContext& qp) const;
  uint64_t deadline_of(const QpContext& qp) const;
  void give_up(QpContext& qp);

  // ---- trp_rx.cc: datagrams in ----
  unsigned receive_burst(PortState& p, int port);
  bool receive(int port, RxBuf& buf);
  [[gnu::noinline]] bool drop_unmatched(const RxBuf& buf, usiw_counter why);
  bool says_nothing_new(const QpContext& qp, const TrpHeader& h) const;
  void refused(QpContext& qp, uint32_t psn);
  void owe_ack(QpContext& qp, const TrpHeader& h, bool last, uint64_t silence_ns);
  bool receive_data(QpContext& qp, const TrpHeader& h, int port, RxBuf& buf);
  [[gnu::noinline]] void receive_sack(QpContext& qp, const TrpHeader& h, std::span<const std::byte> bitmap);
  [[gnu::noinline]] void receive_reset(QpContext& qp, const TrpHeader& h);
  [[gnu::noinline]] void receive_dead(QpContext& qp, const TrpHeader& h);
  [[gnu::noinline]] void receive_again(QpContext& qp, const TrpHeader& h);
  Verdict in_order(QpContext& qp, const TrpHeader& h, std::span<const std::byte> payload);
  [[gnu::noinline]] void advance(QpContext& qp);
  [[gnu::noinline]] bool hold(QpContext& qp, uint32_t psn, int port, const RxBuf& buf, RxPkt& later);
  [[gnu::noinline]] void give_back(QpContext& qp, uint16_t held);
  void ack_at_once(QpContext& qp) { acks_.at_once(qp); }

  // ---- sack.cc: acknowledgements and losses ----
  struct AckSummary {
    uint32_t delivered = 0;
    uint64_t newest_sent = 0;
    uint64_t rtt = 0;
    bool spurious = false;   ///< something was resent, or about to be, without need
    uint64_t late = 0;       ///< ns that it took after all; 0: a time-out was the reason, or nothing was
    uint64_t early = 0;      ///< a time-out was needless: how long the acknowledgement took, ns
    bool has_echo = false;
    uint16_t echo = 0;
  };
  bool apply_ack(QpContext& qp, const TrpHeader& h, std::span<const std::byte> bitmap);
  [[gnu::noinline]] void hear_marks(QpContext& qp, uint16_t flags, uint32_t delivered);
  [[gnu::noinline]] void ask_for_marks(QpContext& qp);
  void pause_marks(QpContext& qp);
  void deliver(QpContext& qp, uint32_t psn, bool was_lost, AckSummary& sum);
  void detect_losses(QpContext& qp);
  [[gnu::noinline]] void mark_lost(QpContext& qp, uint32_t psn);
  [[gnu::noinline]] void peer_not_ready(QpContext& qp);

  // ---- rdmap_tx.cc: work requests to segments ----
  bool start_work(QpContext& qp);
  [[gnu::noinline]] void do_local_work(QpContext& qp, SendWqe& wqe);
  bool next_work_packet(QpContext& qp, TxPkt& pkt);
  DdpSegment work_header(const QpContext& qp, uint32_t index, uint32_t offset) const;
  size_t build_work_segment(QpContext& qp, const TxPkt& pkt, TxBuf& buf);
  [[gnu::noinline]] size_t build_immediate(QpContext& qp, const TxPkt& pkt, std::byte* out);
  [[gnu::noinline]] size_t build_atomic_request(QpContext& qp, const TxPkt& pkt, DdpSegment& seg, std::byte* out);
  bool gather(QpContext& qp, uint32_t index, uint32_t offset, uint32_t len, std::byte* out, TxBuf& buf);

  // ---- rdmap_rx.cc: segments to memory ----
  Verdict place(QpContext& qp, const DdpSegment& seg);
  [[gnu::noinline]] Verdict place_early(QpContext& qp, const DdpSegment& seg, RxPkt& later);
  Verdict place_write(QpContext& qp, const DdpSegment& seg);
  Verdict place_read_response(QpContext& qp, const DdpSegment& seg);
  Verdict place_send(QpContext& qp, const DdpSegment& seg, RqWork& work);
  Verdict finish_read_response(QpContext& qp, const DdpSegment& seg);
  [[gnu::noinline]] Verdict place_early_answer(QpContext& qp, const DdpSegment& seg);
  [[gnu::noinline]] void answers_held(QpContext& qp, uint32_t psn, const DdpSegment& seg);
  [[gnu::noinline]] void finish_early_answers(QpContext& qp);
  Verdict place_immediate(QpContext& qp, const DdpSegment& seg);
  [[gnu::noinline]] Verdict place_atomic_response(QpContext& qp, const DdpSegment& seg);
  Verdict finish_message(QpContext& qp, uint32_t msn, const MessageEnd& end);
  bool scatter(uint32_t pd, const Sge* sges, uint32_t num_sge, uint32_t offset, std::span<const std::byte> bytes);
  /// Notes why a segment is refused; always kFault.
  Verdict fault(TermCode code, AsyncEvent event = AsyncEvent::kQpFatal,
                WcStatus recv = WcStatus::kSuccess) {
    fault_ = {code, event, recv};
    return Verdict::kFault;
  }

  // ---- skip.cc: messages that wait for a receive are no obstacle to responses ----
  [[gnu::noinline]] void ask_to_skip(QpContext& qp);
  [[gnu::noinline]] void asked_to_skip(QpContext& qp, bool skipped);
  static size_t build_nothing(std::byte* out);
  [[gnu::noinline]] void skip(QpContext& qp);
  static bool comes_again(const QpContext& qp, const DdpSegment& seg);
  static bool may_come_again(const DdpSegment& seg);
  static void skipped_no_more(QpContext& qp);

  // ---- srq.cc: shared receive queues ----
  Srq* srq_create(const SrqAttr& attr);
  int srq_resize(SrqContext& srq, uint32_t max_wr);
  void srq_destroy(SrqContext& srq);
  [[gnu::noinline]] void serve_waiting(SrqContext& srq);
  [[gnu::noinline]] void leave_waiting(QpContext& qp);
  enum class Awaited : uint8_t { kTaken, kNotReady, kTooLong };
  [[gnu::noinline]] Awaited await_receive(QpContext& qp);

  // ---- read_responder.cc ----
  [[gnu::noinline]] void end_arrived_jobs(QpContext& qp);
  Verdict judge_request(QpContext& qp, const DdpSegment& seg, size_t bytes);
  Verdict accept_read_request(QpContext& qp, const DdpSegment& seg);
  [[gnu::noinline]] Verdict accept_atomic_request(QpContext& qp, const DdpSegment& seg);
  static DdpSegment response_header(const ReadRequest& request, const TxPkt& pkt);
  size_t build_response_segment(QpContext& qp, uint32_t psn, TxPkt& pkt, TxBuf& buf);

  // ---- terminate.cc ----
  [[gnu::noinline]] void terminate(QpContext& qp, const DdpSegment* seg);
  [[gnu::noinline]] void terminate_read_job(QpContext& qp, const Job& job, TermCode code);
  [[gnu::noinline]] void start_terminating(QpContext& qp, AsyncEvent event);
  [[gnu::noinline]] size_t build_terminate(QpContext& qp, std::byte* out);
  [[gnu::noinline]] void receive_terminate(QpContext& qp, const DdpSegment& seg, uint32_t ack_psn);

  Clock& clock_;
  EngineEvents& events_;
  __u64* counters_;
  bool tracing_ = false;  ///< tracer_.on() as of the beginning of this run
  Tracer tracer_;
  uint64_t now_ = 0;  ///< read twice per run
  DoorbellList doorbells_;
  PolledTable polled_;
  MrTable mrs_;
  uint64_t streams_ = 0;  ///< connections so far
  FlowTable<QpContext> flows_;
  TimerHeap timers_;
  std::vector<PortState> ports_;
  std::vector<QpContext*> qps_;
  std::vector<Cq*> cqs_;
  std::vector<SrqContext*> srqs_;
  QpList active_;  ///< may have something to send
  AckQueue acks_;
  unsigned sent_ = 0;     ///< datagrams in this run
  uint64_t nudge_ns_ = 0;  ///< the last turn that next_nudge() has given away
  uint64_t back_ns_ = 0;   ///< the last wire_is_back()
  bool overrun_ = false;  ///< a CQ died in this run
  bool more_rx_ = false;  ///< the last burst was full
  bool port_full_ = false;  ///< a port took less than it was offered in the last run
  bool took_ = false;       ///< a port has taken some datagrams in this run
  unsigned stuck_runs_ = 0;  ///< in a row, in which full ports have taken nothing
  unsigned timers_skipped_ = 0;  ///< runs without timers because of that
  QpContext* last_flow_ = nullptr;  ///< of the datagram before: bursts come from one peer

  /// Why the segment at hand is refused, and the event that goes with it.
  struct Fault {
    TermCode code;
    AsyncEvent event;
    WcStatus recv;  ///< not kSuccess: the oldest receive completes with it
  } fault_{};

  /// Buffers kept beyond their burst.
  struct Held {
    RxBuf buf;
    int port;
  };
  uint64_t patience_ = Engine::kPatienceNs;   ///< ns; set_patience()
  std::array<Held, Port::kMaxHeld> held_;
  std::array<uint16_t, Port::kMaxHeld> held_free_;
  size_t held_free_count_ = Port::kMaxHeld;
};

}  // namespace usiw

#endif  // USIW_ENGINE_ENGINE_IMPL_H
