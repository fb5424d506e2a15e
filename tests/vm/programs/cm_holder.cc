// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A server that takes requests and never answers them: cm_holder ADDRESS [COUNT]. It prints `listening PORT`, then
// `request N` for each, and waits to be killed.
#include <unistd.h>

#include <cstdio>

#include "cm_tools.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    Listener listener(argv[1]);
    std::printf("listening %u\n", listener.port());
    std::fflush(stdout);
    for (int n = 1; n <= (argc > 2 ? std::atoi(argv[2]) : 1); ++n) {
      listener.wait_request(4 * kWaitMs);
      std::printf("request %d\n", n);
      std::fflush(stdout);
    }
    for (;;) pause();
  } catch (const tap::Failure& failure) {
    std::printf("%s\n", failure.what());
    return 1;
  }
}
