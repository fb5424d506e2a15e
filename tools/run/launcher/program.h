// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file program.h
/// Whether a program can be run with a preloaded library.
#ifndef USIW_RUN_PROGRAM_H
#define USIW_RUN_PROGRAM_H

#include <string>

namespace usiw::run {

/// Returns why find_program() finds no program, in one line.
std::string why_not_found(const std::string& name);
/// Returns an empty string, or in one line why the dynamic linker would not load the library into @p path or, if that
/// is a script, into its interpreter.
std::string why_not(const std::string& path);

}  // namespace usiw::run

#endif  // USIW_RUN_PROGRAM_H
