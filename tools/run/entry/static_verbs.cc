// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/entry/static_verbs.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace usiw::run {
namespace {

/// A setting that every libibverbs reads, and no other code does.
constexpr char kSetting[] = "RDMAV_ALLOW_DISASSOC_DESTROY";

/// Searches the read-only segments of an object. It does not call memmem(), because AddressSanitizer in the program
/// would check the range, and there are gaps between its variables.
bool has_text(const ElfW(Ehdr) & object, ElfW(Addr) bias, std::string_view text) {
  const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(reinterpret_cast<const char*>(&object) + object.e_phoff);
  return std::any_of(parts, parts + object.e_phnum, [&](const ElfW(Phdr) & part) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_R) == 0 || (part.p_flags & PF_W) != 0) return false;
    const auto* at = reinterpret_cast<const char*>(bias + part.p_vaddr);
    return std::search(at, at + part.p_filesz, text.begin(), text.end()) != at + part.p_filesz;
  });
}

/// Returns 1, which ends the walk, if the object is a shared libibverbs.
int is_shared_verbs(dl_phdr_info* object, size_t, void*) {
  return strstr(object->dlpi_name, "libibverbs.so") != nullptr;
}

}  // namespace

void warn_if_static_verbs(const void* caller) {
  static std::atomic<bool> done;
  if (done || dl_iterate_phdr(is_shared_verbs, nullptr) != 0) return;
  Dl_info info;
  link_map* object = nullptr;
  if (dladdr1(caller, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || object == nullptr) return;
  const auto& header = *static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
  if (!has_text(header, object->l_addr, {kSetting, sizeof kSetting}) || done.exchange(true)) return;
  fprintf(stderr,
          "usiw-run: %s has libibverbs.a in it, which cannot load usiw's provider: it finds no RDMA device; link it "
          "with the shared libibverbs (-libverbs)\n",
          *object->l_name != '\0' ? object->l_name : program_invocation_name);
}

}  // namespace usiw::run
