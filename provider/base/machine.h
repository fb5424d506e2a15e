// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file machine.h
/// The differences between the processors that usiw supports: x86-64, and aarch64 (little-endian).
///
/// Threads and processes synchronise by std::atomic, whose memory orders mean the same on both. The page size is asked
/// for at run time: aarch64 kernels use 4, 16 or 64 KiB. So little is left for this file.
#ifndef USIW_BASE_MACHINE_H
#define USIW_BASE_MACHINE_H

#include <elf.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace usiw {

#if defined(__x86_64__)

/// Machine number in the header of an ELF file that can run in a process of usiw.
inline constexpr uint16_t kElfMachine = EM_X86_64;
/// The processor in messages.
#define USIW_MACHINE "64-bit x86"
/// Total store order: other processors see the loads and stores of one processor in program order, but for a load that
/// passes an earlier store. That includes code which usiw calls and cannot change: the kernel's copies, DPDK's port.
inline constexpr bool kTotalStoreOrder = true;
/// Lets the other hardware thread of this core run meanwhile.
inline void cpu_pause() { __builtin_ia32_pause(); }

#elif defined(__aarch64__)

inline constexpr uint16_t kElfMachine = EM_AARCH64;
#define USIW_MACHINE "64-bit Arm"
inline constexpr bool kTotalStoreOrder = false;
/// ISB takes about as long as the pause of x86. YIELD does nothing on cores with one hardware thread.
inline void cpu_pause() { asm volatile("isb"); }

#else
#error "usiw supports x86-64 and aarch64; add this processor here and in tools/run/entry/interpose_load.cc"
#endif

/// Bytes of a page of memory.
inline size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace usiw

#endif  // USIW_BASE_MACHINE_H
