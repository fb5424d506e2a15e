// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Findings, injected errors, locks, RCU, references.
#include <cstdarg>

#include "state.h"

namespace mock {

std::vector<std::string> violations;
Context context;
std::vector<mock_lock*> held;
size_t held_around;
unsigned skip;  ///< calls before mock_any_errors counts

namespace {

constexpr unsigned kInSoftirq = 1;
constexpr unsigned kSoftirqsOn = 2;

/// By class of lock: the contexts in which it was taken, and the locks under which it was taken.
std::map<std::string, unsigned> usage;
std::set<std::pair<std::string, std::string>> order;

struct Callback {
  rcu_head* head;
  void (*func)(rcu_head*);
  void* to_free;
};
std::deque<Callback> callbacks;

void check_order(const mock_lock* lock, const char* site) {
  for (const mock_lock* before : held) {
    order.emplace(before->name, lock->name);
    if (order.count({lock->name, before->name}))
      mock_violation("%s: %s taken behind %s, and the other way round elsewhere", site, lock->name,
                     before->name);
  }
}

void check_usage(const mock_lock* lock, mock_lock_kind kind, const char* site) {
  unsigned& used = usage[lock->name];
  if (context.softirq)
    used |= kInSoftirq;
  else if (kind == MOCK_SPIN && !context.bh_off && !context.irq_off)
    used |= kSoftirqsOn;
  if (used == (kInSoftirq | kSoftirqsOn))
    mock_violation("%s: %s is used in softirq and with softirqs on", site, lock->name);
}

}  // namespace

void reset_sync() {
  violations.clear();
  context = {};
  held.clear();
  held_around = 0;
  callbacks.clear();
}

}  // namespace mock

using mock::context;

extern "C" {

u64 mock_errors[MOCK_CALLS];
u64 mock_any_errors;
unsigned int mock_fallible;

void mock_violation(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  mock::violations.emplace_back(text);
}

bool mock_warn(bool on, const char* what) {
  if (on) mock_violation("WARN_ON(%s)", what);
  return on;
}

void mock_inject_after(unsigned int skip, u64 any_errors) {
  mock_any_errors = any_errors;
  mock_fallible = 0;
  mock::skip = skip;
}

void mock_inject(u64 any_errors) { mock_inject_after(0, any_errors); }

bool mock_fails(enum mock_call kind, const char*) {
  const bool counts = mock_fallible >= mock::skip;
  const bool any = counts && mock_any_errors & 1, one = mock_errors[kind] & 1;
  if (counts) mock_any_errors >>= 1;
  mock_errors[kind] >>= 1;
  mock_fallible++;
  return any || one;
}

// ---- Context ----

void mock_might_sleep(const char* what) {
  if (context.spin || context.bh_off || context.irq_off || context.rcu || context.softirq)
    mock_violation("%s may sleep, in atomic context (spin %d bh %d irq %d rcu %d softirq %d)", what,
                   context.spin, context.bh_off, context.irq_off, context.rcu, context.softirq);
}

void mock_softirq_begin(void) { context.softirq++; }
void mock_softirq_end(void) { context.softirq--; }

void mock_idle_check(const char* where) {
  for (size_t i = mock::held_around; i < mock::held.size(); i++)
    mock_violation("%s: %s is still held", where, mock::held[i]->name);
  if (context.rcu || context.bh_off || context.irq_off || context.spin)
    mock_violation("%s: context is not as before", where);
}

// ---- Locks ----

void mock_acquire(struct mock_lock* lock, enum mock_lock_kind kind, const char* site) {
  if (kind == MOCK_MUTEX || kind == MOCK_READ) mock_might_sleep(site);
  if (!lock->name) mock_violation("%s: lock was not initialised", site);
  if (lock->held) mock_violation("%s: %s is held already: deadlock", site, lock->name);
  if (lock->name) {
    mock::check_order(lock, site);
    if (kind <= MOCK_SPIN_IRQ) mock::check_usage(lock, kind, site);
  }
  lock->held++;
  mock::held.push_back(lock);
  if (kind <= MOCK_SPIN_IRQ) context.spin++;
  if (kind == MOCK_SPIN_BH) context.bh_off++;
  if (kind == MOCK_SPIN_IRQ) context.irq_off++;
}

void mock_release(struct mock_lock* lock, enum mock_lock_kind kind, const char* site) {
  if (!lock->held) mock_violation("%s: unlock of what is not held", site);
  lock->held--;
  std::erase(mock::held, lock);
  if (kind <= MOCK_SPIN_IRQ && !--context.spin) mock::section_ends();
  if (kind == MOCK_SPIN_BH) context.bh_off--;
  if (kind == MOCK_SPIN_IRQ) context.irq_off--;
}

void mock_assert_held(const struct mock_lock* lock, const char* name) {
  if (!lock->held) mock_violation("%s has to be held", name);
}

// ---- RCU ----

void rcu_read_lock(void) { context.rcu++; }

void rcu_read_unlock(void) {
  if (--context.rcu < 0) mock_violation("rcu_read_unlock without lock");
}

unsigned long mock_lookups, mock_compared, mock_walked;

// Softirqs and spin locks count as readers, as in the kernel's RCU.
bool mock_rcu_is_held(void) { return context.rcu || context.softirq || context.spin || context.irq_off; }

void mock_check_rcu(const char* what) {
  if (!mock_rcu_is_held()) mock_violation("%s outside of RCU", what);
}

void call_rcu(struct rcu_head* head, void (*func)(struct rcu_head*)) {
  for (const auto& callback : mock::callbacks)
    if (callback.head == head) mock_violation("call_rcu twice");
  mock::callbacks.push_back({head, func, nullptr});
}

void mock_kfree_rcu(struct rcu_head* head, void* p) {
  for (const auto& callback : mock::callbacks)
    if (callback.head == head) mock_violation("kfree_rcu twice");
  mock::callbacks.push_back({head, nullptr, p});
}

void mock_grace_period(void) {
  auto due = std::exchange(mock::callbacks, {});
  for (const auto& callback : due) {
    mock_softirq_begin();
    if (callback.func)
      callback.func(callback.head);
    else
      kfree(callback.to_free);
    mock_softirq_end();
  }
}

void rcu_barrier(void) {
  mock_might_sleep("rcu_barrier");
  mock_grace_period();
}

// ---- References ----

void refcount_set(refcount_t* r, int n) { r->value = n; }

void refcount_inc(refcount_t* r) {
  if (r->value <= 0) mock_violation("reference taken of what has none left");
  r->value++;
}

bool refcount_inc_not_zero(refcount_t* r) {
  if (r->value) r->value++;
  return r->value;
}

bool refcount_dec_and_test(refcount_t* r) {
  if (r->value <= 0) mock_violation("reference dropped of what has none left");
  return !--r->value;
}

bool refcount_dec_and_mutex_lock(refcount_t* r, struct mutex* lock) {
  mock_might_sleep("refcount_dec_and_mutex_lock");
  if (r->value > 1) {
    r->value--;
    return false;
  }
  mutex_lock(lock);
  if (refcount_dec_and_test(r)) return true;
  mutex_unlock(lock);
  return false;
}

void kref_init(struct kref* k) { refcount_set(&k->refcount, 1); }
void kref_get(struct kref* k) { refcount_inc(&k->refcount); }
int kref_get_unless_zero(struct kref* k) { return refcount_inc_not_zero(&k->refcount); }

int kref_put(struct kref* k, void (*release)(struct kref*)) {
  if (!refcount_dec_and_test(&k->refcount)) return 0;
  release(k);
  return 1;
}

void mock_atomic_dec(atomic_t* a, const char* what) {
  if (--a->value < 0) mock_violation("%s below zero", what);
}

void mock_check_list(const struct list_head* node) {
  if (!node->next || !node->prev || node->next->prev != node || node->prev->next != node)
    mock_violation("list_del of what is in no list");
}

void mock_reset(void) {
  memset(mock_errors, 0, sizeof(mock_errors));
  mock_inject(0);
  mock::reset_sync();
  mock::reset_work();
  mock::reset_net();
  mock::reset_rdma();
  mock::reset_memory();
}

}  // extern "C"
