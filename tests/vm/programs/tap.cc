// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tap.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace tap {
namespace {

std::string format_args(const char* format, va_list args) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, args);
  return text;
}

}  // namespace

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

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

unsigned patience() {
  static const unsigned factor = [] {
    const char* text = std::getenv("VM_PATIENCE");
    const int number = text ? std::atoi(text) : 1;
    return number > 1 ? static_cast<unsigned>(number) : 1u;
  }();
  return factor;
}

}  // namespace tap
