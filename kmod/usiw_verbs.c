// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Contexts of processes, pages of counters, and the objects about which the kernel knows little:
 * protection domains, completion queues and shared receive queues. The provider has the rings. The
 * kernel has the numbers of CQs, the sizes that a process requested, and the unread events.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>

#include "usiw_verbs.h"

#include "../cm/object/usiw_limits.h"
#include "usiw_compat.h"
#include "usiw_device.h"
#include "usiw_event.h"
#include "usiw_stats.h"

/* ---- Driver data of commands ------------------------------------------- */

/*
 * Reads the driver data of a command into @req, a structure of @size bytes. A provider of another
 * version may send less or more. The rest of @req is 0 if it sends less. Returns -EINVAL for less
 * than @least bytes, and -EOPNOTSUPP if a byte after @size is not 0.
 */
static int usiw_read_request(struct ib_udata *udata, void *req, size_t size, size_t least)
{
	memset(req, 0, size);
	if (udata->inlen < least)
		return -EINVAL;
	if (udata->inlen > size && !ib_is_udata_cleared(udata, size, udata->inlen - size))
		return -EOPNOTSUPP;
	return ib_copy_from_udata(req, udata, min(udata->inlen, size));
}

/*
 * Checks the driver data of a request that creates a CQ, an SRQ or a QP. All three have the same
 * layout. Returns 0 or -errno.
 */
int usiw_read_create_request(struct ib_udata *udata)
{
	struct usiw_create_cq_req req;
	int ret;

	BUILD_BUG_ON(sizeof(struct usiw_create_srq_req) != sizeof(req));
	BUILD_BUG_ON(sizeof(struct usiw_create_qp_req) != sizeof(req));
	ret = usiw_read_request(udata, &req, sizeof(req), 0);
	if (ret)
		return ret;
	if (req.comp_mask)
		return -EOPNOTSUPP;
	return req.reserved ? -EINVAL : 0;
}

/* Writes as much of the response as the caller has space for. */
int usiw_write_response(struct ib_udata *udata, void *resp, size_t size)
{
	return ib_copy_to_udata(udata, resp, min(udata->outlen, size));
}

/* ---- Pages of counters ------------------------------------------------- */

/*
 * A page of counters that a process may map. As long as the page is mapped, it stays in memory,
 * even after its context or QP is destroyed.
 */
struct usiw_mmap_entry {
	struct rdma_user_mmap_entry rdma_entry;
	void *page;
};

static struct usiw_mmap_entry *to_usiw_mmap_entry(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct usiw_mmap_entry, rdma_entry);
}

void usiw_mmap_free(struct rdma_user_mmap_entry *rdma_entry)
{
	struct usiw_mmap_entry *entry = to_usiw_mmap_entry(rdma_entry);

	free_page((unsigned long)entry->page);
	kfree(entry);
}

/* Allocates a page of zeros that the process may map. */
int usiw_counters_alloc(struct usiw_ucontext *uctx, struct usiw_counters *counters)
{
	struct usiw_mmap_entry *entry;
	int ret;

	BUILD_BUG_ON(USIW_CNT_MAX > USIW_COUNTERS_ROOM);
	BUILD_BUG_ON(USIW_GAUGE_MAX > USIW_GAUGES_ROOM);
	BUILD_BUG_ON(sizeof(struct usiw_qp_stats) != USIW_COUNTERS_SIZE);
	BUILD_BUG_ON(offsetof(struct usiw_qp_stats, counters));
	BUILD_BUG_ON(USIW_COUNTERS_SIZE > PAGE_SIZE);
	entry = kzalloc(sizeof(*entry), GFP_KERNEL_ACCOUNT);
	if (!entry)
		return -ENOMEM;
	entry->page = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	ret = -ENOMEM;
	if (entry->page)
		ret = rdma_user_mmap_entry_insert(&uctx->ibuc, &entry->rdma_entry, PAGE_SIZE);
	if (ret) {
		usiw_mmap_free(&entry->rdma_entry);
		return ret;
	}
	counters->page = entry->page;
	counters->entry = &entry->rdma_entry;
	return 0;
}

void usiw_counters_free(struct usiw_counters *counters)
{
	rdma_user_mmap_entry_remove(counters->entry);
}

int usiw_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	int ret;

	if (vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	entry = rdma_user_mmap_entry_get(ibuc, vma);
	if (!entry)
		return -EINVAL;
	usiw_vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	ret = vm_insert_page(vma, vma->vm_start, virt_to_page(to_usiw_mmap_entry(entry)->page));
	rdma_user_mmap_entry_put(entry);
	return ret;
}

/* ---- Contexts ---------------------------------------------------------- */

/* Capabilities of the module. A context uses those that its provider has as well. */
#define USIW_CAPS	(USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE | \
			 USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES)

/*
 * Returns the capabilities that provider and module both have. USIW_CAP_PORT_MOVE also needs a data
 * socket and a provider that reports its port. USIW_CAP_SOCKETS_ONLY and USIW_CAP_MERGES also need
 * a data socket.
 */
static u64 usiw_agree_caps(u64 caps)
{
	caps &= USIW_CAPS;
	if (!(caps & USIW_CAP_DATA_SOCKET) || !(caps & USIW_CAP_PORT_REPORT))
		caps &= ~USIW_CAP_PORT_MOVE;
	if (!(caps & USIW_CAP_DATA_SOCKET))
		caps &= ~(USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES);
	return caps;
}

/*
 * Reads the request of GET_CONTEXT. Returns -EINVAL if the driver data is too short to be that of
 * usiw's provider. Returns -EPROTO if the module does not accept the provider's ABI version, and
 * writes the versions that it accepts to the response. (The code is not -EPROTONOSUPPORT, which
 * uverbs uses itself. uverbs warns about a driver that returns it.)
 */
static int usiw_read_ucontext_req(struct ib_udata *udata, struct usiw_alloc_ucontext_req *req,
				  struct usiw_alloc_ucontext_resp *resp)
{
	u32 version;
	int ret;

	if (udata->inlen < sizeof(version))
		return -EINVAL;
	ret = ib_copy_from_udata(&version, udata, sizeof(version));
	if (ret)
		return ret;
	if (version < USIW_ABI_VERSION_MIN || version > USIW_ABI_VERSION) {
		ret = usiw_write_response(udata, resp, sizeof(*resp));
		return ret ? ret : -EPROTO;
	}
	ret = usiw_read_request(udata, req, sizeof(*req), sizeof(*req));
	if (ret)
		return ret;
	return req->comp_mask ? -EOPNOTSUPP : 0;
}

int usiw_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibuc->device);
	struct usiw_ucontext *uctx = to_usiw_uctx(ibuc);
	struct usiw_alloc_ucontext_resp resp = {
		.abi_min = USIW_ABI_VERSION_MIN,
		.abi_max = USIW_ABI_VERSION,
	};
	struct usiw_alloc_ucontext_req req;
	int ret;

	ret = usiw_read_ucontext_req(udata, &req, &resp);
	if (ret)
		return ret;
	uctx->caps = usiw_agree_caps(req.caps);
	ret = usiw_counters_alloc(uctx, &uctx->counters);
	if (ret)
		return ret;

	resp.caps = uctx->caps;
	resp.counters_offset = rdma_user_mmap_get_offset(uctx->counters.entry);
	resp.counters_size = USIW_COUNTERS_SIZE;
	resp.port_kind = USIW_PORT_PACKET;
	/*
	 * The context is in the list before usiw_link_info() reads the link, so that a later change
	 * is reported as an event.
	 */
	spin_lock(&dev->ctx_lock);
	list_add_tail(&uctx->node, &dev->contexts);
	spin_unlock(&dev->ctx_lock);
	usiw_link_info(dev, &resp.link);
	ret = usiw_write_response(udata, &resp, sizeof(resp));
	if (ret)
		goto err_context;
	usiw_stats_add(dev, &uctx->counters);
	return 0;

err_context:
	spin_lock(&dev->ctx_lock);
	list_del(&uctx->node);
	spin_unlock(&dev->ctx_lock);
	usiw_counters_free(&uctx->counters);
	return ret;
}

/*
 * Ends a context. uverbs has destroyed all objects of the context, including the event stream. The
 * memory of the stream still exists, because the context has a reference.
 */
void usiw_dealloc_ucontext(struct ib_ucontext *ibuc)
{
	struct usiw_device *dev = to_usiw_dev(ibuc->device);
	struct usiw_ucontext *uctx = to_usiw_uctx(ibuc);

	usiw_stats_del(dev, &uctx->counters);
	spin_lock(&dev->ctx_lock);
	list_del(&uctx->node);
	spin_unlock(&dev->ctx_lock);
	if (uctx->events) {
		usiw_evfile_shutdown(uctx->events);
		uverbs_uobject_put(&uctx->events->uobj);
	}
	usiw_counters_free(&uctx->counters);
}

/*
 * Called if the device is removed while a process has it open. Does nothing, because uverbs itself
 * destroys all objects of the context. Without this operation, uverbs would instead wait until all
 * processes have closed the device. Pages of counters may stay mapped, because they are ordinary
 * memory.
 */
void usiw_disassociate_ucontext(struct ib_ucontext *ibuc)
{
}

/* ---- Protection domains ------------------------------------------------ */

int usiw_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibpd->device);

	if (!udata)
		return -EOPNOTSUPP;
	return atomic_add_unless(&dev->nr_pds, 1, USIW_MAX_PD) ? 0 : -ENOMEM;
}

int usiw_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	atomic_dec(&to_usiw_dev(ibpd->device)->nr_pds);
	return 0;
}

/* ---- Completion queues ------------------------------------------------- */

int usiw_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct usiw_create_cq_arg *arg)
{
	struct ib_udata *udata = usiw_create_cq_udata(arg);
	struct usiw_device *dev = to_usiw_dev(ibcq->device);
	struct usiw_cq *cq = to_usiw_cq(ibcq);
	struct usiw_create_cq_resp resp = {};
	int cqn, ret;

	if (!udata)
		return -EOPNOTSUPP;
	if (attr->flags)
		return -EOPNOTSUPP;
	if (usiw_check_cqe(attr->cqe))
		return -EINVAL;
	ret = usiw_read_create_request(udata);
	if (ret)
		return ret;

	cqn = ida_alloc_range(&dev->cqns, 1, USIW_MAX_CQ, GFP_KERNEL_ACCOUNT);
	if (cqn < 0)
		return -ENOMEM;
	cq->cqn = cqn;
	usiw_unread_init_completions(&cq->completions, ibcq->uobject);
	usiw_unread_init_async(&cq->async, ibcq->uobject);
	ibcq->cqe = attr->cqe;
	resp.cqn = cqn;
	ret = usiw_write_response(udata, &resp, sizeof(resp));
	if (ret)
		ida_free(&dev->cqns, cqn);
	return ret;
}

/*
 * Sets the size of a CQ, but does not check that the entries in its ring fit, because only the
 * provider knows how many there are. If two calls run at the same time, the later store counts.
 */
int usiw_resize_cq(struct ib_cq *ibcq, usiw_resize_cqe cqe, struct ib_udata *udata)
{
	if (!udata)
		return -EOPNOTSUPP;
	if (udata->inlen && !ib_is_udata_cleared(udata, 0, udata->inlen))
		return -EOPNOTSUPP;
	if (usiw_check_cqe(cqe))
		return -EINVAL;
	WRITE_ONCE(ibcq->cqe, cqe);
	return 0;
}

int usiw_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	ida_free(&to_usiw_dev(ibcq->device)->cqns, to_usiw_cq(ibcq)->cqn);
	return 0;
}

/*
 * The operations poll_cq, req_notify_cq, post_send and post_recv only return -EOPNOTSUPP. Without
 * them ib_core would count the device among those that rdma_cm ignores. No kernel user has a CQ or
 * a QP to call them on, but a process can call them by write(2).
 */
int usiw_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc)
{
	return -EOPNOTSUPP;
}

int usiw_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	return -EOPNOTSUPP;
}

/* ---- Shared receive queues. ib_core keeps an SRQ while a QP uses it. ---- */

int usiw_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibsrq->device);
	struct usiw_srq *srq = to_usiw_srq(ibsrq);
	int ret;

	if (!udata || attr->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	ret = usiw_check_srq(attr->attr.max_wr, attr->attr.max_sge);
	if (ret)
		return ret;
	ret = usiw_read_create_request(udata);
	if (ret)
		return ret;

	if (!atomic_add_unless(&dev->nr_srqs, 1, USIW_MAX_SRQ))
		return -ENOMEM;
	srq->max_wr = attr->attr.max_wr;
	srq->max_sge = attr->attr.max_sge;
	srq->limit = 0;		/* modify_srq sets it: create_srq ignores a limit */
	usiw_unread_init_async(&srq->async, ibsrq->uobject);
	return 0;
}

/*
 * Sets the size and the limit of an SRQ. For a new size, the provider has resized its ring before
 * this call, because only the provider knows how many entries are in use and which limit is armed.
 * If two calls run at the same time, the later store counts.
 */
int usiw_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		    struct ib_udata *udata)
{
	struct usiw_srq *srq = to_usiw_srq(ibsrq);
	int ret;

	BUILD_BUG_ON(USIW_SRQ_ATTR_MAX_WR != IB_SRQ_MAX_WR || USIW_SRQ_ATTR_LIMIT != IB_SRQ_LIMIT);
	ret = usiw_check_modify_srq(mask, attr->max_wr, attr->srq_limit, READ_ONCE(srq->max_wr));
	if (ret)
		return ret;
	if (mask & IB_SRQ_MAX_WR) {
		WRITE_ONCE(srq->max_wr, attr->max_wr);
		WRITE_ONCE(srq->limit, min(READ_ONCE(srq->limit), attr->max_wr));
	}
	if (mask & IB_SRQ_LIMIT)
		WRITE_ONCE(srq->limit, attr->srq_limit);
	return 0;
}

int usiw_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct usiw_srq *srq = to_usiw_srq(ibsrq);

	attr->max_wr = READ_ONCE(srq->max_wr);
	attr->max_sge = srq->max_sge;
	attr->srq_limit = READ_ONCE(srq->limit);
	return 0;
}

int usiw_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	atomic_dec(&to_usiw_dev(ibsrq->device)->nr_srqs);
	return 0;
}

/* Refuses the call of a process by write(2), as usiw_poll_cq() does. */
int usiw_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr)
{
	*bad_wr = wr;
	return -EOPNOTSUPP;
}
