// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Functions by which connections and iw_cm use queue pairs: references, the state, the connection,
 * and the proxy that iw_cm holds in place of the QP. The verbs are in usiw_qp.c.
 *
 * A QP and its connection have references to each other. The connection drops both when it releases
 * the QP. iw_cm has references to the proxy only, so it cannot keep a QP alive.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "usiw_qp_ref.h"

#include "usiw_conn.h"
#include "usiw_device.h"

/* ---- Proxies of QPs. iw_cm calls iw_get_qp and iw_add_ref with interrupts off. ---- */

/*
 * Returns the proxy of QP @qpn, or NULL. The caller is in an RCU read-side critical section or has
 * interrupts disabled, so that the proxy is not freed.
 */
struct usiw_qp_proxy *usiw_qp_proxy_by_qpn(struct usiw_device *dev, u32 qpn)
{
	RCU_LOCKDEP_WARN(!rcu_read_lock_any_held(), "the QP's proxy may go");
	return xa_load(&dev->qps, qpn);
}

/* Returns the QP of @proxy with a reference; NULL if the QP is being destroyed. */
struct usiw_qp *usiw_qp_proxy_get_qp(struct usiw_qp_proxy *proxy)
{
	unsigned long irqs;
	struct usiw_qp *qp;

	spin_lock_irqsave(&proxy->lock, irqs);
	qp = proxy->qp;
	if (qp)
		kref_get(&qp->kref);
	spin_unlock_irqrestore(&proxy->lock, irqs);
	return qp;
}

/*
 * Returns the proxy of QP @qpn to iw_cm, or NULL. iw_cm calls this in connect and accept, in the
 * user's process. iw_cm must not get the QP of another process, because iw_cm could move that QP to
 * ERR. Nor must iw_cm get a QP that has a connection. If a user accepts twice on one QP, the second
 * accept then fails here, before iw_cm loses the reference of the first one.
 */
struct ib_qp *usiw_iw_get_qp(struct ib_device *ibdev, int qpn)
{
	struct usiw_qp_proxy *proxy = usiw_qp_proxy_by_qpn(to_usiw_dev(ibdev), qpn);
	unsigned long irqs;
	bool free = false;

	if (!proxy)
		return NULL;
	spin_lock_irqsave(&proxy->lock, irqs);
	if (proxy->qp)
		free = proxy->qp->mm == current->mm && !READ_ONCE(proxy->qp->conn);
	spin_unlock_irqrestore(&proxy->lock, irqs);
	return free ? &proxy->ibqp : NULL;
}

void usiw_iw_add_ref(struct ib_qp *ibqp)
{
	kref_get(&to_usiw_qp_proxy(ibqp)->kref);
}

static void usiw_qp_proxy_release(struct kref *kref)
{
	kfree(container_of(kref, struct usiw_qp_proxy, kref));
}

void usiw_iw_rem_ref(struct ib_qp *ibqp)
{
	kref_put(&to_usiw_qp_proxy(ibqp)->kref, usiw_qp_proxy_release);
}

int usiw_qp_proxy_alloc(struct usiw_qp *qp)
{
	struct usiw_qp_proxy *proxy = kzalloc(sizeof(*proxy), GFP_KERNEL_ACCOUNT);

	if (!proxy)
		return -ENOMEM;
	proxy->ibqp.device = qp->ibqp.device;
	proxy->ibqp.real_qp = &proxy->ibqp;
	proxy->ibqp.qp_type = IB_QPT_RC;
	kref_init(&proxy->kref);
	spin_lock_init(&proxy->lock);
	proxy->qp = qp;
	qp->proxy = proxy;
	return 0;
}

static void usiw_qp_proxy_put_rcu(struct rcu_head *rcu)
{
	usiw_iw_rem_ref(&container_of(rcu, struct usiw_qp_proxy, rcu)->ibqp);
}

/*
 * Separates @proxy from its QP, which is being destroyed. Look-ups no longer find the proxy, but a
 * caller may have found it before. iw_cm calls iw_get_qp and then iw_add_ref in one section with
 * interrupts off (iw_cm_connect, iw_cm_accept). So a grace period later each such caller has its
 * own reference, and the module's reference is dropped.
 */
void usiw_qp_proxy_detach(struct usiw_qp_proxy *proxy)
{
	unsigned long irqs;

	spin_lock_irqsave(&proxy->lock, irqs);
	proxy->qp = NULL;
	spin_unlock_irqrestore(&proxy->lock, irqs);
	call_rcu(&proxy->rcu, usiw_qp_proxy_put_rcu);
}

/* ---- References ---- */

static void usiw_qp_release(struct kref *kref)
{
	complete(&container_of(kref, struct usiw_qp, kref)->free);
}

void usiw_qp_put(struct usiw_qp *qp)
{
	kref_put(&qp->kref, usiw_qp_release);
}

/*
 * Returns the QP with the number @qpn, with a reference. Returns NULL if there is none, if it is
 * being destroyed, or if the calling process did not make it.
 */
struct usiw_qp *usiw_qp_get_own(struct usiw_device *dev, u32 qpn)
{
	struct usiw_qp_proxy *proxy;
	struct usiw_qp *qp = NULL;

	rcu_read_lock();
	proxy = usiw_qp_proxy_by_qpn(dev, qpn);
	if (proxy)
		qp = usiw_qp_proxy_get_qp(proxy);
	rcu_read_unlock();
	if (qp && qp->mm != current->mm) {
		usiw_qp_put(qp);
		return NULL;
	}
	return qp;
}

/* ---- The connection of a QP ---- */

/* Returns the ports that the process of @qp can use, as bits USIW_CM_*. */
u8 usiw_qp_ports(const struct usiw_qp *qp)
{
	return (usiw_qp_can(qp, USIW_CAP_DATA_SOCKET) ? USIW_CM_SOCKET : 0) |
	       (usiw_qp_can(qp, USIW_CAP_SOCKETS_ONLY) ? 0 : USIW_CM_PACKETS) |
	       (usiw_qp_can(qp, USIW_CAP_PORT_MOVE) ? USIW_CM_MOVES : 0);
}

/*
 * Makes @conn the connection of @qp, with references to each other. Returns 0, or -EINVAL if the
 * QP's state allows no connection or the QP is being destroyed, and -EISCONN if it has a
 * connection.
 */
int usiw_qp_attach(struct usiw_qp *qp, struct usiw_conn *conn)
{
	int ret = 0;

	spin_lock(&qp->lock);
	if (qp->destroying || qp->state > USIW_QPS_RTR) {
		ret = -EINVAL;
	} else if (qp->conn) {
		ret = -EISCONN;
	} else {
		usiw_conn_get(conn);
		WRITE_ONCE(qp->conn, conn);
		kref_get(&qp->kref);
	}
	spin_unlock(&qp->lock);
	return ret;
}

/* Drops the references of @qp and @conn to each other, if @conn is still the connection of @qp. */
void usiw_qp_detach(struct usiw_qp *qp, struct usiw_conn *conn)
{
	bool attached;

	spin_lock(&qp->lock);
	attached = qp->conn == conn;
	if (attached)
		WRITE_ONCE(qp->conn, NULL);
	spin_unlock(&qp->lock);
	if (attached) {
		usiw_qp_put(qp);
		usiw_conn_put(conn);
	}
}

/* Returns the connection of @qp with a reference, or NULL. */
struct usiw_conn *usiw_qp_get_conn(struct usiw_qp *qp)
{
	struct usiw_conn *conn;

	spin_lock(&qp->lock);
	conn = qp->conn;
	if (conn)
		usiw_conn_get(conn);
	spin_unlock(&qp->lock);
	return conn;
}

void usiw_qp_set_state(struct usiw_qp *qp, enum usiw_qp_state state)
{
	spin_lock(&qp->lock);
	qp->state = state;
	spin_unlock(&qp->lock);
}

void usiw_qp_set_depths(struct usiw_qp *qp, u16 ird, u16 ord)
{
	spin_lock(&qp->lock);
	qp->attrs.ird = min_t(u16, ird, U8_MAX);
	qp->attrs.ord = min_t(u16, ord, U8_MAX);
	spin_unlock(&qp->lock);
}

/*
 * Shows the process, in the QP's page, that rdma_accept() uses the QP. So the process may post
 * sends before the connection is installed. The caller holds a reference to @qp, so the page
 * exists.
 */
void usiw_qp_accepted(struct usiw_qp *qp)
{
	struct usiw_qp_stats *stats = (struct usiw_qp_stats *)qp->counters.page;

	WRITE_ONCE(stats->accepted, 1);
}
