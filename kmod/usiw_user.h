/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Users who listen, and the limit of their orphans. An orphan is a request that has outlived its
 * listener and may still be accepted.
 */
#ifndef USIW_USER_H
#define USIW_USER_H

#include <linux/types.h>
#include <linux/uidgid.h>

struct net;
struct usiw_user;

/*
 * Maximum number of orphans: of a user in a network namespace, and (ALONE) of a listener whose user
 * is unknown.
 */
#define USIW_MAX_ORPHANS	256
#define USIW_MAX_ORPHANS_ALONE	16

struct usiw_user *usiw_user_get(struct net *net, kuid_t uid, bool alone);
void usiw_user_put(struct usiw_user *user);
bool usiw_user_adopt_orphan(struct usiw_user *user);
void usiw_user_drop_orphan(struct usiw_user *user);

#endif /* USIW_USER_H */
