/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * usiw.ko: objects of the device and of its users. Connections are in usiw_conn.h.
 */
#ifndef USIW_H
#define USIW_H

#include <linux/idr.h>
#include <linux/if_ether.h>
#include <linux/kref.h>
#include <linux/netdevice.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "../cm/usiw_limits.h"
#include "../cm/usiw_qp_attrs.h"
#include "../uapi/usiw_abi.h"
#include "usiw_compat.h"
#include "usiw_cq.h"
#include "usiw_device.h"
#include "usiw_event.h"
#include "usiw_follow.h"
#include "usiw_link.h"
#include "usiw_mr.h"
#include "usiw_netdev.h"
#include "usiw_process.h"
#include "usiw_qp.h"
#include "usiw_qp_types.h"
#include "usiw_restrack.h"
#include "usiw_srq.h"
#include "usiw_stats.h"
#include "usiw_uapi.h"
#include "usiw_unread.h"
#include "usiw_verbs.h"
#include "usiw_verbs_types.h"

struct usiw_conn;
struct usiw_process;
struct usiw_qp_proxy;

/* Work of the module that may sleep; unbound, so that devices do not wait for each other. */
extern struct workqueue_struct *usiw_wq;

#endif /* USIW_H */
