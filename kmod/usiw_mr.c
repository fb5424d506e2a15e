// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory regions and windows. The module never accesses payload, so it pins and maps nothing: the
 * process itself reads and writes the memory, by its own rights. Registration detects errors that
 * would otherwise crash the process later. In memory that is registered on demand, the provider
 * detects such errors at each access.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "usiw_mr.h"

#include "../cm/object/usiw_limits.h"
#include "usiw_device.h"

/*
 * Returns true if the page of address @at in @vma is past the end of the file that @vma maps. An
 * access to such a page raises SIGBUS. The function reads the inode that page faults use. For a
 * block device that is not the inode of the file. Device memory has no end of file. Memory that a
 * driver maps by an anonymous inode has no end of file either.
 */
static bool usiw_past_end_of_file(const struct vm_area_struct *vma, unsigned long at)
{
	const struct inode *inode;

	if (!vma->vm_file || (vma->vm_flags & (VM_IO | VM_PFNMAP)))
		return false;
	inode = vma->vm_file->f_mapping->host;
	if (usiw_anon_inode(inode) || !(S_ISREG(inode->i_mode) || S_ISBLK(inode->i_mode)))
		return false;
	return (loff_t)(vma->vm_pgoff + ((at - vma->vm_start) >> PAGE_SHIFT)) >=
	       DIV_ROUND_UP(i_size_read(inode), PAGE_SIZE);
}

/*
 * Returns 0 if [start, start + length) is mapped with the rights that @access needs, and no page of
 * it is past the end of a file. Otherwise returns -EFAULT, or -EINTR if the process was killed. No
 * page is faulted in. If the file is truncated afterwards, the process gets SIGBUS, as with any
 * mapping.
 */
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
		if (!vma || vma->vm_start > at || (vma->vm_flags & need) != need ||
		    usiw_past_end_of_file(vma, min_t(u64, end, vma->vm_end) - 1)) {
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

/*
 * Stores a new STag in *@stag. Returns 0 or -ENOMEM. The search for an index is cyclic, so an STag
 * that a peer still knows does not soon name other memory.
 */
static int usiw_stag_alloc(struct usiw_device *dev, struct xa_limit limit, u32 *next, u32 *stag)
{
	u32 index;

	if (xa_alloc_cyclic(&dev->stags, &index, xa_mk_value(0), limit, next, GFP_KERNEL) < 0)
		return -ENOMEM;
	*stag = usiw_stag(index, get_random_u32());
	return 0;
}

static void usiw_stag_free(struct ib_device *ibdev, u32 stag)
{
	xa_erase(&to_usiw_dev(ibdev)->stags, stag >> USIW_STAG_KEY_BITS);
}

static int usiw_check_mr(u64 start, u64 length, int access)
{
	int ret;

	BUILD_BUG_ON(USIW_ACCESS_KNOWN !=
		     (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |
		      IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | IB_ZERO_BASED |
		      IB_ACCESS_ON_DEMAND | IB_ACCESS_HUGETLB | IB_ACCESS_OPTIONAL));

	ret = usiw_check_region(start, length, access);
	if (ret || (access & IB_ACCESS_ON_DEMAND))
		return ret;
	return usiw_check_mapped(start, length, access);
}

struct ib_mr *usiw_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 iova, int access,
			       USIW_DMAH_ARG struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibpd->device);
	struct usiw_mr *mr;
	int ret;

	if (!udata)
		return ERR_PTR(-EOPNOTSUPP);
	ret = usiw_check_mr(start, length, access);
	if (ret)
		return ERR_PTR(ret);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	ret = usiw_stag_alloc(dev, XA_LIMIT(USIW_MR_INDEX_FIRST, USIW_MR_INDEX_LAST), &dev->next_mr,
			      &mr->ibmr.lkey);
	if (ret) {
		kfree(mr);
		return ERR_PTR(ret);
	}
	mr->start = start;
	mr->access = access;
	mr->ibmr.rkey = mr->ibmr.lkey;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	return &mr->ibmr;
}

/*
 * Changes the region in place, so its STag keeps its index. ib_core has locked the region. ib_core
 * also changes the PD afterwards, and returns the STag to the process.
 */
struct ib_mr *usiw_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 iova,
				 int access, struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct usiw_mr *mr = to_usiw_mr(ibmr);
	int ret;

	BUILD_BUG_ON(USIW_REREG_TRANSLATION != IB_MR_REREG_TRANS);
	BUILD_BUG_ON(USIW_REREG_PD != IB_MR_REREG_PD);
	BUILD_BUG_ON(USIW_REREG_ACCESS != IB_MR_REREG_ACCESS);

	if (!udata)
		return ERR_PTR(-EOPNOTSUPP);
	/*
	 * Newer kernels clear the flag of the PD if the new PD is the old one, so @flags may be 0.
	 */
	ret = flags ? usiw_check_rereg(flags) : 0;
	if (ret)
		return ERR_PTR(ret);
	if (!(flags & IB_MR_REREG_TRANS)) {
		start = mr->start;
		length = ibmr->length;
	}
	if (!(flags & IB_MR_REREG_ACCESS))
		access = mr->access;
	if (flags & (IB_MR_REREG_TRANS | IB_MR_REREG_ACCESS)) {
		ret = usiw_check_mr(start, length, access);
		if (ret)
			return ERR_PTR(ret);
	}

	if (usiw_rereg_renews(flags, mr->access, access)) {
		ibmr->lkey = usiw_stag_renewed(ibmr->lkey, get_random_u32());
		ibmr->rkey = ibmr->lkey;
	}
	mr->start = start;
	ibmr->length = length;
	mr->access = access;
	return NULL;
}

struct ib_mr *usiw_get_dma_mr(struct ib_pd *ibpd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

int usiw_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	usiw_stag_free(ibmr->device, ibmr->lkey);
	kfree(to_usiw_mr(ibmr));
	return 0;
}

int usiw_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibmw->device);
	int ret;

	if (!udata)
		return -EOPNOTSUPP;
	ret = usiw_check_mw_type(ibmw->type);
	if (ret)
		return ret;
	return usiw_stag_alloc(dev, XA_LIMIT(USIW_MW_INDEX_FIRST, USIW_MW_INDEX_LAST),
			       &dev->next_mw, &ibmw->rkey);
}

int usiw_dealloc_mw(struct ib_mw *ibmw)
{
	usiw_stag_free(ibmw->device, ibmw->rkey);
	return 0;
}
