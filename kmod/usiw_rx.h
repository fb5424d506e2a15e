/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Datagrams that reach the module's socket of a port.
 */
#ifndef USIW_RX_H
#define USIW_RX_H

#include "usiw_sock.h"

/* Received handshake datagrams that wait for the worker, per socket. */
#define USIW_MAX_RX_QUEUE	512

/* Datagrams that the worker takes before it lets others run. */
#define USIW_RX_BURST		64

/* ICMP about the path of a connection is looked at once in this time, ms. */
#define USIW_ICMP_MS		20

extern const struct usiw_sock_ops usiw_rx_ops;

#endif /* USIW_RX_H */
