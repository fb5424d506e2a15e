/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The path of a connection: whether it may use raw packets, and how it follows the routes of its
 * host.
 *
 * A connection has a data socket, raw packets, or both. Its route may forbid raw packets, lead to
 * another interface or change the MAC of the next hop. The functions here decide whether the
 * connection may use raw packets, and whether it has to end. They show the engine a new path by the
 * calls of the host, and the process of the engine chooses the port. For a connection that has to
 * end, they return the actions of the state machine, which usiw_cm_end.c carries out.
 */
#ifndef USIW_CM_PATH_H
#define USIW_CM_PATH_H

#include "usiw_cm_end_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- For hosts ---- */

/*
 * True if two ends on this host have no kind of port in common. @a, @b: their ports, USIW_CM_*. If
 * the ports of an end are not known (0), it counts as one that has any port.
 */
int usiw_cm_ports_differ(__u8 a, __u8 b);
/*
 * Returns the -errno with which connect and accept fail for a process that has no port but raw
 * packets. @not_packet: why it cannot use them. Returns 0 for USIW_NOT_PACKET_NONE.
 */
int usiw_cm_not_packet_errno(__u32 not_packet);

/* ---- The record that gives a connection to the engine ---- */

/*
 * Fills in @info, by which the engine gets a connection, from the parameters that both ends have
 * agreed on. The caller adds what depends on the path: MACs, hop limit, TOS, data_fd and flags.
 */
void usiw_cm_fill_info(struct usiw_conn_info *info, const struct usiw_cm_conn *c,
		       const struct usiw_cm_tuple *tuple);

/* ---- For usiw_cm_end.c. A returned __u32 is a mask of the actions that are due ---- */

/* Carries out INSTALL: gives the connection to the engine, or waits for the MAC of the next hop. */
__u32 usiw_cm_path_install(struct usiw_cm_end *end, __u64 now_us);
/* Handles the report of the process about its port: enum usiw_port_kind, enum usiw_port_why. */
__u32 usiw_cm_path_port(struct usiw_cm_end *end, __u32 port, __u32 why, __u64 now_us);
/* Looks up the route, which may have changed, and applies the result to the connection. */
__u32 usiw_cm_path_follow(struct usiw_cm_end *end, __u64 now_us);
/* Handles the deadlines end->move_us and end->resolve_us, if they have passed. */
__u32 usiw_cm_path_tick(struct usiw_cm_end *end, __u64 now_us);
/* Handles READY. The caller then passes it to the state machine. */
void usiw_cm_path_ready(struct usiw_cm_end *end);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_PATH_H */
