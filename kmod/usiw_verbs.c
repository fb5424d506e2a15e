// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Contexts of user processes, the counters page, protection domains.
 */
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/uverbs_ioctl.h>

#include "usiw.h"

/* The counters of a context while they are mapped: they outlive the context then. */
struct usiw_mmap_entry {
	struct rdma_user_mmap_entry rdma_entry;
	void *counters;
};

static struct usiw_mmap_entry *to_usiw_mmap_entry(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct usiw_mmap_entry, rdma_entry);
}

static int usiw_alloc_counters(struct usiw_ucontext *uctx)
{
	struct usiw_mmap_entry *entry;
	int ret;

	BUILD_BUG_ON(USIW_CNT_MAX * sizeof(u64) > USIW_COUNTERS_SIZE);
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->counters = vmalloc_user(PAGE_ALIGN(USIW_COUNTERS_SIZE));
	if (!entry->counters) {
		kfree(entry);
		return -ENOMEM;
	}
	ret = rdma_user_mmap_entry_insert(&uctx->ibuc, &entry->rdma_entry,
					  PAGE_ALIGN(USIW_COUNTERS_SIZE));
	if (ret) {
		vfree(entry->counters);
		kfree(entry);
		return ret;
	}
	uctx->counters = entry->counters;
	uctx->counters_entry = &entry->rdma_entry;
	return 0;
}

int usiw_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	int ret;

	if (vma->vm_end - vma->vm_start != PAGE_ALIGN(USIW_COUNTERS_SIZE))
		return -EINVAL;
	entry = rdma_user_mmap_entry_get(ibuc, vma);
	if (!entry)
		return -EINVAL;
	ret = remap_vmalloc_range(vma, to_usiw_mmap_entry(entry)->counters, 0);
	rdma_user_mmap_entry_put(entry);
	return ret;
}

void usiw_mmap_free(struct rdma_user_mmap_entry *rdma_entry)
{
	struct usiw_mmap_entry *entry = to_usiw_mmap_entry(rdma_entry);

	vfree(entry->counters);
	kfree(entry);
}

/*
 * Return -EINVAL for driver data of another shape (not usiw's provider),
 * -EPROTONOSUPPORT for a provider of another ABI version.
 */
int usiw_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibuc->device);
	struct usiw_ucontext *uctx = to_usiw_uctx(ibuc);
	struct usiw_alloc_ucontext_resp resp = {};
	struct usiw_alloc_ucontext_req req;
	struct file *file;
	int fd, ret;

	if (udata->inlen < sizeof(req) || udata->outlen < sizeof(resp))
		return -EINVAL;
	ret = ib_copy_from_udata(&req, udata, sizeof(req));
	if (ret)
		return ret;
	if (req.abi_version != USIW_ABI_VERSION)
		return -EPROTONOSUPPORT;
	if (req.reserved)
		return -EINVAL;

	uctx->events = usiw_evfile_alloc();
	if (!uctx->events)
		return -ENOMEM;
	ret = usiw_alloc_counters(uctx);
	if (ret)
		goto err_events;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		ret = fd;
		goto err_counters;
	}
	file = usiw_evfile_open(uctx->events);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto err_fd;
	}

	resp.counters_offset = rdma_user_mmap_get_offset(uctx->counters_entry);
	resp.counters_size = USIW_COUNTERS_SIZE;
	resp.event_fd = fd;
	usiw_link_info(dev, &resp.link);
	ret = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (ret)
		goto err_file;

	usiw_stats_add_context(uctx);
	/* From here on the process can reach the file: nothing may fail behind it. */
	fd_install(fd, file);
	return 0;

err_file:
	fput(file);
err_fd:
	put_unused_fd(fd);
err_counters:
	rdma_user_mmap_entry_remove(uctx->counters_entry);
err_events:
	usiw_evfile_put(uctx->events);
	return ret;
}

void usiw_dealloc_ucontext(struct ib_ucontext *ibuc)
{
	struct usiw_ucontext *uctx = to_usiw_uctx(ibuc);

	usiw_stats_del_context(uctx);
	usiw_evfile_shutdown(uctx->events);
	usiw_evfile_put(uctx->events);
	rdma_user_mmap_entry_remove(uctx->counters_entry);
}

/* The core unmaps and destroys everything by itself; having this says that it may. */
void usiw_disassociate_ucontext(struct ib_ucontext *ibuc)
{
}

int usiw_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibpd->device);

	if (!udata)
		return -EOPNOTSUPP;
	if (atomic_inc_return(&dev->nr_pds) > USIW_MAX_PD) {
		atomic_dec(&dev->nr_pds);
		return -ENOMEM;
	}
	return 0;
}

int usiw_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	atomic_dec(&to_usiw_dev(ibpd->device)->nr_pds);
	return 0;
}
