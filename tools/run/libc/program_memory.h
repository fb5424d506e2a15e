// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file program_memory.h
/// Access to memory whose address came from the program. A wrong address gets -EFAULT, as from a kernel, and does not
/// crash the process, unless the kernel or a sandbox does not permit process_vm_readv(2) or process_vm_writev(2).
#ifndef USIW_RUN_PROGRAM_MEMORY_H
#define USIW_RUN_PROGRAM_MEMORY_H

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace usiw::run {

/// Copies @p len bytes between @p own and the program's memory at @p at. @p call is process_vm_readv or
/// process_vm_writev, and sets the direction. Where a load or store would crash, these calls fail with EFAULT. Returns 0
/// or -EFAULT. Returns 1 if the kernel or a sandbox does not permit the call; then the caller copies directly. The call
/// gets the ID of this thread, because the process ID names the main thread, which may have ended.
template <typename Call>
int copy_program(Call call, uint64_t at, void* own, size_t len) {
  if (len == 0) return 0;
  iovec theirs{reinterpret_cast<void*>(at), len}, mine{own, len};
  ssize_t n = call(gettid(), &mine, 1ul, &theirs, 1ul, 0ul);
  if (n == static_cast<ssize_t>(len)) return 0;
  return n < 0 && (errno == ENOSYS || errno == EPERM) ? 1 : -EFAULT;
}

/// Copy @p len bytes to or from the program's memory at @p at. Return 0 or -EFAULT.
inline int copy_to_program(uint64_t at, const void* from, size_t len) {
  int ret = copy_program(process_vm_writev, at, const_cast<void*>(from), len);
  if (ret == 1) std::memcpy(reinterpret_cast<void*>(at), from, len);
  return ret < 0 ? ret : 0;
}

inline int copy_from_program(void* to, uint64_t at, size_t len) {
  int ret = copy_program(process_vm_readv, at, to, len);
  if (ret == 1) std::memcpy(to, reinterpret_cast<const void*>(at), len);
  return ret < 0 ? ret : 0;
}

}  // namespace usiw::run

#endif  // USIW_RUN_PROGRAM_MEMORY_H
