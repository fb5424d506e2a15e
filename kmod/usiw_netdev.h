/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Handles notifications about netdevs: link, name, MAC, MTU, addresses and neighbours.
 */
#ifndef USIW_NETDEV_H
#define USIW_NETDEV_H

#include "usiw_device.h"

struct net_device;
struct work_struct;

/* Time from a change of the link to the port event, ms: see usiw_port_work(). */
#define USIW_PORT_DELAY_MS	50

/* Time, ms, for which neighbour updates are collected before connections check their next hops. */
#define USIW_NEIGH_DELAY_MS	10

int usiw_netdev_init(void);
void usiw_netdev_exit(void);
void usiw_netdev_count(struct net_device *netdev, enum usiw_kcounter counter);
void usiw_neigh_work(struct work_struct *work);
void usiw_port_work(struct work_struct *work);

#endif /* USIW_NETDEV_H */
