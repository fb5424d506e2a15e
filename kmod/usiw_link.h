/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Creation of a device by `rdma link add`, and its attributes. */
#ifndef USIW_LINK_H
#define USIW_LINK_H

struct ib_client;
struct net_device;

extern struct ib_client usiw_client;
int usiw_newlink(const char *ibdev_name, struct net_device *netdev);

#endif /* USIW_LINK_H */
