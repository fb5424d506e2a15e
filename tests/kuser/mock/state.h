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
extern size_t held_around;  // the first of them, by whoever is in the midst of registering a device

void reset_sync();
void reset_memory();
void reset_work();
void reset_net();
void reset_rdma();

/// Does a work run, which is no process's?
bool in_worker();

/// The last spin lock has been released.
void section_ends();

/// A work that is queued anywhere in [begin, end).
bool work_within(const char* begin, const char* end);

}  // namespace mock
