/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The listeners of a UDP port, and its REQs that are no connections yet.
 */
#ifndef USIW_GATE_H
#define USIW_GATE_H

#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/types.h>

#include "../cm/usiw_cm_gate.h"
#include "usiw_route.h"

struct iw_cm_id;
struct mem_cgroup;
struct usiw_device;
struct usiw_sock;
struct usiw_tuple;
struct usiw_user;

/**
 * struct usiw_rx - a received handshake datagram (or a stray one to be answered), copied
 * @node:	in usiw_sock.rxq
 * @req:	with its 4-tuple; for the gate if it is a REQ
 * @ifindex:	of the interface it came in by
 * @len:	of @data, bytes
 * @data:	UDP payload
 */
struct usiw_rx {
	struct list_head node;
	struct usiw_cm_req req;
	int ifindex;
	u32 len;
	u8 data[];
};

static inline const struct usiw_tuple *usiw_rx_ends(const struct usiw_rx *rx)
{
	return (const struct usiw_tuple *)&rx->req.tuple;
}

/**
 * struct usiw_listener - what iw_create_listen made
 * @kref:	the cm_id's, until iw_destroy_listen; a request's that has found it; half-open
 *		connections'
 * @dev:	with a reference
 * @cm_id:	with a reference
 * @us:		of its port, NULL if it hears nothing
 * @node:	in @us->wildcards if @any is set
 * @addr_node:	in @us->by_addr if @any is not set
 * @dev_node:	in @us->by_dev, likewise
 * @sender:	for whom its requests are looked at, and answered
 * @user:	whose it is, with a reference
 * @memcg:	pays for its requests, with a reference; NULL: nobody does
 * @families:	of which it is a user of @us: bit 1 IPv4, bit 0 IPv6
 * @addr:	where it listens
 * @scope:	the interface that it is of, if it is link-local
 * @any:	@addr is a wildcard
 * @places:	its backlog at the gate, from which it has left once @places.gate is NULL. Guarded
 *		by the gate_lock of the port, also after the listener has left. Only a connection of
 *		the port or its worker returns a place, and both keep the lock in memory
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

void usiw_listener_put(struct usiw_listener *listener);
int usiw_gate_join(struct usiw_listener *listener, unsigned int backlog);
void usiw_gate_leave(struct usiw_listener *listener);
bool usiw_gate_has_left(struct usiw_sock *us, const struct usiw_listener *listener);
void usiw_gate_return_place(struct usiw_sock *us, struct usiw_listener *listener);
u32 usiw_gate_request(struct usiw_cm_gate_verdict *v, struct usiw_listener **listener,
		      struct usiw_sock *us, struct usiw_rx **rx, const struct usiw_cm_packet *req,
		      void *answer);
void usiw_gate_withdraw(struct usiw_sock *us, const struct usiw_tuple *tuple,
			const struct usiw_cm_packet *reset);
void usiw_gate_discard(struct usiw_sock *us, struct usiw_rx *rx);
struct usiw_rx *usiw_gate_next(struct usiw_sock *us);
u64 usiw_gate_deadline(struct usiw_sock *us);
void usiw_gate_purge(struct usiw_sock *us);

#endif /* USIW_GATE_H */
