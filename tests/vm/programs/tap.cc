// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tap.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

namespace tap {
namespace {

struct Case {
  const char* name;
  Limits limits;
  void (*body)();
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

std::string format_args(const char* format, va_list args) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, args);
  return text;
}

/// Runs one case and prints its line; true if it passed.
bool run(const Case& c) {
  std::printf("run %s\n", c.name);
  std::fflush(stdout);
  const uint64_t start = now_ms();
  std::string problem;
  alarm(c.limits.seconds);
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

Registrar::Registrar(const char* name, Limits limits, void (*body)()) {
  cases().push_back({name, limits, body});
}

void fail(const char* file, int line, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const std::string text = format_args(format, args);
  va_end(args);
  const char* base = std::strrchr(file, '/');
  throw Failure(std::string(base ? base + 1 : file) + ":" + std::to_string(line) + ": " + text);
}

void note(const char* format, ...) {
  va_list args;
  va_start(args, format);
  const std::string text = format_args(format, args);
  va_end(args);
  std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
}

uint64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

}  // namespace tap

int main(int argc, char** argv) {
  using namespace tap;
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Case& c : cases())
      std::printf("%s %u %s\n", c.name, c.limits.seconds, c.limits.core ? "core" : "-");
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
