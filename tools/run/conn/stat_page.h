// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat_page.h
/// How `usiw stat` finds the counters of programs under usiw-run. The pages that the provider counts into lie in a
/// memfd per context, which the tool opens by /proc/PID/fd, as far as ptrace(2)'s rules let it: it goes with its
/// process, whichever way that ends. Each page ends with a mark that says what it is. All of it is the process's word.
#ifndef USIW_RUN_STAT_PAGE_H
#define USIW_RUN_STAT_PAGE_H

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/machine.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

inline constexpr char kCountersMemfd[] = "usiw-uverbs";

enum class StatKind : uint32_t { kNone, kContext, kQp };

struct StatMark {
  uint64_t magic;     ///< kStatMagic
  uint32_t kind;      ///< StatKind
  uint32_t pid;       ///< in the process's own PID namespace; children of fork() have the memfd, too
  uint32_t qpn;       ///< of a QP
  uint32_t state;     ///< of a QP: enum ibv_qp_state
  char device[64];    ///< of a context, with a NUL
  uint64_t room[4];
};

constexpr uint64_t kStatMagic = 0x3154535749535500;
constexpr uint32_t kRetiredRoom = 192 - sizeof(StatMark) / sizeof(uint64_t);

/// The beginning of a page of the memfd. Page 0 belongs to the context.
struct StatPage {
  uint64_t counters[USIW_COUNTERS_ROOM];  ///< by enum usiw_counter
  uint64_t gauges[USIW_GAUGES_ROOM];      ///< of a QP, by enum usiw_gauge
  uint64_t retired[kRetiredRoom];         ///< of a context: the counters of its QPs that were destroyed; of a QP:
                                          ///< usiw_qp_stats.accepted
  StatMark mark;
};
static_assert(sizeof(StatMark) == 120 && sizeof(StatPage) == USIW_COUNTERS_SIZE);
static_assert(USIW_CNT_MAX <= kRetiredRoom);
static_assert(offsetof(StatPage, retired) == offsetof(usiw_qp_stats, accepted));

/// Returns the offset of a page in the memfd. Each is a page of this machine's memory, because the provider maps it
/// alone.
inline off_t stat_page_at(uint64_t page) { return static_cast<off_t>(page * usiw::page_size()); }

/// A page that is mapped here. Empty where there was no mapping it: nothing is shown then.
class MappedPage {
 public:
  MappedPage() = default;
  MappedPage(int fd, uint32_t page);
  MappedPage(MappedPage&& other) noexcept : page_(other.page_) { other.page_ = nullptr; }
  MappedPage& operator=(MappedPage&& other) noexcept;
  ~MappedPage();

  void show_context(const char* device);
  void show_qp(uint32_t qpn);
  void set_state(uint32_t state);
  /// Sets usiw_qp_stats.accepted in the page of a QP.
  void set_accepted();
  /// Of a context: adds what @p qp has counted to what its destroyed QPs have.
  void retire(const MappedPage& qp);
  /// The page stands for nothing any more.
  void hide();

 private:
  void show(StatKind kind);
  void let_go();

  StatPage* page_ = nullptr;
};

}  // namespace usiw::run

#endif  // USIW_RUN_STAT_PAGE_H
