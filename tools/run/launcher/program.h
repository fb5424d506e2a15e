// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file program.h
/// Can this program be run with a preloaded library?
#ifndef USIW_RUN_PROGRAM_H
#define USIW_RUN_PROGRAM_H

#include <string>

namespace usiw::run {

/// Why find_program() finds none, in one line.
std::string why_not_found(const std::string& name);
/// Empty, or why the dynamic linker would not load the library into @p path, in one line. Of a
/// script its interpreter is looked at.
std::string why_not(const std::string& path);

}  // namespace usiw::run

#endif  // USIW_RUN_PROGRAM_H
