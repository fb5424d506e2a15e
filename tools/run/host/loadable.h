// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file loadable.h
/// Would the dynamic linker load a preloaded library into a program? Asked by usiw-run for the program that it starts,
/// and by the library for those that this one executes.
#ifndef USIW_RUN_LOADABLE_H
#define USIW_RUN_LOADABLE_H

#include <climits>

namespace usiw::run {

enum class Loadable {
  kYes,
  kUnknown,     ///< cannot be read; errno says why
  kStatic,      ///< statically linked
  kGainsRights, ///< the dynamic linker ignores LD_PRELOAD
  kForeign,     ///< made for another processor, or not a 64-bit program
  kNoProgram,
};

/// Runs scripts that do not say by what.
inline constexpr char kShell[] = "/bin/sh";

/// The file that execvp(3) would run. False: there is none. Allocates and locks nothing, as what follows.
bool find_program(const char* name, char (&out)[PATH_MAX]);
/// Of a script its interpreter is looked at. @p which is the file that decides. Allocates and locks nothing: a child of
/// vfork(2) may ask.
Loadable is_loadable(const char* path, char (&which)[PATH_MAX]);

}  // namespace usiw::run

#endif  // USIW_RUN_LOADABLE_H
