// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shm_ring.h
/// A ring of datagrams in memory that two processes share: one writes, one reads. Either end takes
/// what the other has written there for hostile: positions are kept in private memory, and every
/// length is checked on a private copy. Nothing here waits, allocates or makes a system call.
///
/// A record is a header and the datagram behind it, in whole units of kRecordUnit bytes. The header's
/// first word says that the record is complete, so the reader touches one cache line to see that
/// something is there; the writer clears the next header before it completes this one. The memory
/// is mapped twice in a row, so no record ever wraps.
#ifndef USIW_PORT_SHM_RING_H
#define USIW_PORT_SHM_RING_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace usiw {

/// Room for records, bytes: some fifty of the largest ones. Stays in the second-level cache.
inline constexpr size_t kShmRingBytes = 512 << 10;
inline constexpr size_t kRecordUnit = 64;
static_assert((kShmRingBytes & (kShmRingBytes - 1)) == 0);

/// What both ends tell each other beside the records; one for each direction.
struct ShmRingShared {
  alignas(64) std::atomic<uint64_t> consumed;  ///< bytes, by the reader
  alignas(64) std::atomic<uint32_t> sleeping;  ///< 1: a thread of the reader's sleeps. Cleared by who wakes it
};

struct ShmRecord {
  std::atomic<uint32_t> word;  ///< 0: nothing here yet; else kComplete | length of the datagram
  uint32_t flow;               ///< number of its flow in the channel
  uint64_t reserved;

  static constexpr uint32_t kComplete = 0x80000000u;
  /// Bytes of the ring that a datagram of @p len takes.
  static constexpr size_t size(uint32_t len) {
    return (sizeof(ShmRecord) + len + kRecordUnit - 1) & ~(kRecordUnit - 1);
  }
};
static_assert(sizeof(ShmRecord) == 16);

class ShmWriter {
 public:
  ShmWriter() = default;
  /// @p memory: 2 * kShmRingBytes, the second half the first one again; zeros at first.
  ShmWriter(ShmRingShared* shared, std::byte* memory) : shared_(shared), memory_(memory) {}

  /// A datagram in two pieces. False: no room, or the reader writes nonsense (broken()).
  bool push(uint32_t flow, std::span<const std::byte> head, std::span<const std::byte> rest) {
    const auto len = static_cast<uint32_t>(head.size() + rest.size());
    const size_t need = ShmRecord::size(len);
    // The header behind this record is written, too.
    if (written_ + need + kRecordUnit - consumed_ > kShmRingBytes && !make_room(need)) return false;
    ShmRecord* r = record(written_);
    record(written_ + need)->word.store(0, std::memory_order_relaxed);
    std::byte* const to = reinterpret_cast<std::byte*>(r) + sizeof *r;
    std::memcpy(to, head.data(), head.size());
    if (!rest.empty()) std::memcpy(to + head.size(), rest.data(), rest.size());
    r->flow = flow;
    r->word.store(ShmRecord::kComplete | len, std::memory_order_release);
    written_ += need;
    return true;
  }

  /// Behind the last push() of a batch: true if the reader sleeps, and is to be woken.
  bool wake_wanted() {
    // Orders the records before this load, as the reader orders its flag before its last look.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return shared_->sleeping.load(std::memory_order_relaxed) != 0 &&
           shared_->sleeping.exchange(0, std::memory_order_relaxed) != 0;
  }

  bool broken() const { return broken_; }

 private:
  ShmRecord* record(uint64_t at) {
    return reinterpret_cast<ShmRecord*>(memory_ + (at & (kShmRingBytes - 1)));
  }
  bool make_room(size_t need) {
    const uint64_t consumed = shared_->consumed.load(std::memory_order_acquire);
    // It only moves forward, and never beyond what was written.
    if (consumed - consumed_ > written_ - consumed_) broken_ = true;
    if (broken_) return false;
    consumed_ = consumed;
    return written_ + need + kRecordUnit - consumed_ <= kShmRingBytes;
  }

  ShmRingShared* shared_ = nullptr;
  std::byte* memory_ = nullptr;
  uint64_t written_ = 0, consumed_ = 0;
  bool broken_ = false;
};

class ShmReader {
 public:
  ShmReader() = default;
  /// As ShmWriter; @p max: no datagram is longer.
  ShmReader(ShmRingShared* shared, const std::byte* memory, uint32_t max)
      : shared_(shared), memory_(memory), max_(max) {}

  /// True if there is a record: pop() will not find the ring empty.
  bool ready() const { return !broken_ && header()->word.load(std::memory_order_relaxed) != 0; }

  /// Copies the next datagram to @p out, which has room for the longest. False: there is none, or
  /// the writer writes nonsense (broken()).
  bool pop(std::byte* out, uint32_t& len, uint32_t& flow) {
    if (broken_) return false;
    const ShmRecord* r = header();
    const uint32_t word = r->word.load(std::memory_order_acquire);
    if (word == 0) return false;
    len = word & ~ShmRecord::kComplete;
    if ((word & ShmRecord::kComplete) == 0 || len > max_) {
      broken_ = true;
      return false;
    }
    flow = r->flow;
    std::memcpy(out, reinterpret_cast<const std::byte*>(r) + sizeof *r, len);
    consumed_ += ShmRecord::size(len);
    if (consumed_ >= limit_) broken_ = true;
    shared_->consumed.store(consumed_, std::memory_order_release);
    return true;
  }

  /// Asks for a wake-up by the next record. False: there is one already. pop() does not take this back: who
  /// pops need not be who sleeps, and the writer may not have looked yet.
  bool arm() {
    shared_->sleeping.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!ready()) return true;
    shared_->sleeping.store(0, std::memory_order_relaxed);
    return false;
  }

  /// The writer writes no more: a ring full is the most that can be left. Without this a ring whose
  /// headers all say "complete" would never be empty.
  void end() { limit_ = consumed_ + kShmRingBytes; }

  bool broken() const { return broken_; }

 private:
  const ShmRecord* header() const {
    return reinterpret_cast<const ShmRecord*>(memory_ + (consumed_ & (kShmRingBytes - 1)));
  }

  ShmRingShared* shared_ = nullptr;
  const std::byte* memory_ = nullptr;
  uint64_t consumed_ = 0, limit_ = UINT64_MAX;
  uint32_t max_ = 0;
  bool broken_ = false;
};

}  // namespace usiw

#endif  // USIW_PORT_SHM_RING_H
