/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* REQ admission: the listeners of a UDP port, and the REQs that are not connections yet. */
#ifndef USIW_ADMISSION_H
#define USIW_ADMISSION_H

#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "../cm/usiw_cm_admission.h"
#include "usiw_route.h"

struct iw_cm_id;
struct mem_cgroup;
struct usiw_device;
struct usiw_sock;
struct usiw_tuple;
struct usiw_user;

/**
 * struct usiw_rx - copy of a received datagram, for the port's worker or for the admission
 * @node:	entry in usiw_sock.rxq until the worker takes the copy
 * @req:	4-tuple of the datagram. If the datagram is a REQ, also its entry in the admission
 * @ifindex:	interface that received the datagram
 * @len:	length of @data, bytes
 * @data:	UDP payload: of a DATA, SHUTDOWN or SACK only the TRP header; of bytes that are no
 *		datagram of usiw at most USIW_CM_MAX_DATAGRAM
 */
struct usiw_rx {
	struct list_head node;
	struct usiw_cm_req req;
	int ifindex;
	u32 len;
	u8 data[];
};

/* Returns the 4-tuple of @rx. */
static inline const struct usiw_tuple *usiw_rx_ends(const struct usiw_rx *rx)
{
	return (const struct usiw_tuple *)&rx->req.tuple;
}

/**
 * struct usiw_listener - listener that iw_create_listen made
 * @kref:	references of the cm_id until iw_destroy_listen, of half-open connections, and of a
 *		REQ that the worker handles
 * @dev:	device, with a reference
 * @cm_id:	iw_cm's id, with a reference
 * @us:		UDP port; NULL if the listener receives nothing
 * @node:	entry in @us->wildcards if @any is set
 * @addr_node:	entry in @us->by_addr if @any is not set
 * @dev_node:	entry in @us->by_dev if @any is not set
 * @sender:	attributes for route look-ups, and for answers that have no connection
 * @user:	user who listens, with a reference
 * @memcg:	memory cgroup that waiting REQs and connections of the listener are charged to, with
 *		a reference; NULL: they are charged to no cgroup
 * @families:	families of which the listener uses the socket of @us: bit 1 IPv4, bit 0 IPv6
 * @addr:	local address
 * @scope:	interface of @addr if that is link-local and the user has named one, else 0
 * @any:	@addr is a wildcard
 * @places:	backlog, as the admission keeps it; @places.admission is NULL before the listener
 *		joins, and once it has left. The admission_lock of the port guards this field, even
 *		after the listener has left. Then only a connection or the worker of the port
 *		returns a slot, and both keep the struct usiw_sock with its lock in memory
 */
struct usiw_listener {
	struct kref kref;
	struct usiw_device *dev;
	struct iw_cm_id *cm_id;
	struct usiw_sock *us;
	struct list_head node;
	struct rb_node addr_node;
	struct rb_node dev_node;
	struct usiw_sender sender;
	struct usiw_user *user;
	struct mem_cgroup *memcg;
	unsigned int families;
	struct in6_addr addr;
	u32 scope;
	bool any;
	struct usiw_cm_listener places;
};

struct usiw_rx *usiw_rx_alloc(struct mem_cgroup *memcg, u32 len);
void usiw_listener_put(struct usiw_listener *listener);
int usiw_admission_join(struct usiw_listener *listener, unsigned int backlog);
void usiw_admission_leave(struct usiw_listener *listener);
bool usiw_admission_has_left(struct usiw_sock *us, const struct usiw_listener *listener);
void usiw_admission_return_place(struct usiw_sock *us, struct usiw_listener *listener);
u32 usiw_admission_request(struct usiw_cm_admission_verdict *v, struct usiw_listener **listener,
			   struct usiw_sock *us, struct usiw_rx **rx,
			   const struct usiw_cm_packet *req, void *answer);
void usiw_admission_withdraw(struct usiw_sock *us, const struct usiw_tuple *tuple,
			     const struct usiw_cm_packet *reset);
void usiw_admission_discard(struct usiw_sock *us, struct usiw_rx *rx);
struct usiw_rx *usiw_admission_next(struct usiw_sock *us);
u64 usiw_admission_deadline(struct usiw_sock *us);
void usiw_admission_purge(struct usiw_sock *us);

#endif /* USIW_ADMISSION_H */
