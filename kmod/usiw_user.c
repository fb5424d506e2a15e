// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Users who listen, identified by their uid in a network namespace, and the limit of their orphans.
 *
 * A request may outlive its listener, because the program may have received it and may still accept
 * it. Such an orphan has no slot in a backlog, so orphans need a limit of their own. If all users
 * of a namespace shared the limit, one of them could use it up. The requests of the others would
 * then end with their listeners. So orphans are counted by user. The invariant: the orphans of one
 * user never make a request of another user end.
 *
 * rdma_cm repeats old listeners for a new device, in the process that adds the device. The user of
 * such a listener is unknown, so each has its own struct usiw_user, with a smaller limit.
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/netns/hash.h>

#include "usiw_user.h"

/**
 * struct usiw_user - user who listens
 * @node:	entry in the table, unless @alone
 * @refs:	references of listeners and orphans
 * @net:	network namespace. @net and @uid are the key of the table
 * @uid:	user id
 * @alone:	the object belongs to one listener, whose user is unknown, and is not in the table
 * @orphans:	number of requests without a listener
 */
struct usiw_user {
	struct hlist_node node;
	refcount_t refs;
	struct net *net;
	kuid_t uid;
	bool alone;
	atomic_t orphans;
};

#define USIW_USER_HASH_BITS	6

static DEFINE_HASHTABLE(usiw_users, USIW_USER_HASH_BITS);
static DEFINE_MUTEX(usiw_users_mutex);	/* guards the table */

static u32 usiw_user_hash(const struct net *net, kuid_t uid)
{
	return jhash_2words(net_hash_mix(net), __kuid_val(uid), 0);
}

/*
 * Returns the user with the namespace and uid of @made, with a reference. If the table has none
 * yet, adds and returns @made itself.
 */
static struct usiw_user *usiw_user_find_or_add(struct usiw_user *made)
{
	u32 hash = usiw_user_hash(made->net, made->uid);
	struct usiw_user *user;

	lockdep_assert_held(&usiw_users_mutex);
	hash_for_each_possible(usiw_users, user, node, hash) {
		if (net_eq(user->net, made->net) && uid_eq(user->uid, made->uid)) {
			refcount_inc(&user->refs);
			return user;
		}
	}
	hash_add(usiw_users, &made->node, hash);
	return made;
}

/*
 * Returns the user with a reference, or NULL if there is no memory. If @alone is true, @uid may be
 * that of another user, so the result is a new object for one listener. The caller holds a device
 * of @net for as long as it has the reference. May sleep.
 */
struct usiw_user *usiw_user_get(struct net *net, kuid_t uid, bool alone)
{
	struct usiw_user *made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT), *user;

	if (!made)
		return NULL;
	refcount_set(&made->refs, 1);
	made->net = net;
	made->uid = uid;
	made->alone = alone;
	if (alone)
		return made;
	mutex_lock(&usiw_users_mutex);
	user = usiw_user_find_or_add(made);
	mutex_unlock(&usiw_users_mutex);
	if (user != made)
		kfree(made);
	return user;
}

/* Drops a reference to @user. May sleep. */
void usiw_user_put(struct usiw_user *user)
{
	if (!refcount_dec_and_mutex_lock(&user->refs, &usiw_users_mutex))
		return;
	if (!user->alone)
		hash_del(&user->node);
	mutex_unlock(&usiw_users_mutex);
	kfree(user);
}

/*
 * Adds an orphan and returns true, if @user has fewer than its limit. The orphan then has a
 * reference to @user, which usiw_user_drop_orphan() drops.
 */
bool usiw_user_adopt_orphan(struct usiw_user *user)
{
	int most = user->alone ? USIW_MAX_ORPHANS_ALONE : USIW_MAX_ORPHANS;

	if (!atomic_add_unless(&user->orphans, 1, most))
		return false;
	refcount_inc(&user->refs);
	return true;
}

/* Removes an orphan that has been accepted or has ended, and its reference to @user. May sleep. */
void usiw_user_drop_orphan(struct usiw_user *user)
{
	atomic_dec(&user->orphans);
	usiw_user_put(user);
}
