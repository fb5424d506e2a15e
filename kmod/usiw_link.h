/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * `rdma link add`: registration of a device, and its attributes.
 */
#ifndef USIW_LINK_H
#define USIW_LINK_H

#include <rdma/ib_verbs.h>

struct net_device;

int usiw_link_init(void);
void usiw_link_exit(void);
int usiw_newlink(const char *ibdev_name, struct net_device *netdev);
int usiw_query_device(struct ib_device *ibdev, struct ib_device_attr *attr, struct ib_udata *udata);
int usiw_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr);

#endif /* USIW_LINK_H */
