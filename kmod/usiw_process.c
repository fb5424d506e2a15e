// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Ends the connections of a process that exits or calls exec.
 *
 * uverbs destroys a QP when the last descriptor of its file is closed. A child of fork(), or a
 * process that was sent the descriptor, may keep it open for any time. But only the process that
 * made the QP moves its data, in its own memory. When this memory goes, the connections cannot
 * continue, and their peers have to be notified.
 *
 * So each address space with QPs has an mm notifier, which its QPs share. The kernel calls the
 * notifier when the last thread has left the memory: at exit before the process closes its
 * descriptors, and at exec. The call only kicks the connections, whose work then sends RESET and
 * notifies iw_cm. The exit of the process waits for the call, so the call waits for short critical
 * sections only.
 */
#include <linux/mmu_notifier.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "usiw_process.h"

#include "usiw_conn.h"
#include "usiw_qp_ref.h"

/**
 * struct usiw_process - an address space with QPs
 * @notifier:	mm notifier; each QP has a reference
 * @lock:	guards @qps. A process that exits takes it in the mm notifier, so its holder must
 *		not wait for a process
 * @qps:	QPs that the process made
 */
struct usiw_process {
	struct mmu_notifier notifier;
	struct mutex lock;
	struct list_head qps;
};

/*
 * Makes the connections of all QPs of @mm end. Afterwards no QP of @mm gets a new connection,
 * because connect and accept only take QPs of the caller's own mm.
 */
static void usiw_process_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct usiw_process *process = container_of(notifier, struct usiw_process, notifier);
	struct usiw_qp *qp;

	mutex_lock(&process->lock);
	list_for_each_entry(qp, &process->qps, process_node) {
		spin_lock(&qp->lock);
		if (qp->conn)
			usiw_conn_kick(qp->conn, USIW_CONN_PROCESS_GONE);
		spin_unlock(&qp->lock);
		cond_resched();
	}
	mutex_unlock(&process->lock);
}

static struct mmu_notifier *usiw_process_alloc(struct mm_struct *mm)
{
	struct usiw_process *process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);

	if (!process)
		return ERR_PTR(-ENOMEM);
	mutex_init(&process->lock);
	INIT_LIST_HEAD(&process->qps);
	return &process->notifier;
}

static void usiw_process_free(struct mmu_notifier *notifier)
{
	kfree(container_of(notifier, struct usiw_process, notifier));
}

static const struct mmu_notifier_ops usiw_process_ops = {
	.release = usiw_process_release,
	.alloc_notifier = usiw_process_alloc,
	.free_notifier = usiw_process_free,
};

/*
 * Adds @qp, which the calling process has made, to its process. Returns 0, -ENOMEM, or
 * -ERESTARTNOINTR if a signal has to be handled first. The system call is then restarted, because
 * verbs do not define EINTR.
 */
int usiw_process_join(struct usiw_qp *qp)
{
	struct mm_struct *mm = current->mm;
	struct mmu_notifier *notifier;

	if (mmap_write_lock_killable(mm))
		return -ERESTARTNOINTR;
	notifier = mmu_notifier_get_locked(&usiw_process_ops, mm);
	mmap_write_unlock(mm);
	if (IS_ERR(notifier))
		return PTR_ERR(notifier) == -EINTR ? -ERESTARTNOINTR : PTR_ERR(notifier);

	qp->process = container_of(notifier, struct usiw_process, notifier);
	mutex_lock(&qp->process->lock);
	list_add_tail(&qp->process_node, &qp->process->qps);
	mutex_unlock(&qp->process->lock);
	return 0;
}

/* Removes @qp from its process. Waits for no process. */
void usiw_process_leave(struct usiw_qp *qp)
{
	struct usiw_process *process = qp->process;

	mutex_lock(&process->lock);
	list_del(&qp->process_node);
	mutex_unlock(&process->lock);
	mmu_notifier_put(&process->notifier);
}

/* Returns true if the process was killed, exits or has exited. Its memory may still exist. */
bool usiw_process_is_dying(struct pid *pid)
{
	struct task_struct *task;
	bool dying;

	rcu_read_lock();
	task = pid_task(pid, PIDTYPE_TGID);
	dying = !task || (READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT);
	rcu_read_unlock();
	return dying;
}
