// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Verified traffic between two processes:
//
//   traffic server [--to IP] [--port P] [--events] [--strict] [--backlog N]
//   traffic client --from IP --to IP --port P [--connections N] [--seconds S | --rounds N] [--size B]
//                  [--events] [--forks] [--child] [--pause-ms M]
//   traffic persist --progress FILE --from IP --to IP --port P [--connections N] [--size B] [--events] [--pause-ms M]
//
// The server prints `listening PORT` and serves until SIGTERM. Each round of the client is a WRITE in
// four pieces, a READ of what was written, a SEND, and the server's SEND in answer; all of it is
// compared. SIGUSR1 ends its time early. `persist` keeps three rounds in flight and connects again whenever it loses a
// connection, until SIGTERM. See traffic.h for the exit statuses.
#include "traffic.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

int main(int argc, char** argv) {
  using namespace traffic;
  Arguments arguments;
  static const option kOptions[] = {
      {"from", 1, nullptr, 'f'},    {"to", 1, nullptr, 't'},      {"port", 1, nullptr, 'p'},
      {"connections", 1, nullptr, 'c'}, {"seconds", 1, nullptr, 's'}, {"rounds", 1, nullptr, 'r'},
      {"size", 1, nullptr, 'b'},    {"events", 0, nullptr, 'e'},  {"forks", 0, nullptr, 'k'},
      {"pause-ms", 1, nullptr, 'm'}, {"strict", 0, nullptr, 'S'},   {"progress", 1, nullptr, 'P'},
      {"backlog", 1, nullptr, 'B'}, {"child", 0, nullptr, 'C'},     {nullptr, 0, nullptr, 0}};
  if (argc > 1) arguments.role = argv[1];
  optind = 2;
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (c) {
      case 'f': arguments.from = optarg; break;
      case 't': arguments.to = optarg; break;
      case 'p': arguments.port = static_cast<uint16_t>(std::atoi(optarg)); break;
      case 'c': arguments.connections = std::atoi(optarg); break;
      case 's': arguments.seconds = std::atoi(optarg); break;
      case 'r': arguments.rounds = std::atoi(optarg); break;
      case 'b': arguments.size = static_cast<uint32_t>(std::atoi(optarg)); break;
      case 'e': arguments.events = true; break;
      case 'k': arguments.forks = true; break;
      case 'C': arguments.child = true; break;
      case 'm': arguments.pause_ms = std::atoi(optarg); break;
      case 'S': arguments.strict = true; break;
      case 'P': arguments.progress = optarg; break;
      case 'B': arguments.backlog = std::atoi(optarg); break;
      default: return kUsage;
    }
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (arguments.size > kMaxSize || arguments.size == 0) return kUsage;
  try {
    if (arguments.role == "server") return run_server(arguments);
    if (arguments.role == "client") return run_client(arguments);
    if (arguments.role == "persist") return run_persist(arguments);
  } catch (const std::exception& e) {
    std::printf("lost: %s\n", e.what());
    return kLost;
  }
  std::fprintf(stderr, "usage: %s server|client|persist ... (see the head of traffic.cc)\n", argv[0]);
  return kUsage;
}
