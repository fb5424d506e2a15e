// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file emulated_path.h
/// The path that a call of libc gets in place of the program's.
#ifndef USIW_RUN_EMULATED_PATH_H
#define USIW_RUN_EMULATED_PATH_H

#include <string>

#include "tools/run/entry/sysfs.h"

namespace usiw::run {

class Path {
 public:
  explicit Path(const char* path) : in_tree_(emulated(path)), path_(in_tree_.empty() ? path : in_tree_.c_str()) {}
  Path(const Path&) = delete;
  operator const char*() const { return path_; }

 private:
  const std::string in_tree_;
  const char* const path_;
};

}  // namespace usiw::run

#endif  // USIW_RUN_EMULATED_PATH_H
