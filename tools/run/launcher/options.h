// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file options.h
/// The command line of usiw-run.
#ifndef USIW_RUN_OPTIONS_H
#define USIW_RUN_OPTIONS_H

#include <string>
#include <utility>
#include <vector>

namespace usiw::run {

/// The parsed command line.
struct Options {
  bool check = false, help = false, version = false;
  std::vector<std::pair<const char*, std::string>> environment;  ///< variables to set, and their values
  char** program = nullptr;                                      ///< name of the program and its arguments, or null
};

/// Parses the command line. Returns an empty string, or the fault in one line.
std::string parse(int argc, char** argv, Options& out);
/// Returns the text of --help.
const char* usage();

}  // namespace usiw::run

#endif  // USIW_RUN_OPTIONS_H
