// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat_page.h
/// Pages of counters of programs under usiw-run, for `usiw stat`. The provider counts into a memfd per context, which
/// the tool opens by /proc/PID/fd as far as ptrace(2)'s rules let it. So the counters vanish with their process,
/// however it ends. A page ends with a mark that names its owner. A reader cannot trust the contents, which are the
/// process's own.
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

struct StatMark {
  uint64_t magic;     ///< kStatMagic
  uint32_t kind;      ///< StatKind
  uint32_t pid;       ///< in the PID namespace of the process. Children of fork() have the memfd, too
  uint32_t qpn;       ///< QP: its number
  uint32_t state;     ///< QP: enum ibv_qp_state
  char device[64];    ///< context: name of the device, with a NUL
  uint64_t space[4];
};

constexpr uint64_t kStatMagic = 0x3154535749535500;
constexpr uint32_t kRetiredRoom = 192 - sizeof(StatMark) / sizeof(uint64_t);

/// The beginning of a page of the memfd. Page 0 belongs to the context.
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

/// A page that is mapped here. An empty one, whose mapping failed, shows nothing.
class MappedPage {
 public:
  MappedPage() = default;
  MappedPage(int fd, uint32_t page);

  void show_context(const char* device);
  void show_qp(uint32_t qpn);
  void set_state(uint32_t state);
  /// Sets usiw_qp_stats.accepted in the page of a QP.
  void set_accepted();
  /// Adds the counters of @p qp to those of the destroyed QPs of this context.
  void retire(const MappedPage& qp);
  /// The page has no owner any more.
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
