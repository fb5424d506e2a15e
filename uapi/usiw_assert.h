/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * An assertion at compile time, for headers that C and C++ include. The two languages have different
 * names for it.
 */
#ifndef USIW_ASSERT_H
#define USIW_ASSERT_H

#ifdef __cplusplus
#define USIW_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
#else
#define USIW_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#endif

#endif /* USIW_ASSERT_H */
