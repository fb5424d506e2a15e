/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The event stream of a context, by which a process learns of its connections and its link.
 */
#ifndef USIW_EVENT_H
#define USIW_EVENT_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

#include "../uapi/usiw_abi.h"

struct usiw_conn;
struct usiw_ucontext;

/**
 * struct usiw_evfile - event stream of a context: the uverbs object behind its descriptor
 * @uobj:	the core's; its references keep the memory, of the file, the context and the
 *		connections. First, as the core allocates and frees it
 * @read_lock:	one reader at a time: a record leaves the stream when it has been copied
 * @lock:	guards all below, and ev_node and records of the connections
 * @wait:	readers and pollers
 * @conns:	connections with a record to read; each holds a reference of its own
 * @link:	how the netdev is
 * @link_pending: that is to be read
 * @gone:	the context has ended, or the descriptor is closed: DEVICE_GONE, then end of file
 * @gone_read:	DEVICE_GONE has been
 *
 * Queuing a record needs no memory: connections bring their list node and their bits.
 */
struct usiw_evfile {
	struct ib_uobject uobj;
	struct mutex read_lock;
	spinlock_t lock;
	wait_queue_head_t wait;
	struct list_head conns;
	struct usiw_link_info link;
	bool link_pending;
	bool gone;
	bool gone_read;
};

extern const struct file_operations usiw_event_fops;
int usiw_evfile_open(struct usiw_evfile *events);
void usiw_evfile_get(struct usiw_evfile *events);
void usiw_evfile_put(struct usiw_evfile *events);
void usiw_ucontext_link_changed(struct usiw_ucontext *uctx, const struct usiw_link_info *link);
void usiw_evfile_shutdown(struct usiw_evfile *events);
void usiw_evfile_push(struct usiw_conn *conn, enum usiw_event_type type);
void usiw_evfile_forget(struct usiw_evfile *events, u32 qpn);

#endif /* USIW_EVENT_H */
