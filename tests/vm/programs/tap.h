// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file tap.h
/// Many test cases in one process, one line of output each, because starting a
/// process costs more than most cases in an emulated guest.
///
///   PROGRAM --list          one line per case: name, seconds it may take here, "core" or "-"
///   PROGRAM [NAME ...]      runs these cases (all of them without an argument)
///
/// A run prints `run NAME` before a case, then `ok NAME MS` or `not ok NAME MS MESSAGE`. A case that
/// takes longer than its seconds is ended by SIGALRM together with the process: whoever reads the
/// lines starts the program again for the cases that are left.
#ifndef USIW_TESTS_TAP_H
#define USIW_TESTS_TAP_H

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tap {

struct Limits {
  unsigned seconds = 30;  ///< wall time after which the process ends; times patience()
  bool core = false;      ///< belongs to the short set
};

/// What a failed CHECK throws.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Case {
  const char* name;
  Limits limits;
  void (*body)();
};

/// All cases of the program, in the order of its files.
std::vector<Case>& cases();

struct Registrar {
  Registrar(const char* name, Limits limits, void (*body)());
};

/// Throws Failure with "file:line: message" (printf format).
[[noreturn]] void fail(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

/// A line that explains a later failure; shown by the test driver only then.
void note(const char* format, ...) __attribute__((format(printf, 1, 2)));

uint64_t now_ms();

/// Factor for every limit of time (VM_PATIENCE): the kernel that looks for its own errors is slow.
unsigned patience();

}  // namespace tap

/// CASE(id, "name", .core = true) { body }
#define CASE(id, name, ...)                                                                    \
  static void case_##id();                                                                     \
  static const tap::Registrar registrar_##id(name, tap::Limits{__VA_ARGS__}, case_##id);       \
  static void case_##id()

#define FAIL(...) tap::fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)                            \
  do {                                              \
    if (!(condition)) FAIL("not so: %s", #condition); \
  } while (0)
/// Both sides as long long, so that the message shows them.
#define CHECK_EQ(got, wanted)                                                                   \
  do {                                                                                          \
    const long long got_ = static_cast<long long>(got), wanted_ = static_cast<long long>(wanted); \
    if (got_ != wanted_) FAIL("%s is %lld, not %lld (%s)", #got, got_, wanted_, #wanted);       \
  } while (0)
/// A call that returns 0 or -1 with errno, as librdmacm's do.
#define CHECK_CALL(call)                                              \
  do {                                                                \
    if ((call) != 0) FAIL("%s: %s", #call, std::strerror(errno));     \
  } while (0)

#endif  // USIW_TESTS_TAP_H
