/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Receiver of the datagrams that reach the module's socket of a port. */
#ifndef USIW_RX_H
#define USIW_RX_H

#include "usiw_sock.h"

/* Maximum number of datagrams of a port that wait for its worker. */
#define USIW_MAX_RX_QUEUE	512

/* Maximum number of datagrams that the worker handles before it lets other work run. */
#define USIW_RX_BURST		64

/* Minimum interval, ms, at which ICMP makes a connection look up its route. */
#define USIW_ICMP_MS		20

extern const struct usiw_sock_ops usiw_rx_ops;

#endif /* USIW_RX_H */
