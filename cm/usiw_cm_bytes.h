/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Reads and writes big-endian fields at any alignment. Private to cm/. */
#ifndef USIW_CM_BYTES_H
#define USIW_CM_BYTES_H

#include "../uapi/usiw_wire.h"

static inline __u16 usiw_get16(const __u8 *p)
{
	return (__u16)(p[0] << 8 | p[1]);
}

static inline __u32 usiw_get32(const __u8 *p)
{
	return (__u32)usiw_get16(p) << 16 | usiw_get16(p + 2);
}

static inline void usiw_put16(__u8 *p, __u16 v)
{
	p[0] = (__u8)(v >> 8);
	p[1] = (__u8)v;
}

static inline void usiw_put32(__u8 *p, __u32 v)
{
	usiw_put16(p, (__u16)(v >> 16));
	usiw_put16(p + 2, (__u16)v);
}

#endif
