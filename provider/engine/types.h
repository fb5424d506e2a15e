// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file types.h
/// Plain types shared by the engine's parts and its users. No verbs types: values
/// equal those of ibverbs where that makes translation free, which verbs/ asserts.
#ifndef USIW_ENGINE_TYPES_H
#define USIW_ENGINE_TYPES_H

#include <cstddef>
#include <cstdint>

#include "uapi/usiw_abi.h"

namespace usiw {

class Cq;
class Qp;
class Srq;

/// Completion status; values of enum ibv_wc_status.
enum class WcStatus : uint8_t {
  kSuccess = 0,
  kLocLenErr = 1,
  kLocQpOpErr = 2,
  kLocProtErr = 4,
  kWrFlushErr = 5,
  kMwBindErr = 6,
  kBadRespErr = 7,
  kLocAccessErr = 8,
  kRemInvReqErr = 9,
  kRemAccessErr = 10,
  kRemOpErr = 11,
  kRetryExcErr = 12,
  kRnrRetryExcErr = 13,
  kRemAbortErr = 16,
  kFatalErr = 19,
  kGeneralErr = 21,
};

/// Completion opcode; values of enum ibv_wc_opcode.
enum class WcOpcode : uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kLocalInv = 6,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
};

/// What else a completion holds; values of enum ibv_wc_flags.
enum WcFlags : uint8_t { kWcWithImm = 2, kWcWithInv = 8 };

/// Send work request opcode; values of enum ibv_wr_opcode.
enum class WrOpcode : uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteImm = 1,
  kSend = 2,
  kSendImm = 3,
  kRdmaRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInv = 7,
  kBindMw = 8,
  kSendInv = 9,
};

/// Send work request flags; values of enum ibv_send_flags.
enum WrFlags : uint8_t { kWrFence = 1, kWrSignaled = 2, kWrSolicited = 4, kWrInline = 8 };

/// Memory access rights; values of enum ibv_access_flags.
enum Access : uint32_t {
  kAccessLocalWrite = 1,
  kAccessRemoteWrite = 2,
  kAccessRemoteRead = 4,
  kAccessRemoteAtomic = 8,
  kAccessMwBind = 16,
  kAccessZeroBased = 32,  ///< of a window: its TO counts from 0
  kAccessOnDemand = 64,   ///< of a region: mapped or not at any moment
};

/// What iw_cm says of a QP that rdma_cm connects.
inline constexpr uint32_t kAccessOfConnection = kAccessRemoteWrite | kAccessRemoteRead;

/// The rights of a peer. A QP without a connection manager grants those that its program has set, and no others.
inline constexpr uint32_t kAccessOfPeer = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

/// What a peer may do by the access flags of a QP. iw_cm has no word for atomics: what may be read and written may be
/// both at a time.
constexpr uint32_t rights_of(uint32_t qp_access) {
  const uint32_t rights = qp_access & kAccessOfPeer;
  return (rights & kAccessOfConnection) == kAccessOfConnection ? rights | kAccessRemoteAtomic : rights;
}

/// Why an STag and an address do not name memory.
enum class MrFault : uint8_t { kNone, kStag, kPd, kAccess, kBounds, kWrap };

/// Async events of a QP; values of enum ibv_event_type.
enum class AsyncEvent : int32_t { kNone = -1, kQpFatal = 1, kQpReqErr = 2, kQpAccessErr = 3 };

enum class QpState : uint8_t { kIdle, kRts, kClosing, kError };

/// One scatter/gather element. Slots hold lkeys, never raw pointers.
struct Sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

struct MrAttr {
  uint32_t stag;    ///< (index << 8) | key
  uint32_t pd;      ///< protection domain handle of the owner
  uint32_t access;  ///< Access bits
  uint64_t addr;    ///< virtual address of the first byte
  uint64_t length;  ///< bytes
  uint64_t iova;    ///< TO of the first byte as peers and SGEs name it (== addr as a rule)
};

/// A memory window, not bound yet.
struct WindowAttr {
  uint32_t stag;  ///< any key
  uint32_t pd;
  bool type2;
};

/// What a window is to become.
struct WindowBind {
  uint32_t stag;    ///< its index with the new key
  bool type2;       ///< asked for by a work request of type 2
  uint32_t region;  ///< lkey
  uint32_t access;  ///< remote rights, kAccessZeroBased
  uint64_t addr;    ///< as SGEs name it
  uint64_t length;  ///< bytes
};

struct QpAttr {
  uint32_t qpn;
  uint32_t pd;
  Cq* send_cq;
  Cq* recv_cq;
  uint32_t max_send_wr;   ///< work requests, not 0
  uint32_t max_recv_wr;   ///< work requests, not 0; without meaning, as the next but one, where there is an srq
  uint32_t max_send_sge;  ///< 1..USIW_MAX_SGE
  uint32_t max_recv_sge;
  uint32_t max_inline;    ///< bytes, up to USIW_MAX_INLINE
  bool sq_sig_all;
  void* owner;            ///< the caller's; Qp::owner()
  usiw_qp_stats* stats = nullptr;  ///< where the QP counts; only written. nullptr: nowhere
  /// Memory of Engine::ring_bytes(), zeros, until the QP is gone; nullptr: the engine's own.
  std::byte* send_ring = nullptr;
  std::byte* recv_ring = nullptr;
  Srq* srq = nullptr;     ///< from which it takes its receive work requests; nullptr: it has a queue of its own
};

struct SrqAttr {
  uint32_t pd;       ///< of the memory that its SGEs name, whatever the QPs' is
  uint32_t max_wr;   ///< work requests, 1..USIW_MAX_SRQ_WR
  uint32_t max_sge;  ///< up to USIW_MAX_SGE
  void* owner;       ///< the caller's; Srq::owner()
};

/// A connection as negotiated by the handshake.
struct ConnAttr {
  uint32_t snd_psn;     ///< first PSN to send
  uint32_t rcv_psn;     ///< first PSN expected
  uint32_t snd_window;  ///< datagrams the peer accepts at first
  uint16_t ird;         ///< READs of the peer served at a time
  uint16_t ord;         ///< own READs outstanding at a time
  uint16_t mtu;         ///< IP MTU, bytes
  bool initiator;
  bool merges = false;  ///< either end may take merged datagrams for a while, and tells by its headers
  uint16_t handshake_mtu = 0;  ///< bytes, the same at both ends: no datagram of either is longer; 0: mtu
  bool silent = false;         ///< an idle peer may be silent for ever, and a stray RESET means nothing (docs/face.md)
};

/// How long a QP without a connection manager waits, ns, and how much it reads at a time. UINT64_MAX: for ever.
struct QpLimits {
  uint64_t retry_ns;  ///< for the peer: until it acknowledges, or answers a READ
  uint64_t rnr_ns;    ///< for a receive work request of the peer
  uint64_t first_ns;  ///< for the connection, from the first send work request on
  uint16_t ord;       ///< own READs and atomics outstanding at a time, besides ConnAttr::ord
};

/// A completion as poll_cq takes it out of the ring.
struct Cqe {
  uint64_t wr_id;
  uint32_t byte_len;
  uint32_t qpn;
  uint32_t imm;  ///< kWcWithImm: the immediate data, big endian; kWcWithInv: the STag invalidated
  WcStatus status;
  WcOpcode opcode;
  uint16_t vendor_err;  ///< 0, or vendor_err_of() the Terminate that it comes of
  uint8_t flags;        ///< WcFlags
};

}  // namespace usiw

#endif  // USIW_ENGINE_TYPES_H
