/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Computes the ISN that a PENDING carries.
 *
 * This is the ISN that the connection will have. If the host had to remember the ISN of each REQ, a
 * flood of REQs could fill its memory. So the ISN is a keyed hash (SipHash-2-4) of the 4-tuple, the
 * peer's ISN and an epoch: a REQ that is repeated in the same epoch gets the same ISN, and nothing
 * is remembered. The admission also uses the function to hash 4-tuples.
 */
#ifndef USIW_CM_COOKIE_H
#define USIW_CM_COOKIE_H

#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the ISN, never 0, for the PENDING that answers a REQ of @tuple with the PSN @peer_isn.
 * @key: random and secret. @epoch changes every 67 s, so that an old ISN becomes useless.
 */
__u32 usiw_cm_cookie(const __u64 key[2], const struct usiw_cm_tuple *tuple, __u32 peer_isn,
		     __u32 epoch);

/*
 * Returns the ISN of this end for a REQ of @tuple with the PSN @peer_isn and the ACK PSN @ack. Sets
 * *@proven to 1 if @ack is the ISN of a PENDING that this host has sent in this epoch or in the one
 * before. Then the sender of the REQ has received the PENDING, and the function returns @ack.
 */
__u32 usiw_cm_cookie_isn(const __u64 key[2], const struct usiw_cm_tuple *tuple, __u32 peer_isn,
			 __u32 ack, __u64 now_us, __u8 *proven);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_COOKIE_H */
