// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file traffic.h
/// What the parts of the program `traffic` tell each other, and those who start it.
#ifndef USIW_TESTS_TRAFFIC_H
#define USIW_TESTS_TRAFFIC_H

#include <infiniband/verbs.h>

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
  uint64_t at;       ///< where in the window it was written
};

struct Arguments {
  std::string role, from, to = "0.0.0.0", device;
  uint16_t port = 0;
  int connections = 1;
  int seconds = 0;       ///< of traffic on connections that stand; times tap::patience()
  int rounds = 0;
  uint32_t size = 20000;
  bool events = false;   ///< wait in completion channels instead of polling
  bool forks = false;    ///< make children that exit or exec, now and then
  bool child = false;    ///< leave a child of fork() that lives on
  int pause_ms = 0;      ///< between rounds
  bool strict = false;   ///< server: a completion status that no lost connection explains is as bad as wrong data
  int backlog = 128;     ///< server
  std::string progress;  ///< persist: file with a Progress
};

/// What a `persist` client has done so far, for whoever watches it: a shared mapping of a file.
inline constexpr int kMaxPersist = 8;
struct Progress {
  uint64_t verified[kMaxPersist];  ///< rounds
  uint64_t connects[kMaxPersist];
  uint64_t failures[kMaxPersist];  ///< connections that ended, or were not made, for an allowed reason
};

/// How work requests complete when their connection is lost, whatever the reason.
inline bool is_connection_error(ibv_wc_status status) {
  return status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR;
}

/// Exit statuses of all.
enum Status {
  kFine = 0,
  kUsage = 64,
  kLost = 2,      ///< a connection broke or could not be made; the line "lost: ..." says how
  kCorrupt = 3,   ///< wrong data, or bytes touched that nobody may touch; persist: whatever must never happen
  kGone = 4,      ///< the device was removed
  kHang = 5,      ///< persist: a step took longer than it may
};

int run_server(const Arguments& arguments);
int run_client(const Arguments& arguments);
int run_persist(const Arguments& arguments);

}  // namespace traffic

#endif  // USIW_TESTS_TRAFFIC_H
