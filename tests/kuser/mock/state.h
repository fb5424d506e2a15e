// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Shared by the files of the mock.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mock/mock.h"

namespace mock {

extern std::vector<std::string> violations;

/// Depths of the contexts that forbid sleeping.
struct Context {
  int spin = 0;
  int bh_off = 0;
  int irq_off = 0;
  int rcu = 0;
  int softirq = 0;
};
extern Context context;
extern std::vector<mock_lock*> held;
extern size_t held_around;  // the number of them that a registering device holds

void reset_sync();
void reset_memory();
void reset_work();
void reset_net();
void reset_rdma();

/// Returns true while a work runs, which belongs to no process.
bool in_worker();

/// The last spin lock has been released.
void section_ends();

/// Returns true if a work in [begin, end) is queued.
bool work_within(const char* begin, const char* end);

}  // namespace mock
