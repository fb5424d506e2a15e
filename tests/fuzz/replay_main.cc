// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file replay_main.cc
/// Runs a fuzz target over stored inputs (files, or folders of them) without a fuzzer.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "input.h"

namespace {

namespace fs = std::filesystem;

bool g_verbose = false;

bool replay(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    std::cerr << file << ": cannot be read\n";
    return false;
  }
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  // Said beforehand: a finding ends the process.
  if (g_verbose) std::cerr << "replaying " << file.native() << std::endl;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    const fs::path path = argv[i];
    if (path == "-v") {
      g_verbose = true;
      continue;
    }
    std::vector<fs::path> files;
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
    } else {
      files.push_back(path);
    }
    for (const fs::path& file : files) {
      if (!replay(file)) return 1;
      ++count;
    }
  }
  if (count == 0) {
    std::cerr << "usage: " << argv[0] << " [-v] FILE|FOLDER...\n";
    return 2;
  }
  std::cout << count << " inputs replayed\n";
}
