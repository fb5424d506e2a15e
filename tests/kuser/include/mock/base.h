/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Types, arithmetic, bits, atomics, time: what the module takes from the kernel without side
 * effects. Our own words, only as much as kmod/ uses.
 */
#ifndef MOCK_BASE_H
#define MOCK_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE		/* struct in6_pktinfo */
#endif

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned int gfp_t;
typedef unsigned int mock_poll_t;
#define __poll_t mock_poll_t

/* Annotations of the kernel's own checkers. */
#define __user
#define __force
#define __init
#define __exit
#define __net_init
#define __net_exit
#undef __aligned
#define __aligned(n)		__attribute__((aligned(n)))
#ifndef __cplusplus
#define fallthrough		__attribute__((fallthrough))
#endif

/* The kernel whose API is mocked: 100 * major + minor. */
#define KERNEL_VERSION(major, minor, patch) ((major) * 100 + (minor))
#define LINUX_VERSION_CODE	USIW_MOCK_KERNEL

#define KBUILD_MODNAME		"usiw"
#define CONFIG_IPV6		1
#define IS_ENABLED(option)	option
#define IS_BUILTIN(option)	option

#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define BIT(n)			(1ul << (n))
#define BIT_ULL(n)		(1ull << (n))
#define GENMASK(high, low)	((~0ul >> (63 - (high))) & (~0ul << (low)))
#define BITS_PER_LONG		64
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#ifndef __cplusplus
#ifndef __cplusplus
#define static_assert		_Static_assert
#endif
#define BUILD_BUG_ON(cond)	_Static_assert(!(cond), #cond)
#define BUILD_BUG_ON_MSG(cond, msg) _Static_assert(!(cond), msg)
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
#define min_t(type, a, b)	((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define clamp_t(type, v, lo, hi) min_t(type, (type)(v) > (type)(lo) ? (v) : (lo), hi)
#define max(a, b)		((a) > (b) ? (a) : (b))
#ifndef __cplusplus
#define min(a, b)		((a) < (b) ? (a) : (b))
#endif
#endif
#define offsetofend(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define smp_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)
#define __rcu
#define READ_ONCE(x)		(*(const volatile __typeof__(x) *)&(x))
#define data_race(expr)		(expr)
#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb()		__atomic_thread_fence(__ATOMIC_ACQUIRE)
#define WRITE_ONCE(x, value)	(*(volatile __typeof__(x) *)&(x) = (value))
#define U64_MAX			(~0ULL)
#define check_mul_overflow(a, b, out) __builtin_mul_overflow(a, b, out)
#define check_add_overflow(a, b, out) __builtin_add_overflow(a, b, out)
#define struct_size(p, member, n) (offsetof(__typeof__(*(p)), member) + sizeof((p)->member[0]) * (n))

#define PAGE_SHIFT		12
#define PAGE_SIZE		4096ul
#define PAGE_ALIGN(n)		(((n) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1))
#define TASK_SIZE		0x7ffffffff000ul
#define U8_MAX			255
#define U32_MAX			0xffffffffu
#define MAX_ERRNO		4095
#define ERESTARTSYS		512
#define ERESTARTNOINTR		513

/* ---- Errors in pointers ---- */
static inline void *ERR_PTR(long error)
{
	return (void *)error;
}

static inline void *ERR_CAST(const void *p)
{
	return (void *)p;
}

static inline long PTR_ERR(const void *p)
{
	return (long)p;
}

static inline bool IS_ERR(const void *p)
{
	return (unsigned long)p >= (unsigned long)-MAX_ERRNO;
}

static inline bool IS_ERR_OR_NULL(const void *p)
{
	return !p || IS_ERR(p);
}

/* ---- Findings: each makes the test fail (mock.h) ---- */
void mock_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool mock_warn(bool on, const char *what);
#define WARN_ON(cond)		mock_warn(!!(cond), #cond)
#define WARN_ON_ONCE(cond)	mock_warn(!!(cond), #cond)

/* Nothing checks or prints formats such as %pM, which only the kernel has. */
#define pr_info(...)		((void)0)
#define pr_err(...)		((void)0)
#define pr_warn_ratelimited(...) ((void)0)
#define pr_warn_once(...)	((void)0)
#define pr_info_ratelimited(...) ((void)0)
#define dev_warn_ratelimited(dev, ...) ((void)(dev))
/*
 * No time passes for a rate limit. Beyond the limit the kernel prints a warning of its own, unless
 * the flag forbids it.
 */
struct ratelimit_state { unsigned left, flags; };
#define RATELIMIT_MSG_ON_RELEASE	1u
#define RATELIMIT_STATE_INIT_FLAGS(name, interval, burst, flags) { burst, flags }
#define __ratelimit(state)	mock_ratelimit(state)
static inline bool mock_ratelimit(struct ratelimit_state *state)
{
	if (state->left) {
		state->left--;
		return true;
	}
	mock_warn(!(state->flags & RATELIMIT_MSG_ON_RELEASE), "a line about lines that were left out");
	return false;
}

/* ---- Byte order ---- */
static inline u16 be16_to_cpu(__be16 v)
{
	return __builtin_bswap16(v);
}

static inline u32 be32_to_cpu(__be32 v)
{
	return __builtin_bswap32(v);
}

static inline __be16 cpu_to_be16(u16 v)
{
	return __builtin_bswap16(v);
}

static inline __be32 cpu_to_be32(u32 v)
{
	return __builtin_bswap32(v);
}

/* ---- Bits and atomics: the mock has one thread ---- */
static inline void set_bit(unsigned int bit, unsigned long *map)
{
	map[bit / BITS_PER_LONG] |= BIT(bit % BITS_PER_LONG);
}

static inline bool test_bit(unsigned int bit, const void *map)
{
	return ((const unsigned long *)map)[bit / BITS_PER_LONG] & BIT(bit % BITS_PER_LONG);
}

static inline bool test_and_clear_bit(unsigned int bit, unsigned long *map)
{
	bool was = test_bit(bit, map);

	map[bit / BITS_PER_LONG] &= ~BIT(bit % BITS_PER_LONG);
	return was;
}

typedef struct {
	int value;
} atomic_t;

typedef struct {
	s64 value;
} atomic64_t;

#define ATOMIC_INIT(n)		{ n }
#define atomic_read(a)		((a)->value)
#define atomic_set(a, n)	((a)->value = (n))
#define atomic_inc(a)		((void)++(a)->value)
#define atomic_add_unless(a, n, most) ((a)->value == (most) ? false : ((a)->value += (n), true))
#define atomic_add(n, a)	((void)((a)->value += (n)))
#define atomic64_inc(a)		((void)++(a)->value)
#define atomic64_read(a)	((a)->value)
#define atomic64_set(a, v)	((void)((a)->value = (v)))
#define atomic64_inc_return(a)	(++(a)->value)
#define atomic64_or(bits, a)	((void)((a)->value |= (bits)))

static inline s64 atomic64_xchg(atomic64_t *a, s64 value)
{
	s64 before = a->value;

	a->value = value;
	return before;
}

void mock_atomic_dec(atomic_t *a, const char *what);
#define atomic_dec(a)		mock_atomic_dec(a, #a)

/* ---- Time: virtual, moved by mock_advance_ms() ---- */
#define HZ 1000
extern unsigned long jiffies;
extern u64 mock_now_us;
typedef s64 ktime_t;

#define ktime_get_coarse ktime_get
static inline u64 ktime_get_ns(void)
{
	return mock_now_us * 1000;
}

static inline ktime_t ktime_get(void)
{
	return mock_now_us * 1000;
}

static inline s64 ktime_to_us(ktime_t t)
{
	return t / 1000;
}

#define USEC_PER_MSEC	1000L
static inline unsigned long msecs_to_jiffies(unsigned int ms)
{
	return ms;
}

static inline unsigned long usecs_to_jiffies(unsigned int us)
{
	return (us + 999) / 1000;
}
#define time_before(a, b)	((long)((a) - (b)) < 0)
#define time_after_eq(a, b)	((long)((a) - (b)) >= 0)

/* ---- Numbers ---- */
u32 get_random_u32(void);
void get_random_bytes(void *buf, size_t len);
#define __used __attribute__((used))

static inline u32 jhash_2words(u32 a, u32 b, u32 init)
{
	return (a * 31 + b) * 31 + init;
}

static inline u32 jhash2(const u32 *words, u32 n, u32 init)
{
	while (n--)
		init = (init ^ *words++) * 0x85ebca6b, init ^= init >> 15;
	return init;
}

static inline u32 jhash(const void *key, u32 len, u32 init)
{
	const u8 *byte = (const u8 *)key;

	while (len--)
		init = init * 31 + *byte++;
	return init;
}

static inline char *strim(char *s)
{
	char *end;

	while (*s == ' ')
		s++;
	for (end = s + strlen(s); end > s && end[-1] == ' '; end--)
		;
	*end = 0;
	return s;
}

static inline void strscpy(char *to, const char *from, size_t size)
{
	snprintf(to, size, "%s", from);
}

/* ---- Lists ---- */
struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD(name) struct list_head name = { &(name), &(name) }

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list_head *list)
{
	return list->next == list;
}
#define list_empty_careful list_empty

void mock_check_list(const struct list_head *node);

static inline void list_add_between(struct list_head *node, struct list_head *prev,
				    struct list_head *next)
{
	node->prev = prev;
	node->next = next;
	prev->next = node;
	next->prev = node;
}

static inline void list_add(struct list_head *node, struct list_head *list)
{
	list_add_between(node, list, list->next);
}

static inline void list_add_tail(struct list_head *node, struct list_head *list)
{
	list_add_between(node, list->prev, list);
}

/* Deleting an entry that is in no list is a violation: see mock_check_list(). */
static inline void list_del(struct list_head *node)
{
	mock_check_list(node);
	node->prev->next = node->next;
	node->next->prev = node->prev;
	node->next = node->prev = NULL;
}

static inline void list_del_init(struct list_head *node)
{
	list_del(node);
	INIT_LIST_HEAD(node);
}

static inline void list_move(struct list_head *node, struct list_head *list)
{
	list_del(node);
	list_add(node, list);
}

static inline void list_move_tail(struct list_head *node, struct list_head *list)
{
	list_del(node);
	list_add_tail(node, list);
}

static inline void list_splice_init(struct list_head *from, struct list_head *to)
{
	if (list_empty(from))
		return;
	from->next->prev = to;
	from->prev->next = to->next;
	to->next->prev = from->prev;
	to->next = from->next;
	INIT_LIST_HEAD(from);
}

/*
 * Number of entries of lists, hash tables and trees that were visited. A test that counts them sets
 * it to 0.
 */
extern unsigned long mock_walked;

#define list_entry		container_of
#define list_first_entry(list, type, member) list_entry((list)->next, type, member)
#define list_first_entry_or_null(list, type, member) \
	(list_empty(list) ? NULL : list_first_entry(list, type, member))
#define list_for_each_entry(at, list, member)						\
	for (at = list_entry((list)->next, __typeof__(*at), member);				\
	     &at->member != (list) && ++mock_walked;						\
	     at = list_entry(at->member.next, __typeof__(*at), member))
#define list_for_each_entry_reverse(at, list, member)					\
	for (at = list_entry((list)->prev, __typeof__(*at), member);				\
	     &at->member != (list) && ++mock_walked;						\
	     at = list_entry(at->member.prev, __typeof__(*at), member))
#define list_for_each_entry_safe(at, n, list, member)					\
	for (at = list_entry((list)->next, __typeof__(*at), member),				\
	     n = list_entry(at->member.next, __typeof__(*at), member);				\
	     &at->member != (list) && ++mock_walked;						\
	     at = n, n = list_entry(n->member.next, __typeof__(*n), member))

struct hlist_node {
	struct hlist_node *next, **pprev;
};

struct hlist_head {
	struct hlist_node *first;
};

static inline void hlist_add_head(struct hlist_node *node, struct hlist_head *head)
{
	node->next = head->first;
	node->pprev = &head->first;
	if (node->next)
		node->next->pprev = &node->next;
	head->first = node;
}

static inline void hash_del(struct hlist_node *node)
{
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
	node->pprev = NULL;
}
#define hash_del_rcu hash_del

#define DEFINE_HASHTABLE(name, bits) struct hlist_head name[1 << (bits)]
#define mock_bucket(table, key)	(&(table)[(key) % ARRAY_SIZE(table)])
#define hash_add(table, node, key) hlist_add_head(node, mock_bucket(table, key))
#define hash_add_rcu hash_add
#define mock_hlist_entry(node, type, member) \
	((node) ? container_of(node, type, member) : NULL)
#define mock_hlist_for_each(at, head, member)						\
	for (at = mock_hlist_entry((head)->first, __typeof__(*at), member);		\
	     at && ++mock_walked;							\
	     at = mock_hlist_entry(at->member.next, __typeof__(*at), member))
#define hash_for_each_possible(table, at, member, key) \
	mock_hlist_for_each(at, mock_bucket(table, key), member)
#define hash_for_each(table, i, at, member)						\
	for (i = 0; i < (int)ARRAY_SIZE(table); i++)					\
		mock_hlist_for_each(at, &(table)[i], member)
void mock_check_rcu(const char *what);
/*
 * Number of look-ups under RCU, and of the entries that they compared. @held: another protection
 * holds.
 */
extern unsigned long mock_lookups, mock_compared;
#define hash_for_each_possible_rcu(table, at, member, key, held)		\
	if (!(held))								\
		mock_check_rcu("hash_for_each_possible_rcu");			\
	mock_lookups++;								\
	hash_for_each_possible(table, at, member, key)				\
		if (mock_compared++, 0) {					\
		} else

/* ---- Search trees. Equal nodes are in the order in which they were added ---- */
struct rb_root;

struct rb_node {
	struct rb_root *tree;
	struct rb_node *parent, *child[2];
	u32 priority;		/* none below has a greater one */
};

struct rb_root {
	struct rb_node *rb_node;
};

#define RB_ROOT			((struct rb_root){ NULL })
#define rb_entry		container_of
void rb_add(struct rb_node *node, struct rb_root *tree,
	    bool (*less)(struct rb_node *node, const struct rb_node *other));
#define rb_find rb_find_first
struct rb_node *rb_find_first(const void *key, const struct rb_root *tree,
			      int (*cmp)(const void *key, const struct rb_node *node));
struct rb_node *rb_next_match(const void *key, struct rb_node *node,
			      int (*cmp)(const void *key, const struct rb_node *node));
void rb_erase(struct rb_node *node, struct rb_root *tree);
#define rb_for_each(node, key, tree, cmp)						\
	for ((node) = rb_find_first(key, tree, cmp); (node);				\
	     (node) = rb_next_match(key, node, cmp))

#ifdef __cplusplus
}
#endif

#endif /* MOCK_BASE_H */
