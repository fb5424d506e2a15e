// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file loadable.h
/// Whether the dynamic linker would load a preloaded library into a program. usiw-run checks the program that it
/// starts, and the library checks the programs that this one executes.
#ifndef USIW_RUN_LOADABLE_H
#define USIW_RUN_LOADABLE_H

#include <climits>

namespace usiw::run {

enum class Loadable {
  kYes,
  kUnknown,      ///< cannot be read; errno has the reason
  kStatic,       ///< statically linked
  kGainsRights,  ///< the dynamic linker ignores LD_PRELOAD
  kForeign,      ///< made for another processor, or not a 64-bit program
  kNoProgram,
};

/// Runs scripts that name no interpreter.
inline constexpr char kShell[] = "/bin/sh";

/// Finds the file that execvp(3) would run. Returns false if there is none. Allocates and locks nothing.
bool find_program(const char* name, char (&out)[PATH_MAX]);
/// Judges a program, or the interpreter of a script. @p which gets the file that decides. Allocates and locks nothing,
/// because a child of vfork(2) may call it.
Loadable is_loadable(const char* path, char (&which)[PATH_MAX]);

}  // namespace usiw::run

#endif  // USIW_RUN_LOADABLE_H
