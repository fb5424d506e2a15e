/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * State that the devices of a network namespace share. usiw_device.c allocates it.
 */
#ifndef USIW_NET_H
#define USIW_NET_H

#include "../cm/usiw_cm_admission.h"

struct net;

/**
 * struct usiw_net - state of a network namespace
 * @admission:	space for REQs that all listeners of the namespace share; its counts are atomic
 */
struct usiw_net {
	struct usiw_cm_admission_net admission;
};

struct usiw_net *usiw_net(struct net *net);

#endif /* USIW_NET_H */
