/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Locks, RCU, references, memory, work, waiting. The mock has one thread. For each lock it knows
 * whether the lock is held, and the contexts and other locks under which it was taken. Violations
 * are a second lock() of a held lock, a sleeping call in atomic context, a lock of softirq taken
 * with softirqs on, and two orders of the same two locks.
 */
#ifndef MOCK_SYNC_H
#define MOCK_SYNC_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOCK_STR2(x) #x
#define MOCK_STR(x) MOCK_STR2(x)
#define MOCK_SITE __FILE__ ":" MOCK_STR(__LINE__)

void mock_might_sleep(const char *what);

/* ---- Locks ---- */
struct mock_lock {
	const char *name;	/* class: the place of its initialisation */
	int held;
	u8 usage;
};

enum mock_lock_kind {
	MOCK_SPIN,		/* leaves softirqs as they are */
	MOCK_SPIN_BH,
	MOCK_SPIN_IRQ,
	MOCK_MUTEX,
	MOCK_READ,		/* a rw_semaphore for reading */
};

void mock_acquire(struct mock_lock *lock, enum mock_lock_kind kind, const char *site);
void mock_release(struct mock_lock *lock, enum mock_lock_kind kind, const char *site);

typedef struct mock_spinlock {
	struct mock_lock dep;
} spinlock_t;

#define DEFINE_SPINLOCK(name)	spinlock_t name = { { #name, 0, 0 } }
#define spin_lock_init(l)	((l)->dep = (struct mock_lock){ #l, 0, 0 })
#define spin_lock(l)		mock_acquire(&(l)->dep, MOCK_SPIN, MOCK_SITE)
#define spin_unlock(l)		mock_release(&(l)->dep, MOCK_SPIN, MOCK_SITE)
#define spin_lock_bh(l)		mock_acquire(&(l)->dep, MOCK_SPIN_BH, MOCK_SITE)
#define spin_unlock_bh(l)	mock_release(&(l)->dep, MOCK_SPIN_BH, MOCK_SITE)
#define spin_lock_irqsave(l, flags) \
	do { (flags) = 0; mock_acquire(&(l)->dep, MOCK_SPIN_IRQ, MOCK_SITE); } while (0)
#define spin_unlock_irqrestore(l, flags) \
	do { (void)(flags); mock_release(&(l)->dep, MOCK_SPIN_IRQ, MOCK_SITE); } while (0)

struct mutex {
	struct mock_lock dep;
};

#define DEFINE_MUTEX(name)	struct mutex name = { { #name, 0, 0 } }
#define mutex_init(m)		((m)->dep = (struct mock_lock){ #m, 0, 0 })
#define mutex_lock(m)		mock_acquire(&(m)->dep, MOCK_MUTEX, MOCK_SITE)
#define mutex_lock_interruptible(m) (mutex_lock(m), 0)	/* no signal comes */
#define mutex_unlock(m)		mock_release(&(m)->dep, MOCK_MUTEX, MOCK_SITE)
#define mutex_is_locked(m)	((m)->dep.held != 0)

struct rw_semaphore {
	struct mock_lock dep;
};

#define init_rwsem(s)		((s)->dep = (struct mock_lock){ #s, 0, 0 })
#define down_read(s)		mock_acquire(&(s)->dep, MOCK_READ, MOCK_SITE)
#define up_read(s)		mock_release(&(s)->dep, MOCK_READ, MOCK_SITE)
#define down_write(s)		mock_acquire(&(s)->dep, MOCK_MUTEX, MOCK_SITE)
#define up_write(s)		mock_release(&(s)->dep, MOCK_MUTEX, MOCK_SITE)
#define lockdep_is_held(l)	((l)->dep.held)
#define lockdep_assert(cond)	((cond) ? (void)0 : mock_violation("not true: %s", #cond))
#define lockdep_assert_held(l)	mock_assert_held(&(l)->dep, #l)
#define lockdep_is_held(l)	((l)->dep.held)
void mock_assert_held(const struct mock_lock *lock, const char *name);

/* ---- RCU ---- */
struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
	void *to_free;
};

void rcu_read_lock(void);
void rcu_read_unlock(void);
bool mock_rcu_is_held(void);
#define rcu_read_lock_held()	mock_rcu_is_held()
#define rcu_read_lock_any_held() mock_rcu_is_held()
#define RCU_LOCKDEP_WARN(cond, text) ((cond) ? mock_violation("not under RCU: %s", text) : (void)0)
void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));
void mock_kfree_rcu(struct rcu_head *head, void *p);
#define kfree_rcu(p, member)	mock_kfree_rcu(&(p)->member, p)
void rcu_barrier(void);

/* ---- References ---- */
typedef struct {
	int value;
} refcount_t;

struct kref {
	refcount_t refcount;
};

void refcount_set(refcount_t *r, int n);
void refcount_inc(refcount_t *r);
bool refcount_inc_not_zero(refcount_t *r);
bool refcount_dec_and_test(refcount_t *r);
bool refcount_dec_and_mutex_lock(refcount_t *r, struct mutex *lock);
#define kref_read(k)		((k)->refcount.value)
void kref_init(struct kref *k);
void kref_get(struct kref *k);
int kref_get_unless_zero(struct kref *k);
int kref_put(struct kref *k, void (*release)(struct kref *k));

/* ---- Memory ---- */
#define GFP_KERNEL		1u
#define GFP_ATOMIC		2u
#define __GFP_NOWARN		4u
#define __GFP_ACCOUNT		8u
#define GFP_NOWAIT		16u
#define GFP_KERNEL_ACCOUNT	(GFP_KERNEL | __GFP_ACCOUNT)

/* A memory cgroup: each address space has its own. */
struct mem_cgroup {
	int refs;
	size_t charged;		/* bytes */
};

struct mm_struct;
struct mem_cgroup *get_mem_cgroup_from_mm(struct mm_struct *mm);
void mem_cgroup_put(struct mem_cgroup *memcg);
struct mem_cgroup *set_active_memcg(struct mem_cgroup *memcg);

void *mock_alloc(size_t size, gfp_t flags, bool zero, const char *site);
#define kmalloc(size, flags)	mock_alloc(size, flags, false, MOCK_SITE)
#define kzalloc(size, flags)	mock_alloc(size, flags, true, MOCK_SITE)
#define get_zeroed_page(flags)	((unsigned long)mock_alloc(PAGE_SIZE, flags, true, MOCK_SITE))
#define free_page(at)		kfree((const void *)(at))
struct page;
#define virt_to_page(at)	((struct page *)(at))
void *mock_memdup(const void *from, size_t size, gfp_t flags, const char *site);
#define kmemdup(from, size, flags) mock_memdup(from, size, flags, MOCK_SITE)
#define kstrdup(s, flags)	((char *)mock_memdup(s, strlen(s) + 1, flags, MOCK_SITE))
void kfree(const void *p);
void vfree(const void *p);

/* ---- Work ---- */
struct work_struct {
	void (*func)(struct work_struct *work);
	bool initialised;
	bool pending;
};

struct delayed_work {
	struct work_struct work;
};

struct workqueue_struct;

#define WQ_UNBOUND		1u
struct workqueue_struct *alloc_workqueue(const char *name, unsigned int flags, int max);
void destroy_workqueue(struct workqueue_struct *wq);
void mock_init_work(struct work_struct *work, void (*func)(struct work_struct *work));
#define INIT_WORK(w, f)		mock_init_work(w, f)
#define INIT_DELAYED_WORK(w, f)	mock_init_work(&(w)->work, f)
#define to_delayed_work(w)	container_of(w, struct delayed_work, work)
bool queue_work(struct workqueue_struct *wq, struct work_struct *work);
bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *work,
			unsigned long delay);
bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *work,
		      unsigned long delay);
bool cancel_work_sync(struct work_struct *work);
bool cancel_delayed_work(struct delayed_work *work);
bool cancel_delayed_work_sync(struct delayed_work *work);

/* ---- Waiting: others get on meanwhile; what never comes is a finding ---- */
typedef struct {
	unsigned int woken;
} wait_queue_head_t;

bool mock_let_others_run(const char *what);
#define DECLARE_WAIT_QUEUE_HEAD(name) wait_queue_head_t name
#define init_waitqueue_head(wq)	((wq)->woken = 0)
#define wake_up(wq)		((void)(wq)->woken++)
#define wake_up_all(wq)		((void)(wq)->woken++)
#define wait_event_interruptible(wq, cond) \
	((void)&(wq), mock_might_sleep("wait_event_interruptible"), (cond) ? 0 : -ERESTARTSYS)

struct completion {
	bool done;
};

static inline void init_completion(struct completion *c)
{
	c->done = false;
}

static inline void complete(struct completion *c)
{
	c->done = true;
}

static inline void wait_for_completion(struct completion *c)
{
	while (!c->done && mock_let_others_run("wait_for_completion"))
		;
}

/* ---- Arrays of pointers, numbers ---- */
struct xarray {
	void *entries;		/* owned by memory.cc */
	bool from_one;
	bool account;		/* its nodes: XA_FLAGS_ACCOUNT, whatever the caller's flags */
};

struct ida {
	struct xarray numbers;
};

struct xa_limit {
	u32 max, min;
};

#define XA_LIMIT(lo, hi)	((struct xa_limit){ .max = (hi), .min = (lo) })
#define xa_limit_31b		XA_LIMIT(0, INT_MAX)
#define XA_FLAGS_ALLOC		1u
#define XA_FLAGS_ACCOUNT	32u
#define XA_FLAGS_ALLOC1		2u
#define DEFINE_XARRAY_FLAGS(name, flags) \
	struct xarray name = { NULL, ((flags) & XA_FLAGS_ALLOC1) != 0, ((flags) & XA_FLAGS_ACCOUNT) != 0 }
void xa_init_flags(struct xarray *xa, gfp_t flags);
int xa_alloc_cyclic(struct xarray *xa, u32 *id, void *entry, struct xa_limit limit, u32 *next,
		    gfp_t flags);
void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t flags);
static inline void *xa_mk_value(unsigned long value)
{
	return (void *)(value << 1 | 1);
}
void *xa_load(struct xarray *xa, unsigned long index);
void *xa_erase(struct xarray *xa, unsigned long index);
bool xa_empty(const struct xarray *xa);
void xa_destroy(struct xarray *xa);
int xa_err(void *entry);
void ida_init(struct ida *ida);
int ida_alloc_range(struct ida *ida, unsigned int min, unsigned int max, gfp_t flags);
void ida_free(struct ida *ida, unsigned int id);
void ida_destroy(struct ida *ida);

#ifdef __cplusplus
}
#endif

#endif /* MOCK_SYNC_H */
