// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine.h
/// The transport engine: TRP, DDP, RDMAP, queue pairs and completions for one
/// process and device. Single-threaded, run to completion: whoever "holds the
/// engine" (see progress/) may call what is not marked [any thread]. It makes no
/// system call, takes no lock and allocates nothing in progress().
#ifndef USIW_ENGINE_ENGINE_H
#define USIW_ENGINE_ENGINE_H

#include <cstdint>
#include <memory>
#include <span>

#include "engine/cq.h"
#include "engine/qp.h"
#include "engine/srq.h"
#include "engine/types.h"
#include "engine/port.h"

namespace usiw {

/// What the engine tells its owner. Called from progress() and from the control
/// calls, with the engine held: note it down and act after letting go.
class EngineEvents {
 public:
  virtual ~EngineEvents() = default;
  /// An armed CQ got a completion that it was armed for; it is disarmed now.
  virtual void cq_ready(Cq& cq) = 0;
  /// The CQ was full when a completion came: the CQ is dead, its QPs go to ERROR.
  virtual void cq_overrun(Cq& cq) = 0;
  /// The peer's SHUTDOWN has arrived in sequence; everything is flushed, QP in ERROR.
  virtual void qp_peer_closed(Qp& qp) = 0;
  /// Own SHUTDOWN acknowledged (or given up on after bounded retries); QP in ERROR, flushed.
  virtual void qp_closed(Qp& qp) = 0;
  /// The QP went to ERROR by itself and is flushed, also in place of qp_closed() before SHUTDOWN was sent. @p error as
  /// in usiw_qp_report; @p event is the async event that goes with it (None for the requester's side).
  virtual void qp_failed(Qp& qp, int error, AsyncEvent event) = 0;

  /// The QP, which is in ERROR and flushed, takes nothing more from its SRQ: once for each connection of a QP with one.
  virtual void qp_last_wqe(Qp& qp) { (void)qp; }
  /// Fewer work requests are in the SRQ than srq_arm() has said; it is not armed any more.
  virtual void srq_limit(Srq& srq) { (void)srq; }
  /// Behind qp_pause() with the wish to be told: all that was posted has completed.
  virtual void qp_drained(Qp& qp) { (void)qp; }

  /// By which of its two ports shall a connection go on?
  struct PortAsked {
    bool silent;       ///< nothing gets through as it goes now; else the time for a review has come
    uint32_t longest;  ///< IP packet of the longest datagram that is not acknowledged, bytes
    uint64_t now;
    bool long_messages = false;  ///< most of what is sent and received belongs to long messages
  };
  struct PortAnswer {
    int port = -1;                    ///< -1: as it does
    uint64_t review_at = UINT64_MAX;  ///< when to be asked again even if all goes well
    bool merging = false;  ///< that port takes merged datagrams: the peer is told
    bool alone = false;    ///< nothing that the other one brings is taken
  };
  /// Only of a connection that has two (qp_also()), or merges.
  virtual PortAnswer qp_which_port(Qp& qp, const PortAsked& asked) {
    (void)qp, (void)asked;
    return {};
  }
};

class Engine {
 public:
  /// @p counters: USIW_CNT_MAX 64-bit counters, only added to by the engine.
  Engine(Clock& clock, EngineEvents& events, uint64_t* counters);
  /// Destroys the QPs, SRQs and CQs that are left. It may still call @p events about them: what those calls reach must
  /// exist until it returns.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- Control path: engine held; may allocate ----

  /// Records into @p memory, which Tracer::format() has prepared, and which must outlive the
  /// engine. Before the first QP.
  void trace_into(std::span<std::byte> memory);

  /// How long nothing may come of a peer that is waited for, ns, before it counts as gone.
  void set_patience(uint64_t ns);
  static constexpr uint64_t kPatienceNs = 4'000'000'000;

  /// The port stays the caller's and must outlive the engine's use of it. Returns its number; -1: out of memory.
  int add_port(Port& port);
  /// Takes back the last add_port(). No QP has used the port.
  void remove_last_port();

  /// Returns 0, EEXIST or ENOMEM. @p attr.stag is the kernel's.
  int mr_add(const MrAttr& attr);
  /// A region without memory: what is read is zeros, what is written vanishes. As mr_add().
  int mr_add_null(uint32_t stag, uint32_t pd);
  /// No window is bound to it from here on: the kernel may be asked to change or remove it. 0, ENOENT, or EBUSY: one
  /// is.
  int mr_close(uint32_t stag);
  void mr_reopen(uint32_t stag);
  /// Behind mr_close(): the region @p stag is @p now from here on, with the same index. 0, ENOENT, EBUSY or EINVAL.
  int mr_change(uint32_t stag, const MrAttr& now);
  /// After it returns the memory is not touched again. 0, ENOENT, or EBUSY: a window is bound to it.
  int mr_remove(uint32_t stag);
  /// Where @p to of a region lies, if @p len bytes from there on have all rights in @p access; else nullptr, and why.
  std::byte* mr_find(uint32_t stag, uint32_t pd, uint32_t access, uint64_t to, uint32_t len, MrFault& fault) const;

  /// 0, EEXIST or ENOMEM. @p attr.stag is the kernel's.
  int mw_add(const WindowAttr& attr);
  /// Unbinds it. @p stag: with any key. 0 or ENOENT.
  int mw_remove(uint32_t stag);

  /// nullptr when out of memory. Capacities are rounded up to powers of two.
  Cq* cq_create(uint32_t capacity, void* owner, const CqOptions& options = {});
  /// Of the consumer, whose turn it is: completions are kept, in order. 0; EINVAL: no room for what is in it, or it has
  /// overrun; ENOMEM. What front() has shown is in another place then. @p memory as in CqOptions; that of before is
  /// free then.
  int cq_resize(Cq* cq, uint32_t capacity, std::byte* memory = nullptr);
  /// Removes the completions of the QP @p qpn that have not been polled. The caller keeps consumers out, as for
  /// cq_resize().
  void cq_forget(Cq* cq, uint32_t qpn);
  void cq_destroy(Cq* cq);  ///< no QP uses it any more

  /// nullptr when out of memory. The capacity is rounded up to a power of two.
  Srq* srq_create(const SrqAttr& attr);
  /// Of the producer, whose turn it is: work requests are kept, in order, also those that QPs have taken. The capacity
  /// is rounded up to a power of two. 0; EINVAL: no room for what is posted and not complete; ENOMEM. Then nothing has
  /// changed.
  int srq_resize(Srq* srq, uint32_t max_wr);
  /// EngineEvents::srq_limit() once when fewer than @p limit work requests are in the SRQ, at once if they are.
  /// 0: never.
  void srq_arm(Srq* srq, uint32_t limit);
  /// What it is armed with; 0: it is not.
  uint32_t srq_limit(const Srq* srq) const;
  void srq_destroy(Srq* srq);  ///< no QP uses it any more

  Qp* qp_create(const QpAttr& attr);
  /// What the rings of such a QP take.
  struct RingBytes {
    size_t send, recv;
  };
  static RingBytes ring_bytes(const QpAttr& attr);
  /// Flushes nothing: the queues are gone with it. What it has taken from an SRQ goes back there. Tells nobody.
  void qp_destroy(Qp* qp);

  /// Installs a connection: the QP goes to RTS. 0, EISCONN (not Idle, but a silent connection may take the place of one
  /// that has not been used), EADDRINUSE (4-tuple taken), EINVAL, ENOMEM.
  int qp_connect(Qp* qp, int port, const Path& path, const ConnAttr& conn);
  /// Returns true if the QP has a silent connection in whose place qp_connect() does not install another one.
  bool qp_keeps_connection(Qp* qp) const;
  /// From now on the QP waits so long. Only of a QP whose connection is silent, or will be. qp_reset() ends that. A QP
  /// that has waited in vain fails: kRetryExcErr, or kRnrRetryExcErr.
  void qp_limit(Qp* qp, const QpLimits& limits);
  /// What the peer may ask for from here on, whatever its regions allow: Access bits, as rights_of() reads them. 0 at a
  /// QP without a connection: what rdma_cm's connections have (kAccessOfConnection).
  void qp_permit(Qp* qp, uint32_t access);
  uint32_t qp_access(const Qp* qp) const;

  /// Verbs' SQD: the send queue takes no more than what is posted by now; what is posted later waits for qp_resume().
  /// With @p tell qp_drained() says when all has completed, at once if it has. All else goes on. Of a QP that is not in
  /// kRts nothing is changed.
  void qp_pause(Qp* qp, bool tell);
  void qp_resume(Qp* qp);
  /// The send queue is to take no more, and has work that has not completed.
  bool qp_draining(Qp* qp) const;
  /// Orderly: drains the send queue, SHUTDOWN, then qp_closed(). QP state Closing (SQD).
  /// May be called at any state; a QP without a connection answers qp_closed() at once.
  void qp_shutdown(Qp* qp);
  /// At once: no packet is sent, everything is flushed, QP in ERROR. No event but completions,
  /// and qp_failed() when a Terminate of this end was on its way, for its async event.
  void qp_abort(Qp* qp);
  /// At once, from any state to Idle: the queues are emptied without completions.
  void qp_reset(Qp* qp);
  /// Sends the acknowledgement that this end may still owe its peer: before the QP is given up on this
  /// end's own account, so that what the program has been told of is complete at the peer, too.
  void qp_acknowledge(Qp* qp);
  void qp_probe(Qp* qp);    ///< send the peer a keepalive probe now
  /// A second port: what it brings for the connection is taken as well, and the connection may move to it. 0, or
  /// EINVAL: no connection, no such port, or one that has no room for what the connection's MTU allows.
  int qp_also(Qp* qp, int port);
  /// The connection goes on by one of its two ports: what is outstanding stays as it was cut, nothing is lost.
  /// Another port than now is another way, of which nothing is known: RTT and congestion window start anew.
  void qp_move(Qp* qp, const EngineEvents::PortAnswer& to);
  /// The way has changed: MACs and what the ports keep in @p path (its flow is the connection's), and the path MTU
  /// (no more than the connection's is used), by which segments are cut from now on.
  void qp_path(Qp* qp, const Path& path, uint32_t mtu);
  /// What qp_which_port() would be asked now, but for silence.
  EngineEvents::PortAsked qp_ways(Qp* qp) const;

  // ---- Data path: engine held ----

  /// One run: posted work, receive, acknowledge, complete, send, timers. Returns the
  /// units of work done (0: nothing was to do).
  unsigned progress();
  /// When progress() must run again though nothing arrives and nothing is posted:
  /// absolute ns, UINT64_MAX for never, 0 for at once. Valid after progress().
  uint64_t next_deadline_ns() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_ENGINE_H
