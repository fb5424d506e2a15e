// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/entry/static_verbs.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace usiw::run {
namespace {

/// The name of an environment variable that only libibverbs reads. The name occurs in every libibverbs that usiw
/// supports.
constexpr char kSetting[] = "RDMAV_ALLOW_DISASSOC_DESTROY";

struct Search {
  uintptr_t caller;
  const char* holder;  ///< name of the object that contains both the caller and libibverbs, or null
};

/// Returns true if @p text is in a read-only segment of the object. memmem() cannot be used: AddressSanitizer in the
/// program would check the searched range, which includes the poisoned gaps between the program's variables.
bool has_text(const dl_phdr_info& object, std::string_view text) {
  for (int i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_R) == 0 || (part.p_flags & PF_W) != 0) continue;
    const auto* at = reinterpret_cast<const char*>(object.dlpi_addr + part.p_vaddr);
    if (std::search(at, at + part.p_filesz, text.begin(), text.end()) != at + part.p_filesz) return true;
  }
  return false;
}

bool has_address(const dl_phdr_info& object, uintptr_t address) {
  for (int i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    if (part.p_type == PT_LOAD && address - object.dlpi_addr - part.p_vaddr < part.p_memsz) return true;
  }
  return false;
}

/// Returns 1, which ends dl_iterate_phdr(3), if the object is a shared libibverbs.
int is_shared_verbs(dl_phdr_info* object, size_t, void*) {
  return strstr(object->dlpi_name, "libibverbs.so") != nullptr;
}

int look_at(dl_phdr_info* object, size_t, void* arg) {
  auto& search = *static_cast<Search*>(arg);
  if (has_address(*object, search.caller) && has_text(*object, {kSetting, sizeof kSetting}))
    search.holder = *object->dlpi_name != '\0' ? object->dlpi_name : program_invocation_name;
  return 0;
}

}  // namespace

void warn_if_static_verbs(const void* caller) {
  static std::atomic<bool> done;
  if (done || dl_iterate_phdr(is_shared_verbs, nullptr) != 0) return;
  Search search{reinterpret_cast<uintptr_t>(caller), nullptr};
  dl_iterate_phdr(look_at, &search);
  if (search.holder == nullptr || done.exchange(true)) return;
  fprintf(stderr,
          "usiw-run: %s has libibverbs.a in it, which cannot load usiw's provider: it finds no RDMA device; link it "
          "with the shared libibverbs (-libverbs)\n",
          search.holder);
}

}  // namespace usiw::run
