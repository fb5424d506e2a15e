// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// main() of the programs that are a list of cases.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tap.h"

namespace {

using namespace tap;

/// Runs one case and prints its line; true if it passed.
bool run(const Case& c) {
  std::printf("run %s\n", c.name);
  std::fflush(stdout);
  const uint64_t start = now_ms();
  std::string problem;
  alarm(c.limits.seconds * patience());
  try {
    c.body();
  } catch (const std::exception& e) {
    problem = e.what();
    if (problem.empty()) problem = "exception without a text";
  }
  alarm(0);
  const unsigned long long took = now_ms() - start;
  if (problem.empty()) std::printf("ok %s %llu\n", c.name, took);
  else std::printf("not ok %s %llu %s\n", c.name, took, problem.c_str());
  std::fflush(stdout);
  return problem.empty();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Case& c : cases())
      std::printf("%s %u %s\n", c.name, c.limits.seconds * patience(), c.limits.core ? "core" : "-");
    return 0;
  }
  bool all_passed = true;
  for (int i = 1; i < argc; ++i) {
    auto named = [&](const Case& c) { return std::strcmp(c.name, argv[i]) == 0; };
    if (std::none_of(cases().begin(), cases().end(), named)) {
      std::fprintf(stderr, "%s: no case is named %s (see --list)\n", argv[0], argv[i]);
      return 2;
    }
  }
  for (const Case& c : cases()) {
    auto named = [&](const char* name) { return std::strcmp(c.name, name) == 0; };
    if (argc == 1 || std::any_of(argv + 1, argv + argc, named)) all_passed &= run(c);
  }
  return all_passed ? 0 : 1;
}
