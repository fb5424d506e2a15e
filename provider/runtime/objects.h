// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file objects.h
/// The provider's objects. Each begins with the library's structure, so a pointer to one
/// is a pointer to the other.
#ifndef USIW_RUNTIME_OBJECTS_H
#define USIW_RUNTIME_OBJECTS_H

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/turn.h"
#include "engine/engine.h"
#include "port/moves.h"
#include "runtime/glue.h"
#include "runtime/qp_timers.h"
#include "uapi/usiw_abi.h"

namespace usiw {

class Context;
class NetPort;
class Runtime;
struct VCq;
struct VQp;
struct VSrq;

/// Something that the engine has reported and that the kernel must hear. Part of its CQ,
/// SRQ or QP, so that noting it down needs no memory; it is queued at most once.
struct Pending {
  Pending* next = nullptr;
  bool queued = false;
  VCq* cq = nullptr;  ///< one of cq, srq and qp is set
  VSrq* srq = nullptr;
  VQp* qp = nullptr;
  usiw_cq_event_kind kind = USIW_CQ_COMPLETION;  ///< cq
  usiw_qp_report report{};                       ///< qp
};

struct VTd {
  ibv_td ibv;
  std::atomic<uint32_t> users;  ///< parent domains
};

struct VPd {
  ibv_pd ibv;
  uint32_t number;  ///< unique in the runtime (uverbs handles are unique per context only)
  std::atomic<uint32_t> users;  ///< objects made with it and parent domains of it

  // Of a parent domain (ibv_alloc_parent_domain()), which has its PD's number and handle.
  VPd* extends;  ///< its PD; nullptr: this is a PD
  VTd* td;       ///< or nullptr
  decltype(ibv_parent_domain_init_attr::alloc) alloc;  ///< or nullptr: as without
  decltype(ibv_parent_domain_init_attr::free) free;
  void* pd_context;

  bool one_thread() const { return td != nullptr; }
};

/// What a parent domain's allocator is told that the memory is for: the lower half of its resource_type, of which the
/// upper half is USIW_DRIVER_ID.
enum class RingKind : uint32_t { kSend = 1, kRecv = 2, kCompletion = 3 };

/// Memory for a ring by the allocator of a parent domain, which outlives it (verbs/domains.cc).
class DomainMemory {
 public:
  /// 0, or ENOMEM as the allocator says. There may be none behind it: at() is nullptr then, and who needs memory takes
  /// his own. @p domain may be nullptr.
  int allocate(VPd* domain, size_t bytes, RingKind kind);
  void free();
  std::byte* at() const { return at_; }

 private:
  VPd* domain_ = nullptr;
  std::byte* at_ = nullptr;
  RingKind kind_ = RingKind::kSend;
};

struct VMr {
  ibv_mr ibv;
  std::byte library_room[USIW_VERBS_MR_SIZE - sizeof(ibv_mr)];
  VPd* domain;      ///< that it was made with, or registered anew with. Under the regions' lock, as the next two
  unsigned access;  ///< as asked for
  MrAttr attr;      ///< as the engine has it
  bool null;        ///< has no memory
};
static_assert(offsetof(VMr, domain) == USIW_VERBS_MR_SIZE);

struct VMw {
  ibv_mw ibv;
  VPd* domain;  ///< that it was made with
};
static_assert(offsetof(VMw, ibv) == 0);

struct VCq {
  union {
    ibv_cq_ex ex;  ///< its functions are set for who has asked for them (ibv_create_cq_ex())
    ibv_cq ibv;
  };
  Context* context;
  Runtime* runtime;
  Cq* cq;
  Turn turn;              ///< of consumers
  unsigned empty_polls;   ///< in a row; in turn or roughly right
  VPd* domain;            ///< the parent domain that it was made with, or nullptr
  DomainMemory ring;      ///< where it lies, if the parent domain says so
  bool shows;             ///< ibv_start_poll() or ibv_next_poll() shows a completion, the one that follows. In turn
  Cqe shown;
  uint64_t shown_ns;      ///< when it was pushed
  std::atomic<uint32_t> pins;  ///< uses by the event path; freed only at 0
  Pending completion, overrun;
};
static_assert(offsetof(VCq, ibv) == 0 && offsetof(VCq, ex) == 0);

struct VSrq {
  union {
    ibv_srq ibv;
    std::byte library_room[USIW_VERBS_SRQ_BYTES];
  };
  Context* context;
  Runtime* runtime;
  Srq* srq;
  VPd* domain;
  Turn turn;  ///< of producers
  std::atomic<uint32_t> pins;
  Pending limit;
};
static_assert(offsetof(VSrq, ibv) == 0);

/// Work requests from ibv_wr_start() on.
struct Batch {
  Qp::SendWr wr;   ///< the last one that was begun
  uint32_t count;  ///< how many have been written
  bool begun;      ///< wr has not been written: its data comes
  bool small;      ///< the last one that was written moves little
  int error;       ///< what ibv_wr_complete() will say
};

struct VQp {
  /// A port that gets what is sent to the QP.
  struct By {
    NetPort* port = nullptr;  ///< or none
    int number = -1;          ///< the engine's
  };
  union {
    std::byte library_room[USIW_VERBS_QP_BYTES];  ///< first, so that all of it is zero in a new QP
    ibv_qp ibv;
    ibv_qp_ex ex;  ///< its functions are set for who has asked for them (ibv_create_qp_ex())
  };
  Context* context;
  Runtime* runtime;
  Qp* qp;
  usiw_qp_stats* stats;  ///< the kernel's page of this QP, USIW_COUNTERS_SIZE bytes; or null
  Turn send_turn, recv_turn;  ///< of producers
  unsigned behind;  ///< posts in a row that wait for the next run of the engine. In send_turn
  bool faults;      ///< work requests of a batch may be made to fail (verbs/post.h)
  /// The last state of Qp::state() in which a send is refused: kRts on the RoCE face until the program sets RTS, else
  /// kIdle.
  std::atomic<QpState> refused;
  Batch batch;      ///< in send_turn
  QpTimers timers;  ///< if the QP connects by itself. Only modify_qp uses them
  VPd* domain;      ///< that it was made with
  DomainMemory send_ring, recv_ring;  ///< where they lie, if the domain says so
  ibv_qp_cap cap;
  bool sq_sig_all;
  std::atomic<uint32_t> pins;
  uint32_t conn_id;  ///< of the installed connection; 0 for none. Engine held.
  By packet, socket; ///< one of them, or both; the second may share memory, too. Runtime's port lock and engine held
  Path path;         ///< as the ports know it. Engine held
  PortMoves moves;   ///< by which of them it sends. Engine held
  Pending connected, peer_closed, closed, failed, last_wqe, drained, sends_by;
  std::atomic<bool> told_socket;  ///< the kernel knows that it sends by its socket; nothing else is to be said

  const By& by() const { return moves.present().kind == PortKind::kPacket ? packet : socket; }
  const By& other() const { return moves.present().kind == PortKind::kPacket ? socket : packet; }
};
static_assert(offsetof(VQp, ibv) == 0 && offsetof(VQp, ex) == 0 && sizeof(ibv_qp_ex) <= USIW_VERBS_QP_BYTES);

inline VTd* from(ibv_td* p) { return reinterpret_cast<VTd*>(p); }
inline VPd* from(ibv_pd* p) { return reinterpret_cast<VPd*>(p); }
inline VMr* from(ibv_mr* p) { return reinterpret_cast<VMr*>(p); }
inline VMw* from(ibv_mw* p) { return reinterpret_cast<VMw*>(p); }
inline VCq* from(ibv_cq* p) { return reinterpret_cast<VCq*>(p); }
inline VSrq* from(ibv_srq* p) { return reinterpret_cast<VSrq*>(p); }
inline VQp* from(ibv_qp* p) { return reinterpret_cast<VQp*>(p); }

}  // namespace usiw

#endif  // USIW_RUNTIME_OBJECTS_H
