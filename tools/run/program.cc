// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace usiw::run {
namespace {

/// Does the dynamic linker ignore LD_PRELOAD for it, because it gains rights?
bool gains_rights(const std::string& path, const struct stat& st) {
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != geteuid()) return true;
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != getegid()) return true;
  return geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

/// Has an ELF file a program interpreter (the dynamic linker)?
bool is_dynamic(int fd, const Elf64_Ehdr& elf) {
  for (unsigned i = 0; i < elf.e_phnum; i++) {
    Elf64_Phdr segment;
    off_t at = static_cast<off_t>(elf.e_phoff + i * sizeof segment);
    if (pread(fd, &segment, sizeof segment, at) != sizeof segment) return false;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

std::string look_into(int fd, const std::string& path, unsigned depth) {
  union {
    Elf64_Ehdr elf;
    char text[256];
  } head{};
  ssize_t n = pread(fd, &head, sizeof head - 1, 0);
  if (n > 2 && memcmp(head.text, "#!", 2) == 0) {
    std::string line(head.text + 2);
    line = line.substr(0, line.find('\n'));
    size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || depth > 3) return {};
    std::string interpreter = line.substr(begin, line.find_first_of(" \t", begin) - begin);
    return why_not(interpreter);
  }
  if (n < static_cast<ssize_t>(sizeof(Elf64_Ehdr)) || memcmp(head.elf.e_ident, ELFMAG, SELFMAG) != 0) {
    // Text without "#!" is the shell's, as for execvp(3).
    if (n > 0 && memchr(head.text, '\0', static_cast<size_t>(n)) == nullptr) return why_not(kShell);
    return path + " is neither an ELF program nor a script";
  }
  if (head.elf.e_ident[EI_CLASS] != ELFCLASS64 || head.elf.e_machine != EM_X86_64)
    return path + " is not a 64-bit x86 program; usiw-run's library cannot be loaded into it";
  if (!is_dynamic(fd, head.elf))
    return path + " is statically linked: nothing can be put before its libc; link it dynamically, or use the module";
  return {};
}

}  // namespace

std::string why_not_found(const std::string& name) {
  struct stat st;
  if (name.find('/') == std::string::npos || stat(name.c_str(), &st) != 0) return name + ": program not found";
  return name + (S_ISDIR(st.st_mode) ? " is a directory" : " is not executable (chmod +x)");
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    struct stat st;
    return stat(name.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(name.c_str(), X_OK) == 0 ? name : "";
  }
  const char* path = getenv("PATH");
  std::string dirs = path != nullptr ? path : "/usr/bin:/bin";
  for (size_t at = 0; at <= dirs.size();) {
    size_t end = std::min(dirs.find(':', at), dirs.size());
    std::string file = (end == at ? std::string(".") : dirs.substr(at, end - at)) + "/" + name;
    struct stat st;
    if (stat(file.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return {};
}

std::string why_not(const std::string& path) {
  struct stat st;
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? "" : path + ": " + strerror(errno);  // runnable but not readable: try it
  std::string reason;
  if (fstat(fd, &st) == 0 && gains_rights(path, st))
    reason = path + " is set-user-ID, set-group-ID or has file capabilities: the dynamic linker ignores LD_PRELOAD for "
             "it; run a copy without them";
  else
    reason = look_into(fd, path, 0);
  close(fd);
  return reason;
}

}  // namespace usiw::run
