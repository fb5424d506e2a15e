// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Workqueues, timers and the clock. Work runs when the test requests it, or while a caller waits.
#include <algorithm>

#include "state.h"

struct workqueue_struct {
  bool alive;
};

namespace {

constexpr int kPatience = 200;  ///< rounds of waiting, each of a second, before it counts as a hang

std::multimap<unsigned long, work_struct*> queue;  ///< key: jiffies at which the work is due
std::vector<work_struct*> running;
int workqueues;
unsigned section;  ///< number of works queued since the first spin lock was taken

void remove(work_struct* work) {
  std::erase_if(queue, [&](const auto& entry) { return entry.second == work; });
  work->pending = false;
}

void add(workqueue_struct* wq, work_struct* work, unsigned long delay) {
  if (!work->initialised) mock_violation("work was not initialised");
  if (!wq || !wq->alive) mock_violation("work is queued on no workqueue");
  if (mock::context.spin) mock_most_queued = std::max(mock_most_queued, ++section);
  queue.emplace(jiffies + delay, work);
  work->pending = true;
}

}  // namespace

namespace mock {

bool work_within(const char* begin, const char* end) {
  for (const auto& [due, work] : queue) {
    const auto* at = reinterpret_cast<const char*>(work);
    if (at >= begin && at < end) return true;
  }
  return false;
}

void section_ends() { section = 0; }

bool in_worker() { return !running.empty(); }

void reset_work() {
  section = 0;
  mock_on_resched = nullptr;
  queue.clear();
  running.clear();
  jiffies = 1000;
  mock_now_us = 1000000;
}

}  // namespace mock

extern "C" {

unsigned long jiffies = 1000;
u64 mock_now_us = 1000000;
unsigned int mock_most_queued;
void (*mock_on_resched)(void);

void mock_resched(void) {
  mock_might_sleep("cond_resched");
  if (mock_on_resched) mock_on_resched();
}

struct workqueue_struct* alloc_workqueue(const char*, unsigned int, int) {
  mock_might_sleep("alloc_workqueue");
  if (mock_fails(MOCK_CORE, "alloc_workqueue")) return nullptr;
  workqueues++;
  return new workqueue_struct{true};
}

void destroy_workqueue(struct workqueue_struct* wq) {
  mock_might_sleep("destroy_workqueue");
  mock_run();
  if (!queue.empty()) mock_violation("workqueue destroyed while a timer for it is pending");
  workqueues--;
  delete wq;
}

void mock_init_work(struct work_struct* work, void (*func)(struct work_struct*)) {
  work->func = func;
  work->initialised = true;
  work->pending = false;
}

bool queue_work(struct workqueue_struct* wq, struct work_struct* work) {
  if (work->pending) return false;
  add(wq, work, 0);
  return true;
}

bool queue_delayed_work(struct workqueue_struct* wq, struct delayed_work* work, unsigned long delay) {
  if (work->work.pending) return false;
  add(wq, &work->work, delay);
  return true;
}

bool mod_delayed_work(struct workqueue_struct* wq, struct delayed_work* work, unsigned long delay) {
  const bool was = work->work.pending;
  remove(&work->work);
  add(wq, &work->work, delay);
  return was;
}

bool cancel_delayed_work(struct delayed_work* work) {
  const bool was = work->work.pending;
  remove(&work->work);
  return was;
}

bool cancel_work_sync(struct work_struct* work) {
  mock_might_sleep("cancel_work_sync");
  if (!work->initialised) mock_violation("cancel of work that was not initialised");
  for (const work_struct* other : running)
    if (other == work) mock_violation("work waits for itself");
  const bool was = work->pending;
  remove(work);
  return was;
}

bool cancel_delayed_work_sync(struct delayed_work* work) { return cancel_work_sync(&work->work); }

unsigned int mock_run(void) {
  unsigned int count = 0;
  while (!queue.empty() && !time_before(jiffies, queue.begin()->first) && count < 100000) {
    work_struct* work = queue.begin()->second;
    remove(work);
    running.push_back(work);
    const auto before = mock::held.size();
    work->func(work);
    if (mock::held.size() != before) mock_violation("work ended with a lock held");
    running.pop_back();
    count++;
  }
  if (count == 100000) mock_violation("work without end");
  return count;
}

void mock_advance_ms(unsigned int ms) {
  const unsigned long end = jiffies + ms;
  mock_run();
  while (!queue.empty() && time_before(queue.begin()->first, end)) {
    mock_now_us += (queue.begin()->first - jiffies) * 1000;
    jiffies = queue.begin()->first;
    mock_run();
  }
  mock_now_us += (end - jiffies) * 1000;
  jiffies = end;
  mock_run();
}

bool mock_let_others_run(const char* what) {
  static int rounds;
  mock_might_sleep(what);
  const unsigned int ran = mock_run();
  mock_grace_period();
  if (ran || mock_unregister_queued()) {
    rounds = 0;
    return true;
  }
  mock_advance_ms(1000);
  if (++rounds < kPatience) return true;
  rounds = 0;
  mock_violation("waits for ever: %s", what);
  return false;
}

unsigned int mock_pending_works(void) { return queue.size(); }

}  // extern "C"
