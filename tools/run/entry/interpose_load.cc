// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interpose_load.cc
/// Interposes dlopen(3) and dlmopen(3). The way in which libibverbs and librdmacm get into a process decides whether
/// their calls reach this library.
///
/// With RTLD_DEEPBIND a library searches its own dependencies first, so it would find libc's functions in place of this
/// library's. So the flag is removed for libibverbs and librdmacm, and for files that name them in DT_NEEDED. If
/// another file loads them with the flag, this library prints a line on stderr. A namespace of dlmopen(3) has its own
/// libc and no preloaded library. This library cannot change that, so it prints a line if libibverbs or librdmacm is
/// loaded there.
///
/// libc searches for a library by the rules of the caller of dlopen(3), and knows the caller by the return address. So
/// the functions here jump to libc's function and leave the stack as it was. Only if the path names a file do they call
/// libc's function and then check what has been loaded. For a file libc does not search, so the caller does not matter.
/// A path with $ORIGIN, $LIB or $PLATFORM depends on the caller, so it does not count as a file.
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/run/libc/real.h"

namespace {

constexpr const char* kVerbsLibraries[] = {"libibverbs.so", "librdmacm.so"};

bool is_verbs_library(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  for (const char* library : kVerbsLibraries)
    if (strncmp(name, library, strlen(library)) == 0) return true;
  return false;
}

bool is_file(const char* path) { return strchr(path, '/') != nullptr && strchr(path, '$') == nullptr; }

/// A file that is mapped for reading.
class Image {
 public:
  explicit Image(const char* path) {
    const int fd = USIW_REAL(open)(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd >= 0 && USIW_REAL(fstat)(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
      void* at = mmap(nullptr, static_cast<size_t>(st.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) {
        at_ = static_cast<const char*>(at);
        size_ = static_cast<size_t>(st.st_size);
      }
    }
    if (fd >= 0) USIW_REAL(close)(fd);
  }
  ~Image() {
    if (at_ != nullptr) munmap(const_cast<char*>(at_), size_);
  }
  Image(const Image&) = delete;
  /// Returns @p count objects at @p offset, or null if the file does not have them.
  template <typename T>
  const T* at(uint64_t offset, uint64_t count = 1) const {
    if (at_ == nullptr || offset > size_ || count > (size_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(at_ + offset);
  }

 private:
  const char* at_ = nullptr;
  size_t size_ = 0;
};

/// Returns true if the library at @p path depends on libibverbs or librdmacm, by its DT_NEEDED entries.
bool needs_verbs(const char* path) {
  const Image image(path);
  const auto* elf = image.at<Elf64_Ehdr>(0);
  if (elf == nullptr || memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0) return false;
  const auto* sections = image.at<Elf64_Shdr>(elf->e_shoff, elf->e_shnum);
  for (unsigned i = 0; sections != nullptr && i < elf->e_shnum; i++) {
    const Elf64_Shdr& section = sections[i];
    if (section.sh_type != SHT_DYNAMIC || section.sh_link >= elf->e_shnum) continue;
    const Elf64_Shdr& names = sections[section.sh_link];
    const auto* entries = image.at<Elf64_Dyn>(section.sh_offset, section.sh_size / sizeof(Elf64_Dyn));
    const char* text = image.at<char>(names.sh_offset, names.sh_size);
    if (entries == nullptr || text == nullptr || names.sh_size == 0 || text[names.sh_size - 1] != '\0') continue;
    for (uint64_t e = 0; e < section.sh_size / sizeof(Elf64_Dyn); e++)
      if (entries[e].d_tag == DT_NEEDED && entries[e].d_un.d_val < names.sh_size &&
          is_verbs_library(text + entries[e].d_un.d_val))
        return true;
  }
  return false;
}

bool is_verbs_loaded() {
  const auto is_verbs = [](dl_phdr_info* object, size_t, void*) { return is_verbs_library(object->dlpi_name) ? 1 : 0; };
  return dl_iterate_phdr(is_verbs, nullptr) != 0;
}

void* deep_from_file(const char* path, int mode) {
  const bool before = is_verbs_loaded();
  void* handle = USIW_REAL(dlopen)(path, mode);
  if (handle != nullptr && !before && is_verbs_loaded())
    fprintf(stderr,
            "usiw-run: %s loads libibverbs with RTLD_DEEPBIND, which hides the RDMA device from it; set "
            "LD_PRELOAD=librdmacm.so.1, so that libibverbs is there before\n",
            path);
  return handle;
}

void warn_of_namespace(const char* path) {
  fprintf(stderr,
          "usiw-run: %s has libibverbs in a namespace of dlmopen(3), which usiw-run cannot enter: it finds no RDMA "
          "device there; load it by dlopen(3)\n",
          path);
}

void* other_namespace_from_file(Lmid_t space, const char* path, int mode) {
  void* handle = USIW_REAL(dlmopen)(space, path, mode);
  link_map* map = nullptr;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return handle;
  while (map->l_prev != nullptr) map = map->l_prev;
  for (; map != nullptr; map = map->l_next)
    if (is_verbs_library(map->l_name)) {
      warn_of_namespace(path);
      break;
    }
  return handle;
}

/// The function to jump to, and the mode to pass to it. A call returns this structure in two registers.
struct Next {
  void* function;
  long mode;
};

template <typename Function>
Next next(Function* function, int mode) {
  return {reinterpret_cast<void*>(function), mode};
}

}  // namespace

extern "C" Next usiw_run_before_dlopen(const char* path, int mode) {
  if (path == nullptr || (mode & RTLD_DEEPBIND) == 0) return next(USIW_REAL(dlopen), mode);
  if (is_verbs_library(path) || (is_file(path) && needs_verbs(path)))
    return next(USIW_REAL(dlopen), mode & ~RTLD_DEEPBIND);
  return is_file(path) ? next(deep_from_file, mode) : next(USIW_REAL(dlopen), mode);
}

extern "C" Next usiw_run_before_dlmopen(Lmid_t space, const char* path, int mode) {
  if (path == nullptr || space == LM_ID_BASE) return next(USIW_REAL(dlmopen), mode);
  if (is_file(path)) return next(other_namespace_from_file, mode);
  if (is_verbs_library(path)) warn_of_namespace(path);
  return next(USIW_REAL(dlmopen), mode);
}

// Defines void* dlopen(const char* path, int mode) and void* dlmopen(Lmid_t, const char* path, int mode). Each saves
// the arguments before the mode and calls usiw_run_before_*(), which returns the next function and the mode in two
// registers. The jump to that function leaves the stack and the return address as the caller made them.
#if defined(__x86_64__)
asm(R"(
	.macro jump_to_next name, mode
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	call usiw_run_before_\name
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	movl %edx, \mode
	jmp *%rax
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	jump_to_next dlopen, %esi
	jump_to_next dlmopen, %edx
)");
#elif defined(__aarch64__)
// hint #34 is BTI C, which marks the target of an indirect call. The jump uses x16, because BTI C at the start of
// libc's function accepts a jump by x16 or x17 only.
asm(R"(
	.macro jump_to_next name, mode
	.globl \name
	.type \name, %function
\name:
	.cfi_startproc
	hint #34
	stp x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov x29, sp
	stp x0, x1, [sp, #16]
	bl usiw_run_before_\name
	mov x16, x0
	mov x17, x1
	ldp x0, x1, [sp, #16]
	mov \mode, x17
	ldp x29, x30, [sp], #32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	br x16
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	jump_to_next dlopen, x1
	jump_to_next dlmopen, x2
)");
#endif
