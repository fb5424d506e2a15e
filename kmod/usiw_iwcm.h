/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Functions that iw_cm calls: connect, accept and reject. */
#ifndef USIW_IWCM_H
#define USIW_IWCM_H

#include <linux/types.h>

struct iw_cm_conn_param;
struct iw_cm_id;

int usiw_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int usiw_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int usiw_iw_reject(struct iw_cm_id *cm_id, const void *pdata, u8 pd_len);

#endif /* USIW_IWCM_H */
