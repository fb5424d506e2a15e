// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file traffic.h
/// What the two halves of the program `traffic` tell each other.
#ifndef USIW_TESTS_TRAFFIC_H
#define USIW_TESTS_TRAFFIC_H

#include <cstdint>
#include <string>

namespace traffic {

inline constexpr uint32_t kMaxSize = 1 << 20;
inline constexpr uint32_t kReceives = 4;

/// The server's region for one connection, in the private data of its accept.
struct Window {
  uint64_t addr;
  uint32_t rkey;
  uint32_t size;
};

/// First bytes of every SEND of the client.
struct Header {
  uint64_t seed;
  uint32_t length;   ///< bytes of pattern behind this header, and bytes that were written
  uint32_t round;
};

struct Arguments {
  std::string role, from, to = "0.0.0.0", device;
  uint16_t port = 0;
  int connections = 1;
  int seconds = 0;
  int rounds = 0;
  uint32_t size = 20000;
  bool events = false;   ///< wait in completion channels instead of polling
  bool forks = false;    ///< make children that exit or exec, now and then
  int pause_ms = 0;      ///< between rounds
};

/// Exit statuses of both.
enum Status {
  kFine = 0,
  kUsage = 64,
  kLost = 2,      ///< a connection broke or could not be made; the line "lost: ..." says how
  kCorrupt = 3,   ///< wrong data, or bytes touched that nobody may touch
};

int run_server(const Arguments& arguments);
int run_client(const Arguments& arguments);

}  // namespace traffic

#endif  // USIW_TESTS_TRAFFIC_H
