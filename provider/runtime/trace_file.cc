// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/trace_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/file_limit.h"
#include "engine/trace.h"

namespace usiw {
namespace {

constexpr int kMaxFilesPerProcess = 100;  ///< a program may open and close its device again

uint64_t clock_ns(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

/// Sparse, and of a size that nobody can change under the mapping.
int make_memfd(const std::string& name, size_t bytes) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -errno;
  int error = resize_memory(fd, static_cast<off_t>(bytes));
  if (error == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) error = -errno;
  if (error == 0) return fd;
  close(fd);
  return error;
}

/// With all its blocks: a full file system must not turn a store into SIGBUS.
int make_file(const std::string& base, size_t bytes) {
  for (int i = 0; i < kMaxFilesPerProcess; ++i) {
    const std::string path = i == 0 ? base : base + "." + std::to_string(i);
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return -errno;
    const NoFileSizeSignal no_signal;
    const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    if (error == 0) return fd;
    unlink(path.c_str());
    close(fd);
    return -error;
  }
  return -EEXIST;
}

}  // namespace

TraceSpec TraceSpec::parse(const char* text) {
  TraceSpec spec;
  if (text == nullptr || *text == '\0') return spec;
  std::string_view rest = text;
  for (bool first = true; !rest.empty(); first = false) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    uint32_t n = 0;
    constexpr std::string_view kEvents = "events=";
    if (first) {
      spec.directory = word;
    } else if (word == "stop-on-error") {
      spec.stop_on_error = true;
    } else if (word.starts_with(kEvents) &&
               std::from_chars(word.data() + kEvents.size(), word.data() + word.size(), n).ptr ==
                   word.data() + word.size() &&
               n != 0) {
      spec.events = std::bit_ceil(std::clamp(n, kTraceMinEvents, kTraceMaxEvents));
    } else {
      spec.complaint = "USIW_TRACE: '" + std::string(word) +
                       "' is not understood (DIRECTORY[,events=N][,stop-on-error])";
    }
  }
  return spec;
}

std::unique_ptr<TraceFile> TraceFile::create(const TraceSpec& spec, const std::string& device, std::string& why) {
  const size_t bytes = trace_bytes(spec.events);
  const std::string name = "usiw-trace." + device;
  const bool to_file = !spec.directory.empty();
  const std::string path = spec.directory + "/" + name + "." + std::to_string(getpid());
  const int fd = to_file ? make_file(path, bytes) : make_memfd(name, bytes);
  if (fd < 0) {
    why = "no trace" + (to_file ? " in " + path : "") + ": " + strerror(-fd);
    return nullptr;
  }
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    why = std::string("no trace: ") + strerror(errno);
    close(fd);
    return nullptr;
  }
  madvise(p, bytes, MADV_DONTFORK);
  const std::span memory(static_cast<std::byte*>(p), bytes);
  Tracer::format(memory, spec.events, to_file, spec.stop_on_error ? uint32_t{kTraceStopOnError} : 0u,
                 static_cast<uint32_t>(getpid()), clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC),
                 device.c_str());
  return std::unique_ptr<TraceFile>(new TraceFile(fd, memory));
}

TraceFile::~TraceFile() {
  munmap(memory_.data(), memory_.size());
  close(fd_);
}

}  // namespace usiw
