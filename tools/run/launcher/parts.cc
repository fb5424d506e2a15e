// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/parts.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "tools/run/host/settings.h"

namespace usiw::run {
namespace {

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

/// Returns the path of this program, from the kernel or, without /proc, from the path that was executed.
std::string own_path() {
  char buf[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", buf, sizeof buf - 1);
  if (n > 0) return std::string(buf, static_cast<size_t>(n));
  const auto* executed = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return executed != nullptr && realpath(executed, buf) != nullptr ? buf : "";
}

/// Returns the number of the private ABI that providers of this libibverbs have in their names, such as "34". Returns
/// an empty string if there is none.
std::string provider_number(void* libibverbs) {
  for (int number = 1; number < 1000; number++) {
    const std::string digits = std::to_string(number);
    if (dlsym(libibverbs, ("verbs_register_driver_" + digits).c_str()) != nullptr) return digits;
  }
  return {};
}

/// Adds the library to LD_PRELOAD, after the libraries that the user preloads, so that calls of libc from those
/// libraries reach it. Some of those libraries turn socket calls into verbs calls (librspreload), and run-time
/// libraries of sanitizers must be the first.
void preload(const std::string& library) {
  const char* others = getenv("LD_PRELOAD");
  std::string value = library;
  if (others != nullptr && *others != '\0')
    value = strstr(others, library.c_str()) == nullptr ? others + (":" + library) : others;
  setenv("LD_PRELOAD", value.c_str(), 1);
}

}  // namespace

void set_environment(const Parts& parts) {
  setenv(kWatcherVariable, parts.self.c_str(), 1);
  if (!parts.drivers.empty()) setenv("RDMAV_DRIVERS", parts.drivers.c_str(), 1);
  preload(parts.library);
}

Parts find_parts() {
  Parts p;
  p.self = own_path();
  std::string here = p.self.substr(0, p.self.rfind('/'));
  std::string installed = here + "/../lib/" USIW_MULTIARCH "/";
  for (const char* folder : {"/../lib64/", "/../lib/"})
    if (!exists(installed + "usiw/libusiw-run.so")) installed = here + folder;
  for (const std::string& dir : {here + "/", installed + "usiw/"})
    if (p.library.empty() && exists(dir + "libusiw-run.so")) p.library = dir + "libusiw-run.so";
  void* const libibverbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  const std::string suffix = "-rdmav" + (libibverbs != nullptr ? provider_number(libibverbs) : "") + ".so";
  // libibverbs does not search a build directory, nor an installation under DESTDIR or another prefix than its own. So
  // RDMAV_DRIVERS names the provider.
  bool other = false;
  for (const std::string& stem : {here + "/../provider/libusiw", installed + "libibverbs/libusiw"}) {
    other = other || exists(stem + "-provider.so");
    if (!p.provider.empty() || !exists(stem + suffix)) continue;
    p.provider = stem + suffix;
    p.drivers = stem;
  }
  if (p.library.empty())
    p.missing = "libusiw-run.so is not beside " + p.self +
                "; build it (make provider) or install it (make install-local)";
  else if (libibverbs == nullptr)
    p.missing = "libibverbs is not there: apt install libibverbs1 ibverbs-providers librdmacm1";
  else if (p.provider.empty() && other)
    p.missing = "this host's rdma-core asks for libusiw" + suffix + ", which is not there: " + kRdmaCoreVersions;
  else if (p.provider.empty())
    p.missing =
        "the provider libusiw-provider.so is not there; build it (make provider) or install it (make install-local)";
  return p;
}

}  // namespace usiw::run
