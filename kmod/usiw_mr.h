/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory regions and memory windows.
 */
#ifndef USIW_MR_H
#define USIW_MR_H

#include <rdma/ib_verbs.h>

#include "usiw_compat.h"

/**
 * struct usiw_mr - memory region
 * @ibmr:	ib_core's part, with the length
 * @start:	address of the first byte
 * @access:	IB_ACCESS_*
 */
struct usiw_mr {
	struct ib_mr ibmr;
	u64 start;
	int access;
};

/* Memory window. Only the provider knows what it is bound to. */
struct usiw_mw {
	struct ib_mw ibmw;
};

static inline struct usiw_mr *to_usiw_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct usiw_mr, ibmr);
}

struct ib_mr *usiw_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 iova, int access,
			       USIW_DMAH_ARG struct ib_udata *udata);
struct ib_mr *usiw_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 iova,
				 int access, struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *usiw_get_dma_mr(struct ib_pd *ibpd, int access);
int usiw_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
int usiw_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int usiw_dealloc_mw(struct ib_mw *ibmw);

#endif /* USIW_MR_H */
