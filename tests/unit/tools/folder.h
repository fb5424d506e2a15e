// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file folder.h
/// A test with a folder of its own.
#ifndef USIW_TESTS_TOOLS_FOLDER_H
#define USIW_TESTS_TOOLS_FOLDER_H

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace usiw {

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::string name = ::testing::TempDir() + "usiw_trace_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

}  // namespace usiw

#endif  // USIW_TESTS_TOOLS_FOLDER_H
