// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/loadable.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/machine.h"

namespace usiw::run {
namespace {

/// Limit for the files that are judged in a chain of scripts, each of which is the interpreter of the one before.
constexpr int kScripts = 4;

bool gains_rights(const char* path, const struct stat& st) {
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != geteuid()) return true;
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != getegid()) return true;
  return geteuid() != 0 && getxattr(path, "security.capability", nullptr, 0) > 0;
}

/// Returns true if an ELF file names a program interpreter. That is the dynamic linker.
bool is_dynamic(int fd, const Elf64_Ehdr& elf) {
  for (unsigned i = 0; i < elf.e_phnum; i++) {
    Elf64_Phdr segment;
    const off_t at = static_cast<off_t>(elf.e_phoff + i * sizeof segment);
    if (pread(fd, &segment, sizeof segment, at) != sizeof segment) return false;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

union Head {
  Elf64_Ehdr elf;
  char text[256];  ///< as much as the kernel reads for "#!"
};

/// Copies the interpreter in "#! /interpreter argument" to @p out. Returns false if the line names none.
bool interpreter_of(const Head& head, char (&out)[PATH_MAX]) {
  const char* begin = head.text + 2;
  begin += strspn(begin, " \t");
  const size_t len = strcspn(begin, " \t\n");
  memcpy(out, begin, len);
  out[len] = '\0';
  return len != 0;
}

Loadable judge_elf(int fd, const Elf64_Ehdr& elf) {
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_machine != kElfMachine) return Loadable::kForeign;
  return is_dynamic(fd, elf) ? Loadable::kYes : Loadable::kStatic;
}

/// Returns true if @p path is a regular file that may be executed. Makes system calls by number, because in a program
/// under usiw-run libc's functions are interposed.
bool is_program(const char* path) {
  struct stat st;
  return syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && S_ISREG(st.st_mode) &&
         syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0;
}

}  // namespace

bool find_program(const char* name, char (&out)[PATH_MAX]) {
  const char* dir = strchr(name, '/') != nullptr ? "" : getenv("PATH");
  if (dir == nullptr) dir = "/bin:/usr/bin";
  for (;; dir++) {
    const size_t len = strcspn(dir, ":");
    if (len + 1 + strlen(name) < sizeof out) {
      memcpy(out, dir, len);
      if (len != 0) out[len] = '/';
      strcpy(out + len + (len != 0 ? 1 : 0), name);
      if (is_program(out)) return true;
    }
    dir += len;
    if (*dir == '\0') return false;
  }
}

Loadable is_loadable(const char* path, char (&which)[PATH_MAX]) {
  if (strlen(path) >= sizeof which) return Loadable::kUnknown;
  strcpy(which, path);
  for (int scripts = 0; scripts < kScripts; scripts++) {
    const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, which, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (fd < 0) return Loadable::kUnknown;
    struct stat st;
    Head head{};
    const bool rights = fstat(fd, &st) == 0 && gains_rights(which, st);
    const ssize_t n = pread(fd, &head, sizeof head - 1, 0);
    const bool elf = n >= static_cast<ssize_t>(sizeof head.elf) && memcmp(head.elf.e_ident, ELFMAG, SELFMAG) == 0;
    const Loadable judged = rights ? Loadable::kGainsRights : elf ? judge_elf(fd, head.elf) : Loadable::kNoProgram;
    syscall(SYS_close, fd);
    if (rights || elf) return judged;
    if (n > 2 && memcmp(head.text, "#!", 2) == 0) {
      if (!interpreter_of(head, which)) return Loadable::kYes;
    } else if (n > 0 && memchr(head.text, '\0', static_cast<size_t>(n)) == nullptr) {
      strcpy(which, kShell);  // the shell runs text without "#!", as for execvp(3)
    } else {
      return Loadable::kNoProgram;
    }
  }
  return Loadable::kYes;  // the chain of scripts is too long, so leave the decision to the kernel
}

}  // namespace usiw::run
