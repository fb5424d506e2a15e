// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions. The kernel never touches payload, so nothing is pinned or mapped: the
 * process itself reads and writes the memory, by its own rights. What registration
 * checks is what would otherwise show as a crash of the process later.
 */
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "usiw.h"

/* 0 if [start, start + length) is mapped with the rights that @access needs. */
static int usiw_check_mapped(u64 start, u64 length, int access)
{
	unsigned long need = VM_READ;
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	u64 end, at;
	int ret = 0;

	if (!length)
		return 0;
	if (check_add_overflow(start, length, &end) || end > TASK_SIZE)
		return -EFAULT;
	if (usiw_access_writes(access))
		need |= VM_WRITE;

	ret = mmap_read_lock_killable(mm);
	if (ret)
		return ret;
	for (at = start; at < end; at = vma->vm_end) {
		vma = find_vma(mm, at);
		if (!vma || vma->vm_start > at || (vma->vm_flags & need) != need) {
			ret = -EFAULT;
			break;
		}
		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			break;
		}
		cond_resched();
	}
	mmap_read_unlock(mm);
	return ret;
}

struct ib_mr *usiw_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 iova, int access,
			       struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibpd->device);
	struct usiw_mr *mr;
	int ret;

	BUILD_BUG_ON(USIW_ACCESS_KNOWN !=
		     (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
		      IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_OPTIONAL));

	if (!udata)
		return ERR_PTR(-EOPNOTSUPP);
	ret = usiw_check_access(access);
	if (ret)
		return ERR_PTR(ret);
	ret = usiw_check_mapped(start, length, access);
	if (ret)
		return ERR_PTR(ret);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	/* Cyclic, so that an STag that a peer still has does not name another region soon. */
	ret = xa_alloc_cyclic(&dev->mrs, &mr->index, mr,
			      XA_LIMIT(USIW_MR_INDEX_FIRST, USIW_MR_INDEX_LAST), &dev->next_mr,
			      GFP_KERNEL);
	if (ret < 0) {
		kfree(mr);
		return ERR_PTR(-ENOMEM);
	}
	mr->ibmr.lkey = usiw_stag(mr->index, get_random_u32());
	mr->ibmr.rkey = mr->ibmr.lkey;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	return &mr->ibmr;
}

struct ib_mr *usiw_get_dma_mr(struct ib_pd *ibpd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

int usiw_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct usiw_mr *mr = to_usiw_mr(ibmr);

	xa_erase(&to_usiw_dev(ibmr->device)->mrs, mr->index);
	kfree(mr);
	return 0;
}
