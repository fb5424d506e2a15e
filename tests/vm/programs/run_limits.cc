// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Programs with few resources, for usiw-run: which has descriptors and memory of its own in the same process.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "rig.h"

// As many connections, one after the other, as have four times the descriptors that the process may have. Each lingers
// for 2 s for the sake of its peer.
CASE(few_descriptors, "limits/few-descriptors", .seconds = 120) {
  constexpr rlim_t kDescriptors = 256;
  constexpr int kConnections = 250, kOwn = 48;
  const rlimit limit{kDescriptors, kDescriptors};
  CHECK_CALL(setrlimit(RLIMIT_NOFILE, &limit));
  std::vector<int> own;
  for (int i = 0; i < kOwn; ++i) own.push_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int i = 0; i < kConnections; ++i) {
    Pair p;
    exercise(p);
    p.close();
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) FAIL("after %d connections: %s", i + 1, std::strerror(errno));
    close(fd);
  }
  for (int fd : own) {
    CHECK(fd >= 0);
    close(fd);
  }
}
