// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Computes the ISN that a PENDING carries, with SipHash-2-4. usiw_cm_cookie.h explains why it is a
 * hash.
 */
#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

#include "usiw_cm_bytes.h"
#include "usiw_cm_cookie.h"

#define WORDS	6
#define EPOCH_BITS	26	/* 2^26 us are 67 s */

static __u64 rotate(__u64 x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static void rounds(__u64 v[4], int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void absorb(__u64 v[4], __u64 word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

static __u64 little_endian(const __u8 *p)
{
	__u64 word = 0;
	int i;

	for (i = 7; i >= 0; i--)
		word = word << 8 | p[i];
	return word;
}

__u32 usiw_cm_cookie(const __u64 key[2], const struct usiw_cm_tuple *tuple, __u32 peer_isn,
		     __u32 epoch)
{
	__u64 v[4] = {
		key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
		key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull,
	};
	__u8 in[8 * WORDS] = { 0 };
	__u32 isn;
	int i;

	memcpy(in, tuple, sizeof(*tuple));
	usiw_put32(in + sizeof(*tuple), peer_isn);
	usiw_put32(in + sizeof(*tuple) + 4, epoch);
	for (i = 0; i < WORDS; i++)
		absorb(v, little_endian(in + 8 * i));
	absorb(v, (__u64)sizeof(in) << 56);
	v[2] ^= 0xff;
	rounds(v, 4);
	isn = (__u32)(v[0] ^ v[1] ^ v[2] ^ v[3]);
	return isn ? isn : 1;
}

__u32 usiw_cm_cookie_isn(const __u64 key[2], const struct usiw_cm_tuple *tuple, __u32 peer_isn,
			 __u32 ack, __u64 now_us, __u8 *proven)
{
	__u32 epoch = (__u32)(now_us >> EPOCH_BITS);
	__u32 isn = usiw_cm_cookie(key, tuple, peer_isn, epoch);

	*proven = ack == isn || (ack && ack == usiw_cm_cookie(key, tuple, peer_isn, epoch - 1));
	return *proven ? ack : isn;
}
