/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What happens to the netdevs below the devices.
 */
#ifndef USIW_NETDEV_H
#define USIW_NETDEV_H

#include "usiw_device.h"

struct net_device;
struct work_struct;

/* Port events wait this long, ms: see usiw_port_work(). */
#define USIW_PORT_DELAY_MS	50

/* Neighbour updates are gathered for this long, ms. */
#define USIW_NEIGH_DELAY_MS	10

int usiw_netdev_init(void);
void usiw_netdev_exit(void);
void usiw_netdev_count(struct net_device *netdev, enum usiw_kcounter counter);
void usiw_neigh_work(struct work_struct *work);
void usiw_port_work(struct work_struct *work);

#endif /* USIW_NETDEV_H */
