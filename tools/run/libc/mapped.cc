// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/libc/mapped.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/machine.h"
#include "tools/run/host/fd.h"
#include "tools/run/libc/real.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace usiw::run {
namespace {

/// The list of memory mappings, by way of the calling thread. /proc/self would show it by way of the main thread, which
/// may have ended.
constexpr char kMaps[] = "/proc/thread-self/maps";

/// The argument of PROCMAP_QUERY, which the headers of Debian 12 do not have. The kernel fills in the mapping that
/// covers query_addr.
struct ProcmapQuery {
  uint64_t size, query_flags, query_addr;
  uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t kVmaReadable = 1, kVmaWritable = 2;

struct Mapping {
  uint64_t from, to;
  bool readable, writable, of_file;
};

enum class Next { kFound, kNone, kCannotSay };

uint64_t page_of(uint64_t at) { return at & ~(page_size() - 1); }

/// Populates the pages [from, to). Returns 0 or an errno value. A page that cannot be populated raises no signal.
int populate(uint64_t from, uint64_t to, int advice, MappedCost& cost) {
  cost.bytes_populated += to - from;
  return madvise(reinterpret_cast<void*>(from), to - from, advice) == 0 ? 0 : errno;
}

/// Populates the page of @p at. Returns -EFAULT if the page is past the end of its file or has a hardware error, and
/// -ENOMEM if no memory is left for it. Otherwise returns 0, even for an error such as EINVAL: the kernel is older than
/// Linux 5.14, or the page belongs to a device, which has no end of file.
int check_behind(uint64_t at, MappedCost& cost) {
  switch (populate(page_of(at), page_of(at) + page_size(), MADV_POPULATE_READ, cost)) {
    case EFAULT:
    case EHWPOISON:
      return -EFAULT;
    case ENOMEM:
      return -ENOMEM;
    default:
      return 0;
  }
}

/// Checks the mappings of [start, end) one after another. @p next finds the mapping that covers an address. If there
/// is none, @p next may find a later mapping or return kNone. Returns false if @p next cannot say. Otherwise sets
/// @p verdict to the result of check_mapped().
template <typename Source>
bool walk(const Source& next, uint64_t start, uint64_t end, bool write, int& verdict, MappedCost& cost) {
  verdict = 0;
  for (uint64_t at = start; at < end && verdict == 0;) {
    Mapping m;
    const Next found = next(at, m);
    if (found == Next::kCannotSay) return false;
    if (found == Next::kNone || m.from > at || m.to <= at || !m.readable || (write && !m.writable))
      verdict = -EFAULT;
    else if (m.of_file)
      verdict = check_behind(std::min(end, m.to) - 1, cost);
    at = m.to;
  }
  return true;
}

/// Gets the mapping that covers @p at, by the ioctl PROCMAP_QUERY on @p maps (kMaps, open). Returns kNone if no mapping
/// covers it, kCannotSay if the ioctl fails otherwise.
Next query(int maps, uint64_t at, Mapping& m, MappedCost& cost) {
  ProcmapQuery q{};
  q.size = sizeof q;
  q.query_addr = at;
  m = {};
  cost.queries++;
  if (USIW_REAL(ioctl)(maps, kProcmapQuery, &q) != 0) return errno == ENOENT ? Next::kNone : Next::kCannotSay;
  m = {q.vma_start, q.vma_end, (q.vma_flags & kVmaReadable) != 0, (q.vma_flags & kVmaWritable) != 0,
       q.inode != 0 || q.dev_major != 0 || q.dev_minor != 0};
  return Next::kFound;
}

/// Reads @p maps (kMaps, open) from its present position, up to the first mapping that ends after @p at. Returns kNone
/// at the end of the file, and kCannotSay if @p maps is null.
Next read_on(FILE* maps, uint64_t at, Mapping& m, MappedCost& cost) {
  m = {};
  if (maps == nullptr) return Next::kCannotSay;
  for (char line[512]; fgets(line, sizeof line, maps) != nullptr;) {
    cost.lines++;
    char rights[5];
    unsigned major, minor;
    unsigned long from, to, inode;
    const bool parsed = sscanf(line, "%lx-%lx %4s %*x %x:%x %lu", &from, &to, rights, &major, &minor, &inode) == 6;
    // Skip the rest of a line that is longer than the buffer. Else the end of a long path could look like a mapping.
    for (char rest[512]; strchr(line, '\n') == nullptr && fgets(rest, sizeof rest, maps) != nullptr;)
      if (strchr(rest, '\n') != nullptr) break;
    if (!parsed || to <= at) continue;
    m = {from, to, rights[0] == 'r', rights[1] == 'w', inode != 0 || major != 0 || minor != 0};
    return Next::kFound;
  }
  return Next::kNone;
}

}  // namespace

int check_mapped(uint64_t start, uint64_t length, bool write, MappedBy from, MappedCost* cost) {
  MappedCost unasked;
  MappedCost& spent = cost != nullptr ? *cost : unasked;
  uint64_t end, last_page_end;
  if (length == 0) return 0;
  if (__builtin_add_overflow(start, length, &end)) return -EFAULT;
  if (__builtin_add_overflow(page_of(end - 1), page_size(), &last_page_end)) return -EFAULT;
  int verdict;
  if (from == MappedBy::kQuery) {
    const Fd maps(USIW_REAL(open)(kMaps, O_RDONLY | O_CLOEXEC));
    const auto next = [&](uint64_t at, Mapping& m) { return query(maps, at, m, spent); };
    if (walk(next, start, end, write, verdict, spent)) return verdict;
  }
  // If the range is too long or cannot be populated, the list of mappings decides. Device memory, for example, cannot
  // be populated.
  if (from != MappedBy::kRead && last_page_end - page_of(start) <= kPopulateBytes &&
      (!write || populate(page_of(start), last_page_end, MADV_POPULATE_WRITE, spent) == 0) &&
      populate(page_of(start), last_page_end, MADV_POPULATE_READ, spent) == 0)
    return 0;
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(fopen(kMaps, "re"), fclose);
  const auto next = [&](uint64_t at, Mapping& m) { return read_on(maps.get(), at, m, spent); };
  return walk(next, start, end, write, verdict, spent) ? verdict : 0;  // without /proc, every range passes
}

}  // namespace usiw::run
