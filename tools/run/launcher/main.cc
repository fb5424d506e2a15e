// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file main.cc
/// The main program of usiw-run. It finds the library and the provider, sets the environment, and executes the program
/// of the user. With other arguments it is `usiw-run --check`, a trial of that check, or the watcher of a program.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/machine.h"
#include "tools/run/conn/watch_table.h"
#include "tools/run/host/loadable.h"
#include "tools/run/host/settings.h"
#include "tools/run/launcher/check.h"
#include "tools/run/launcher/options.h"
#include "tools/run/launcher/parts.h"
#include "tools/run/launcher/try_connection.h"
#include "tools/run/launcher/unused_trees.h"
#include "tools/run/launcher/watcher.h"
#include "uapi/usiw_abi.h"
#include "uapi/usiw_version.h"

using namespace usiw::run;

namespace {

/// Exit statuses, as in shells: no program was found, the program cannot be run, and the command line or a setting is
/// wrong.
constexpr int kNotFound = 127, kNotRunnable = 126, kUsage = 2;

int fail(int status, const std::string& line) {
  fprintf(stderr, "usiw-run: %s\n", line.c_str());
  return status;
}

/// Raises the soft limit on descriptors to 65536, or to the hard limit if that is lower, because each connection needs
/// descriptors. The library moves its own descriptors out of the way of the program's (out_of_the_way()).
void raise_descriptor_limit() {
  rlimit limit;
  constexpr rlim_t kEnough = 65536;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = limit.rlim_max < kEnough ? limit.rlim_max : kEnough;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Moves the requested port from USIW_PORT to the setting of --port, unless this command or an outer usiw-run has set
/// that already. The provider gets the request from the library, so USIW_PORT is removed. Returns an empty string, or
/// the fault.
std::string take_requested_port() {
  const char* requested = getenv(usiw::kPortVariable);
  if (requested == nullptr) return {};
  usiw::PortWish asked;
  if (*requested != '\0' && !usiw::parse_port_wish(requested, asked))
    return std::string(usiw::kPortVariable) + ": " + usiw::kPortNames + ", not '" + requested + "'";
  if (*requested != '\0') setenv(kRunPortVariable, requested, 0);
  unsetenv(usiw::kPortVariable);
  return {};
}

/// Returns an empty string, or why the face that is requested is none.
std::string check_face() {
  const char* requested = getenv(kFaceVariable);
  FaceKind face;
  if (requested == nullptr || *requested == '\0' || parse_face(requested, face)) return {};
  return std::string(kFaceVariable) + ": iwarp or roce, not '" + requested + "'";
}

/// Returns why find_program() finds no program, in one line.
std::string why_not_found(const std::string& name) {
  struct stat st;
  if (name.find('/') == std::string::npos || stat(name.c_str(), &st) != 0) return name + ": program not found";
  return name + (S_ISDIR(st.st_mode) ? " is a directory" : " is not executable (chmod +x)");
}

/// Returns why the dynamic linker would not load the library into @p path, in one line. Returns an empty string if it
/// would, or if this user may not read the file. If @p path is a script, its interpreter is judged.
std::string why_not(const std::string& path) {
  char which[PATH_MAX];
  const Loadable loadable = is_loadable(path.c_str(), which);
  switch (loadable) {
    case Loadable::kYes: return {};
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
    case Loadable::kNoProgram: break;
  }
  return std::string(which) + " is neither an ELF program nor a script";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], kWatchArgument) == 0) return watcher_main();
  if (argc == 4 && strcmp(argv[1], kTryArgument) == 0) return try_connection_main(argv[2], argv[3]);
  Options options;
  if (std::string wrong = parse(argc, argv, options); !wrong.empty()) return fail(kUsage, wrong);
  if (options.help) {
    fputs(usage(), stdout);
    return 0;
  }
  if (options.version) {
    printf("usiw-run %s (ABI %d, wire %d)\n", USIW_VERSION, USIW_ABI_VERSION, USIW_WIRE_VERSION);
    return 0;
  }
  for (auto& [name, value] : options.environment) setenv(name, value.c_str(), 1);
  if (std::string wrong = take_requested_port(); !wrong.empty()) return fail(kUsage, wrong);
  if (std::string wrong = check_face(); !wrong.empty()) return fail(kUsage, wrong);
  Parts parts = find_parts();
  if (options.check) return check(parts);
  if (!parts.missing.empty()) return fail(kNotRunnable, parts.missing);
  if (std::string wrong = check_settings(); !wrong.empty()) return fail(kUsage, wrong);

  char path[PATH_MAX];
  if (!find_program(options.program[0], path)) {
    const bool there = access(options.program[0], F_OK) == 0 && strchr(options.program[0], '/') != nullptr;
    return fail(there ? kNotRunnable : kNotFound, why_not_found(options.program[0]));
  }
  if (std::string reason = why_not(path); !reason.empty()) return fail(kNotRunnable, reason);

  set_environment(parts);
  raise_descriptor_limit();
  remove_unused_trees();
  execv(path, options.program);
  if (errno == ENOEXEC) {  // a script without "#!"
    std::vector<char*> command = {const_cast<char*>(kShell), path};
    for (char** word = options.program + 1; *word != nullptr; word++) command.push_back(*word);
    command.push_back(nullptr);
    execv(kShell, command.data());
  }
  return fail(kNotRunnable, path + (std::string(": ") + strerror(errno)));
}
