// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file loadable.h
/// A check whether the dynamic linker would load a preloaded library into a program. usiw-run checks the program that
/// it starts. The preloaded library checks each program that this program executes, unless the program has removed the
/// library from LD_PRELOAD.
#ifndef USIW_RUN_LOADABLE_H
#define USIW_RUN_LOADABLE_H

#include <climits>

namespace usiw::run {

/// Whether the dynamic linker would load the library, and if not, why.
enum class Loadable {
  kYes,
  kUnknown,      ///< the file cannot be opened (errno has the reason), or its path is too long
  kStatic,       ///< statically linked
  kGainsRights,  ///< set-user-ID, set-group-ID or with capabilities: the dynamic linker ignores LD_PRELOAD
  kForeign,      ///< made for another processor, or not a 64-bit program
  kNoProgram,    ///< neither an ELF program nor a script
};

/// The shell that runs scripts without "#!".
inline constexpr char kShell[] = "/bin/sh";

/// Copies the path of the file that execvp(3) would run to @p out. Returns false if there is none. Allocates no memory
/// and takes no lock.
bool find_program(const char* name, char (&out)[PATH_MAX]);
/// Judges the program @p path or, if that is a script, its interpreter. Sets @p which to the file that was judged.
/// Allocates no memory and takes no lock, because a child of vfork(2) may call it.
Loadable is_loadable(const char* path, char (&which)[PATH_MAX]);

}  // namespace usiw::run

#endif  // USIW_RUN_LOADABLE_H
