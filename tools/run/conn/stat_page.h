// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat_page.h
/// The counters pages that programs under usiw-run have for `usiw stat`. Each context has a memfd with pages in which
/// the provider counts. `usiw stat` opens the memfd through /proc/PID/fd, which needs the rights of ptrace(2). The
/// memfd vanishes with the process and its forked children, however they end. A mark in each page names the context or
/// the QP of the page. A reader must not trust a page, because the process can write anything there.
#ifndef USIW_RUN_STAT_PAGE_H
#define USIW_RUN_STAT_PAGE_H

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/machine.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

inline constexpr char kCountersMemfd[] = "usiw-uverbs";

enum class StatKind : uint32_t { kNone, kContext, kQp };

/// The mark of a page: the last member of struct StatPage. It names the context or the QP of the page.
struct StatMark {
  uint64_t magic;     ///< kStatMagic
  uint32_t kind;      ///< StatKind
  uint32_t pid;       ///< PID of the owner, in its PID namespace. Forked children have the memfd open too
  uint32_t qpn;       ///< only for a QP: its number
  uint32_t state;     ///< only for a QP: enum ibv_qp_state
  char device[64];    ///< only for a context: name of the device, with a NUL
  uint64_t ignored;   ///< only for a QP: datagrams at its port that belong to no connection
  uint64_t space[3];
};

constexpr uint64_t kStatMagic = 0x3154535749535500;
constexpr uint32_t kRetiredRoom = 192 - sizeof(StatMark) / sizeof(uint64_t);

/// The used part of a page of the memfd. Page 0 belongs to the context, each other page belongs to a QP or is free.
struct StatPage {
  uint64_t counters[USIW_COUNTERS_ROOM];  ///< indexed by enum usiw_counter
  uint64_t gauges[USIW_GAUGES_ROOM];      ///< only for a QP: indexed by enum usiw_gauge
  uint64_t retired[kRetiredRoom];         ///< context: counters of its destroyed QPs; QP:
                                          ///< usiw_qp_stats.accepted
  StatMark mark;
};
static_assert(sizeof(StatMark) == 120 && sizeof(StatPage) == USIW_COUNTERS_SIZE);
static_assert(USIW_CNT_MAX <= kRetiredRoom);
static_assert(offsetof(StatPage, retired) == offsetof(usiw_qp_stats, accepted));

/// Returns the offset of the page number @p page in the memfd. The offset is a multiple of the machine's page size,
/// because the provider maps each page separately.
inline off_t stat_page_at(uint64_t page) { return static_cast<off_t>(page * usiw::page_size()); }

/// A counters page that this library has mapped. If mmap(2) failed, the object is empty, and its calls do nothing.
class MappedPage {
 public:
  MappedPage() = default;
  MappedPage(int fd, uint32_t page);

  /// Writes the mark of a context.
  void show_context(const char* device);
  /// Writes the mark of the QP @p qpn.
  void show_qp(uint32_t qpn);
  /// Sets the state of the QP in the mark.
  void set_state(uint32_t state);
  /// Sets usiw_qp_stats.accepted in the page of a QP.
  void set_accepted();
  /// Counts a datagram that is ignored, in the mark of a QP.
  void count_ignored();
  /// Adds the counters of @p qp to those of the destroyed QPs of this context.
  void retire(const MappedPage& qp);
  /// Marks the page as free.
  void hide();

 private:
  void show(StatKind kind);
  void let_go();

  struct Unmap {
    void operator()(StatPage* page) const;
  };
  std::unique_ptr<StatPage, Unmap> page_;
};

}  // namespace usiw::run

#endif  // USIW_RUN_STAT_PAGE_H
