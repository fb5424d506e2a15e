/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * `rdma link add`: registration of a device, and its attributes.
 */
#ifndef USIW_LINK_H
#define USIW_LINK_H

struct net_device;

int usiw_link_init(void);
void usiw_link_exit(void);
int usiw_newlink(const char *ibdev_name, struct net_device *netdev);

#endif /* USIW_LINK_H */
