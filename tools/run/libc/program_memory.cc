// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/libc/program_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace usiw::run {

/// Copies by the kernel, which returns EFAULT where a load or store would crash. Returns 1 if a sandbox forbids the
/// call; then the caller copies directly. The call names this thread, because the main thread, which a process ID
/// names, may have ended.
template <typename Call>
static int copy_program(Call call, uint64_t at, void* own, size_t len) {
  if (len == 0) return 0;
  iovec theirs{reinterpret_cast<void*>(at), len}, mine{own, len};
  ssize_t n = call(gettid(), &mine, 1ul, &theirs, 1ul, 0ul);
  if (n == static_cast<ssize_t>(len)) return 0;
  return n < 0 && (errno == ENOSYS || errno == EPERM) ? 1 : -EFAULT;
}

int copy_to_program(uint64_t at, const void* from, size_t len) {
  int ret = copy_program(process_vm_writev, at, const_cast<void*>(from), len);
  if (ret == 1) std::memcpy(reinterpret_cast<void*>(at), from, len);
  return ret < 0 ? ret : 0;
}

int copy_from_program(void* to, uint64_t at, size_t len) {
  int ret = copy_program(process_vm_readv, at, to, len);
  if (ret == 1) std::memcpy(to, reinterpret_cast<const void*>(at), len);
  return ret < 0 ? ret : 0;
}

}  // namespace usiw::run
