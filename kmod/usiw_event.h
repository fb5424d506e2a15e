/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Event streams. A process reads the stream of its context. The records are about the connections
 * of the context and about the link of its device.
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
 * struct usiw_evfile - event stream of a context: the uverbs object of its descriptor
 * @uobj:	ib_core's part. The file, the context and the connections have references to it. It
 *		is the first member, because ib_core allocates and frees the structure
 * @read_lock:	held while a reader copies records, because a record leaves the stream only after it
 *		has been copied
 * @wait:	wait queue of readers and pollers, who look for a record without @lock
 * @lock:	guards all fields below, and ev_node and records of the connections
 * @conns:	connections with an unread record; the list has a reference to each
 * @link:	latest state of the link
 * @link_pending: @link is unread
 * @gone:	the context has ended or the descriptor is closed: readers get DEVICE_GONE, and then
 *		the end of the file
 * @gone_read:	DEVICE_GONE has been read
 *
 * Queuing a record needs no memory, because each struct usiw_conn contains its list node and one
 * bit for each type of record.
 */
struct usiw_evfile {
	struct ib_uobject uobj;
	struct mutex read_lock;
	wait_queue_head_t wait;
	spinlock_t lock;
	struct list_head conns;
	struct usiw_link_info link;
	bool link_pending;
	bool gone;
	bool gone_read;
};

extern const struct file_operations usiw_event_fops;
int usiw_evfile_open(struct usiw_evfile *events);
void usiw_ucontext_link_changed(struct usiw_ucontext *uctx, const struct usiw_link_info *link);
void usiw_evfile_shutdown(struct usiw_evfile *events);
void usiw_evfile_push(struct usiw_conn *conn, enum usiw_event_type type);
void usiw_evfile_forget(struct usiw_evfile *events, u32 qpn);

#endif /* USIW_EVENT_H */
