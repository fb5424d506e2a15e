// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/libc/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

constexpr int kMaxFd = 1 << 20;  // the default of fs.nr_open

/// One bit for each descriptor, which is set if the descriptor has a File. So a call on any other descriptor costs one
/// load and no lock.
std::atomic<uint64_t> g_ours[kMaxFd / 64];

struct FileTable {
  std::mutex lock;
  std::unordered_map<int, std::shared_ptr<File>> files;
};
FileTable& file_table() {
  static FileTable& t = *new FileTable;
  return t;
}

/// The process to which the files belong. A child of vfork() shares this memory but not the descriptors, so a
/// descriptor that the child closes stays open in this process.
pid_t g_owner = getpid();

bool is_ours(int fd) {
  return fd >= 0 && fd < kMaxFd &&
         (g_ours[fd / 64].load(std::memory_order_acquire) >> (fd % 64) & 1) != 0 && getpid() == g_owner;
}
void mark(int fd, bool ours) {
  uint64_t bit = 1ull << (fd % 64);
  if (ours)
    g_ours[fd / 64].fetch_or(bit, std::memory_order_release);
  else
    g_ours[fd / 64].fetch_and(~bit, std::memory_order_release);
}

/// Returns the lowest number for the library's own descriptors: half of the program's limit on descriptors at the first
/// call, but at most 1024.
int high_base() {
  static const int base = [] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t half = limit.rlim_cur / 2;
    return static_cast<int>(half > 1024 ? 1024 : half);
  }();
  return base;
}

}  // namespace

bool file_install(int fd, std::shared_ptr<File> file) {
  if (fd < 0 || fd >= kMaxFd) return false;
  std::lock_guard hold(file_table().lock);
  file_table().files[fd] = std::move(file);
  mark(fd, true);
  return true;
}

std::shared_ptr<File> file_of(int fd) {
  if (!is_ours(fd)) return nullptr;
  std::lock_guard hold(file_table().lock);
  auto it = file_table().files.find(fd);
  return it == file_table().files.end() ? nullptr : it->second;
}

void file_dup(int from, int to) {
  if (std::shared_ptr<File> file = file_of(from)) file_install(to, std::move(file));
}

void file_forget(int fd) {
  if (!is_ours(fd)) return;
  std::shared_ptr<File> file;
  bool last = false;
  {
    std::lock_guard hold(file_table().lock);
    auto it = file_table().files.find(fd);
    if (it == file_table().files.end()) return;
    file = std::move(it->second);
    file_table().files.erase(it);
    mark(fd, false);
    last = true;
    for (auto& [other, f] : file_table().files) last = last && f != file;
  }
  if (last) file->closed();
}

void file_close(int fd) {
  file_forget(fd);
  USIW_REAL(close)(fd);
}

void files_forget_range(unsigned first, unsigned last) {
  for (unsigned fd = first; fd <= last && fd < unsigned{kMaxFd}; fd++) {
    if (fd % 64 == 0 && g_ours[fd / 64].load(std::memory_order_acquire) == 0)
      fd += 63;
    else
      file_forget(static_cast<int>(fd));
  }
}

void files_lock() { file_table().lock.lock(); }
void files_unlock() { file_table().lock.unlock(); }

void files_abandon() {
  g_owner = getpid();
  // The files are leaked, because destructors would act for the parent.
  static std::vector<std::unordered_map<int, std::shared_ptr<File>>*> leaked;
  for (auto& [fd, f] : file_table().files) mark(fd, false);
  auto* kept = new std::unordered_map<int, std::shared_ptr<File>>;
  kept->swap(file_table().files);
  leaked.push_back(kept);
}

Fd out_of_the_way(Fd fd) {
  const int before = errno;
  const int least = least_own_descriptor != 0 ? least_own_descriptor : high_base();
  Fd high(fd >= 0 ? USIW_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, least) : -1);
  errno = before;
  return high >= 0 ? std::move(high) : std::move(fd);  // fd, if no higher number is free
}

}  // namespace usiw::run
