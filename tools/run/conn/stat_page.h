// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat_page.h
/// Counters pages of programs under usiw-run, which `usiw stat` reads. The provider counts in a memfd of each context.
/// The tool opens the memfd by /proc/PID/fd, which needs the rights of ptrace(2). So the counters vanish with the
/// process, however it ends. A page ends with a mark that names its context or QP. A reader must not trust the
/// contents, because the process can write them.
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

/// The mark at the end of a page, which names its context or QP.
struct StatMark {
  uint64_t magic;     ///< kStatMagic
  uint32_t kind;      ///< StatKind
  uint32_t pid;       ///< owner, in its own PID namespace; its forked children have the memfd too
  uint32_t qpn;       ///< QP: its number
  uint32_t state;     ///< QP: enum ibv_qp_state
  char device[64];    ///< context: name of the device, with a NUL
  uint64_t space[4];
};

constexpr uint64_t kStatMagic = 0x3154535749535500;
constexpr uint32_t kRetiredRoom = 192 - sizeof(StatMark) / sizeof(uint64_t);

/// The used part of a page of the memfd. Page 0 belongs to the context, and each other page to a QP or to nobody.
struct StatPage {
  uint64_t counters[USIW_COUNTERS_ROOM];  ///< by enum usiw_counter
  uint64_t gauges[USIW_GAUGES_ROOM];      ///< QP: by enum usiw_gauge
  uint64_t retired[kRetiredRoom];         ///< context: counters of its destroyed QPs; QP:
                                          ///< usiw_qp_stats.accepted
  StatMark mark;
};
static_assert(sizeof(StatMark) == 120 && sizeof(StatPage) == USIW_COUNTERS_SIZE);
static_assert(USIW_CNT_MAX <= kRetiredRoom);
static_assert(offsetof(StatPage, retired) == offsetof(usiw_qp_stats, accepted));

/// Returns the offset of a page in the memfd. It is a multiple of the page size of this machine, because the provider
/// maps each page alone.
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
  /// Adds the counters of @p qp to those of the destroyed QPs of this context.
  void retire(const MappedPage& qp);
  /// Removes the owner from the mark, because the page is free now.
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
