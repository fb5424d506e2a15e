// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/launcher/program.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/machine.h"
#include "tools/run/host/loadable.h"

namespace usiw::run {

std::string why_not_found(const std::string& name) {
  struct stat st;
  if (name.find('/') == std::string::npos || stat(name.c_str(), &st) != 0) return name + ": program not found";
  return name + (S_ISDIR(st.st_mode) ? " is a directory" : " is not executable (chmod +x)");
}

std::string why_not(const std::string& path) {
  char which[PATH_MAX];
  const Loadable loadable = is_loadable(path.c_str(), which);
  switch (loadable) {
    case Loadable::kYes:
      return {};
    case Loadable::kUnknown:
      return errno == EACCES ? "" : std::string(which) + ": " + strerror(errno);  // runnable but not readable: try it
    case Loadable::kStatic:
      return std::string(which) +
             " is statically linked: nothing can be put before its libc; link it dynamically, or use the module";
    case Loadable::kGainsRights:
      return std::string(which) +
             " is set-user-ID, set-group-ID or has file capabilities: the dynamic linker ignores LD_PRELOAD "
             "for it; run a copy without them";
    case Loadable::kForeign:
      return std::string(which) + " is not a " USIW_MACHINE " program; usiw-run's library cannot be loaded into it";
    case Loadable::kNoProgram:
      break;
  }
  return std::string(which) + " is neither an ELF program nor a script";
}

}  // namespace usiw::run
