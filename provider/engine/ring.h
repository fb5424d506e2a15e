// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ring.h
/// Memory layout of the work rings and the doorbell list. A ring is an array of
/// work queue elements (WQEs), each a fixed number of 64-byte slots, a power of two
/// of them. There are no shared indices: the valid flag inside the WQE passes it
/// from producer (0 -> 1, release) to engine (1 -> 0, release), so a hand-over costs
/// one cache line transfer. Each side keeps its own position privately.
///
/// The engine treats what a WQE holds as hostile: it takes a snapshot, then checks
/// the snapshot (see snapshot()).
#ifndef USIW_ENGINE_RING_H
#define USIW_ENGINE_RING_H

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "engine/types.h"
#include "uapi/usiw_abi.h"

namespace usiw {

inline constexpr size_t kSlotBytes = 64;

/// What an atomic works with.
struct AtomicOperands {
  uint64_t compare_add;  ///< compare-and-swap: what is expected; fetch-and-add: what is added
  uint64_t swap;         ///< compare-and-swap only
};

/// The rest of what a window is bound to, in place of the first SGE. remote_addr is the address, rkey the new name.
struct BindDetails {
  uint64_t length;
  uint32_t access;  ///< rights of the window, kAccessZeroBased
  uint32_t region;  ///< lkey
};
static_assert(sizeof(BindDetails) == sizeof(Sge));

/// Head of a send WQE; SGEs or inline bytes follow it, and the operands of an atomic its one SGE.
struct SendWqe {
  std::atomic<uint32_t> valid;
  uint8_t opcode;  ///< WrOpcode
  uint8_t flags;   ///< WrFlags
  uint16_t count;  ///< SGEs behind the head; with kWrInline bytes
  uint64_t wr_id;
  uint64_t remote_addr;  ///< of what the peer's memory is named for
  uint32_t rkey;         ///< the same
  uint32_t imm;          ///< immediate data, big endian; or an STag to invalidate; or 1 for a bind of type 2

  Sge* sges() { return reinterpret_cast<Sge*>(this + 1); }
  std::byte* inline_data() { return reinterpret_cast<std::byte*>(this + 1); }
  const Sge* sges() const { return reinterpret_cast<const Sge*>(this + 1); }
  const std::byte* inline_data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  BindDetails* bind() { return reinterpret_cast<BindDetails*>(this + 1); }
  AtomicOperands* operands() { return reinterpret_cast<AtomicOperands*>(sges() + 1); }
};
static_assert(sizeof(SendWqe) == 32, "two SGEs or 32 inline bytes share the first slot");
static_assert(sizeof(SendWqe) + sizeof(Sge) + sizeof(AtomicOperands) <= kSlotBytes, "every tail has room for operands");
static_assert(USIW_MAX_INLINE <= UINT16_MAX);

/// Head of a receive WQE; SGEs follow it.
struct RecvWqe {
  std::atomic<uint32_t> valid;
  uint8_t num_sge;
  uint8_t reserved[3];
  uint64_t wr_id;

  Sge* sges() { return reinterpret_cast<Sge*>(this + 1); }
  const Sge* sges() const { return reinterpret_cast<const Sge*>(this + 1); }
};
static_assert(sizeof(RecvWqe) == 16, "three SGEs share the first slot");
static_assert(std::atomic<uint32_t>::is_always_lock_free);

/// Reads what another thread or process may be changing, once: the compiler cannot read it again behind the checks of
/// what was read. It is no barrier, so that all else may stay in registers.
template <typename T>
inline T read_once(const T& shared) {
  static_assert(std::is_integral_v<T>);
  return *static_cast<const volatile T*>(&shared);
}
/// The same of a structure, piece by piece.
template <typename T>
inline void snapshot(T* dst, const T* src) {
  static_assert(std::is_trivially_copyable_v<T>);
  using Piece = std::conditional_t<alignof(T) % 8 == 0, uint64_t,
                                   std::conditional_t<alignof(T) % 4 == 0, uint32_t, uint8_t>>;
  typedef Piece __attribute__((may_alias)) Alias;
  Piece pieces[sizeof(T) / sizeof(Piece)];
  const auto* from = reinterpret_cast<const volatile Alias*>(src);
  for (size_t i = 0; i < std::size(pieces); ++i) pieces[i] = from[i];
  std::memcpy(static_cast<void*>(dst), pieces, sizeof(T));
}

/// Smallest power of two that is >= @p n (n > 0).
constexpr uint32_t round_up_pow2(uint32_t n) {
  uint32_t p = 1;
  while (p < n) p <<= 1;
  return p;
}

/// Cache-line aligned memory for a T that needs no constructor.
template <typename T, bool kZeroed>
class AlignedArray {
 public:
  AlignedArray() = default;
  AlignedArray(AlignedArray&& o) noexcept { *this = std::move(o); }
  AlignedArray& operator=(AlignedArray&& o) noexcept {
    std::swap(raw_, o.raw_);
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~AlignedArray() { std::free(raw_); }

  /// false when out of memory; what was there before is gone.
  bool allocate(size_t n) {
    std::free(raw_);
    size_ = 0;
    data_ = nullptr;
    const size_t bytes = n * sizeof(T) + kSlotBytes;
    raw_ = kZeroed ? std::calloc(1, bytes) : std::malloc(bytes);
    if (raw_ == nullptr) return false;
    const auto addr = (reinterpret_cast<uintptr_t>(raw_) + kSlotBytes - 1) & ~(kSlotBytes - 1);
    data_ = reinterpret_cast<T*>(addr);
    size_ = n;
    return true;
  }
  /// Memory that somebody else frees, later than this: zeros, aligned, for @p n.
  void borrow(std::byte* memory, size_t n) {
    std::free(raw_);
    raw_ = nullptr;
    data_ = reinterpret_cast<T*>(memory);
    size_ = n;
  }
  void clear() { std::memset(static_cast<void*>(data_), 0, size_ * sizeof(T)); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* data() { return data_; }
  size_t size() const { return size_; }

 private:
  void* raw_ = nullptr;
  T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
using ZeroedArray = AlignedArray<T, true>;
/// Read only where it has been written before: calloc() would write to all of it, and a connection that never uses it
/// would take its pages.
template <typename T>
using UnsetArray = AlignedArray<T, false>;

/// Ring of WQEs of type W (SendWqe or RecvWqe) with their tails.
template <typename W>
class WqeRing {
 public:
  /// @p entries: wanted capacity, rounded up to a power of two; @p tail_bytes: room for
  /// SGEs or inline data behind each head. @p memory: bytes() to lie in, as AlignedArray::borrow() takes it; or
  /// nullptr.
  bool allocate(uint32_t entries, size_t tail_bytes, std::byte* memory = nullptr) {
    const uint32_t cap = round_up_pow2(entries);
    stride_ = stride(tail_bytes);
    if (memory != nullptr)
      bytes_.borrow(memory, cap * stride_);
    else if (!bytes_.allocate(cap * stride_))
      return false;
    mask_ = cap - 1;
    return true;
  }
  /// What a ring like this takes.
  static size_t bytes(uint32_t entries, size_t tail_bytes) { return round_up_pow2(entries) * stride(tail_bytes); }
  /// @p index runs freely; it is reduced to the ring here.
  W& at(uint32_t index) {
    return *reinterpret_cast<W*>(bytes_.data() + size_t{index & mask_} * stride_);
  }
  uint32_t capacity() const { return mask_ + 1; }
  size_t tail_bytes() const { return stride_ - sizeof(W); }
  void clear() { bytes_.clear(); }
  /// All of one, of a ring with tails as long.
  void copy(uint32_t to, WqeRing& from, uint32_t index) {
    std::memcpy(static_cast<void*>(&at(to)), static_cast<const void*>(&from.at(index)), stride_);
  }

 private:
  static constexpr size_t stride(size_t tail_bytes) {
    return (sizeof(W) + tail_bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
  }

  ZeroedArray<std::byte> bytes_;
  size_t stride_ = 0;
  uint32_t mask_ = 0;
};

/// The doorbell of a QP or an SRQ, which has news for the engine.
struct Doorbell {
  std::atomic<bool> queued{false};  ///< in the list
  Doorbell* next = nullptr;
  Qp* qp = nullptr;                 ///< whose it is ...
  Srq* srq = nullptr;               ///< ... one of them
};

/// Lock-free list of doorbells: many producers, the engine takes all at once. Each is in it at most once, so idle QPs
/// cost nothing.
class DoorbellList {
 public:
  /// acq_rel: the slots written before are visible to the engine, which clears @ref Doorbell::queued before it reads
  /// the ring; if it has not cleared it yet it will see the slots.
  void ring(Doorbell& bell) {
    if (!bell.queued.exchange(true, std::memory_order_acq_rel)) push(bell);
  }
  /// Newest first; linked by Doorbell::next.
  Doorbell* take_all() {
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return head_.exchange(nullptr, std::memory_order_acquire);
  }
  bool empty() const { return head_.load(std::memory_order_acquire) == nullptr; }

 private:
  void push(Doorbell& bell) {
    Doorbell* head = head_.load(std::memory_order_relaxed);
    do {
      bell.next = head;
    } while (!head_.compare_exchange_weak(head, &bell, std::memory_order_release, std::memory_order_relaxed));
  }

  alignas(kSlotBytes) std::atomic<Doorbell*> head_{nullptr};
};

/// Whether a receive work request may have these SGEs: 0 or EINVAL.
inline int check_recv_sges(std::span<const Sge> sges, uint32_t max_sge) {
  if (sges.size() > max_sge) return EINVAL;
  uint64_t length = 0;
  for (const Sge& sge : sges) length += sge.length;
  return length > USIW_MAX_MSG_SIZE ? EINVAL : 0;
}
/// Fills in all of a receive WQE but its valid flag.
inline void write_recv(RecvWqe& wqe, uint64_t wr_id, std::span<const Sge> sges) {
  wqe.wr_id = wr_id;
  wqe.num_sge = static_cast<uint8_t>(sges.size());
  if (!sges.empty()) std::memcpy(wqe.sges(), sges.data(), sges.size_bytes());
}

}  // namespace usiw

#endif  // USIW_ENGINE_RING_H
