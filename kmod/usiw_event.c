// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Event streams. A context has at most one, which reports the connections of the context and the
 * link of its device. read(2) returns whole records, and poll(2) works. The file outlives the
 * context for as long as a process has it open.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uaccess.h>
#include <rdma/uverbs_types.h>

#include "usiw_event.h"

#include "usiw_conn.h"
#include "usiw_data.h"
#include "usiw_device.h"
#include "usiw_verbs_types.h"

static bool usiw_evfile_ready(const struct usiw_evfile *events)
{
	return READ_ONCE(events->link_pending) || READ_ONCE(events->gone) ||
	       !list_empty_careful(&events->conns);
}

static struct usiw_conn *usiw_evfile_first(struct usiw_evfile *events)
{
	lockdep_assert_held(&events->lock);
	return list_first_entry_or_null(&events->conns, struct usiw_conn, ev_node);
}

/*
 * Copies the next record to @record, without removing it. Returns false if there is none.
 * DEVICE_GONE is the last record. Takes no reference to a connection, because the caller then
 * copies to user memory, which may block for ever.
 */
static bool usiw_evfile_peek(struct usiw_evfile *events, struct usiw_event *record)
{
	struct usiw_conn *conn;
	bool found = true;

	memset(record, 0, sizeof(*record));
	spin_lock(&events->lock);
	conn = usiw_evfile_first(events);
	if (events->link_pending) {
		record->type = USIW_EVENT_LINK;
		record->link = events->link;
	} else if (conn) {
		usiw_cm_records_peek(&conn->records, record);
		record->qpn = conn->qpn;
		record->conn_id = conn->end.id;
	} else if (events->gone && !events->gone_read) {
		record->type = USIW_EVENT_DEVICE_GONE;
	} else {
		found = false;
	}
	spin_unlock(&events->lock);
	return found;
}

/*
 * Removes @record from its connection. If the connection has no further record, takes it off the
 * list and returns it; else returns NULL. If the connection is no longer the first of the list, it
 * was taken off meanwhile. Its records, if any, are then new ones and remain.
 */
static struct usiw_conn *usiw_evfile_pop_conn(struct usiw_evfile *events,
					      const struct usiw_event *record)
{
	struct usiw_conn *conn = usiw_evfile_first(events);

	if (!conn || conn->end.id != record->conn_id || usiw_cm_records_pop(&conn->records, record))
		return NULL;
	list_del_init(&conn->ev_node);
	return conn;
}

/* Removes @record, which has been read, unless the stream has a newer one in its place. */
static void usiw_evfile_pop(struct usiw_evfile *events, const struct usiw_event *record)
{
	struct usiw_conn *conn = NULL;

	spin_lock(&events->lock);
	if (record->type == USIW_EVENT_DEVICE_GONE)
		events->gone_read = true;
	else if (record->type != USIW_EVENT_LINK)
		conn = usiw_evfile_pop_conn(events, record);
	else if (!memcmp(&record->link, &events->link, sizeof(record->link)))
		events->link_pending = false;
	spin_unlock(&events->lock);
	if (conn)
		usiw_conn_put(conn);
}

/*
 * Copies @record to the user's memory. A CONNECT record may have a data socket: the process gets
 * the socket only if the copy succeeds. Returns false if the copy fails.
 */
static bool usiw_evfile_copy_record(char __user *to, struct usiw_event *record)
{
	struct file *file = NULL;
	struct usiw_conn *conn;
	bool copied;
	int fd = -1;

	if (record->type == USIW_EVENT_CONNECT && record->conn.flags & USIW_CONN_F_SOCKET) {
		conn = usiw_conn_by_id(record->conn_id);
		if (conn) {
			fd = usiw_data_open(conn, &file);
			usiw_conn_put(conn);
		} else {
			fd = -ECONNRESET;
		}
		record->conn.data_fd = fd;
	}
	copied = !copy_to_user(to, record, sizeof(*record));
	if (file && copied) {
		fd_install(fd, file);
	} else if (file) {
		put_unused_fd(fd);
		fput(file);
	}
	return copied;
}

/*
 * Copies as many records as exist and fit, up to the first copy that fails. Returns the number of
 * bytes, or -EFAULT if the first copy fails.
 */
static ssize_t usiw_evfile_copy(struct usiw_evfile *events, char __user *buf, size_t count)
{
	struct usiw_event record;
	size_t done = 0;

	lockdep_assert_held(&events->read_lock);
	while (done + sizeof(record) <= count && usiw_evfile_peek(events, &record)) {
		if (!usiw_evfile_copy_record(buf + done, &record))
			return done ? done : -EFAULT;
		usiw_evfile_pop(events, &record);
		done += sizeof(record);
	}
	return done;
}

static ssize_t usiw_event_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	struct usiw_evfile *events = file->private_data;
	ssize_t done;
	int ret;

	BUILD_BUG_ON(sizeof(struct usiw_event) != 128);
	BUILD_BUG_ON(offsetof(struct usiw_evfile, uobj));
	if (count < sizeof(struct usiw_event))
		return -EINVAL;
	for (;;) {
		if (mutex_lock_interruptible(&events->read_lock))
			return -ERESTARTSYS;
		done = usiw_evfile_copy(events, buf, count);
		mutex_unlock(&events->read_lock);
		if (done || READ_ONCE(events->gone_read))
			return done;
		if (file->f_flags & O_NONBLOCK && !READ_ONCE(events->gone))
			return -EAGAIN;
		ret = wait_event_interruptible(events->wait, usiw_evfile_ready(events));
		if (ret)
			return ret;
	}
}

static __poll_t usiw_event_poll(struct file *file, poll_table *wait)
{
	struct usiw_evfile *events = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &events->wait, wait);
	if (usiw_evfile_ready(events))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(events->gone))
		mask |= EPOLLHUP;
	return mask;
}

const struct file_operations usiw_event_fops = {
	.owner = THIS_MODULE,
	.read = usiw_event_read,
	.poll = usiw_event_poll,
	.release = uverbs_uobject_fd_release,
	.llseek = noop_llseek,
};

/*
 * Makes @events, which ib_core has just allocated, the stream of its context. Returns -EBUSY if the
 * context has, or has had, a stream.
 */
int usiw_evfile_open(struct usiw_evfile *events)
{
	struct usiw_ucontext *uctx = to_usiw_uctx(events->uobj.context);
	struct usiw_device *dev = to_usiw_dev(uctx->ibuc.device);
	int ret = 0;

	mutex_init(&events->read_lock);
	spin_lock_init(&events->lock);
	init_waitqueue_head(&events->wait);
	INIT_LIST_HEAD(&events->conns);
	events->link_pending = false;

	spin_lock(&dev->ctx_lock);
	if (uctx->events) {
		ret = -EBUSY;
	} else {
		usiw_link_info(dev, &events->link);
		events->link_pending = uctx->link_missed;
		uverbs_uobject_get(&events->uobj);
		/* Pairs with smp_load_acquire() in usiw_create_qp(). */
		smp_store_release(&uctx->events, events);
	}
	spin_unlock(&dev->ctx_lock);
	return ret;
}

/* Drops all records of @conn, and the reference that the list has while there is a record. */
static void usiw_evfile_drop(struct usiw_conn *conn)
{
	conn->records.pending = 0;
	list_del_init(&conn->ev_node);
	usiw_conn_put(conn);
}

/*
 * Ends the stream, because the context ends or the last descriptor is closed. Drops all unread
 * records, so that only DEVICE_GONE is left. May be called again.
 */
void usiw_evfile_shutdown(struct usiw_evfile *events)
{
	struct usiw_conn *conn, *next;

	spin_lock(&events->lock);
	events->gone = true;
	events->link_pending = false;
	list_for_each_entry_safe(conn, next, &events->conns, ev_node)
		usiw_evfile_drop(conn);
	spin_unlock(&events->lock);
	wake_up_all(&events->wait);
}

/*
 * Queues a LINK record for the context. If the context has no stream yet, its stream will begin
 * with that record.
 */
void usiw_ucontext_link_changed(struct usiw_ucontext *uctx, const struct usiw_link_info *link)
{
	struct usiw_evfile *events = uctx->events;

	lockdep_assert_held(&to_usiw_dev(uctx->ibuc.device)->ctx_lock);
	if (!events) {
		uctx->link_missed = true;
		return;
	}
	spin_lock(&events->lock);
	if (!events->gone) {
		events->link = *link;
		events->link_pending = true;
	}
	spin_unlock(&events->lock);
	wake_up(&events->wait);
}

/* Queues a record of @conn for the process, unless @conn has no stream or the stream has ended. */
void usiw_evfile_push(struct usiw_conn *conn, enum usiw_event_type type)
{
	struct usiw_evfile *events = conn->events;

	if (!events)
		return;
	spin_lock(&events->lock);
	if (!events->gone) {
		usiw_cm_records_push(&conn->records, type, &conn->end.info);
		if (list_empty(&conn->ev_node)) {
			usiw_conn_get(conn);
			list_add_tail(&conn->ev_node, &events->conns);
		}
	}
	spin_unlock(&events->lock);
	wake_up(&events->wait);
}

/*
 * Drops all records of QP @qpn, because the QP is going or gets another connection. So the list has
 * at most one connection of a QP, however slowly the process reads.
 */
void usiw_evfile_forget(struct usiw_evfile *events, u32 qpn)
{
	struct usiw_conn *conn, *next;

	spin_lock(&events->lock);
	list_for_each_entry_safe(conn, next, &events->conns, ev_node)
		if (conn->qpn == qpn)
			usiw_evfile_drop(conn);
	spin_unlock(&events->lock);
}
