/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A digital search tree whose entries contain their own nodes. Private to cm/.
 *
 * The key is a hash. A node at depth d shares the first d bits of its hash with all nodes below it.
 * A peer must not be able to predict the hash. Then forged addresses cannot make the tree much
 * deeper than the logarithm of the number of nodes. The tree needs no memory but the nodes, and no
 * rotations.
 *
 * Several nodes may have the same hash, so a search compares the entry of each node that it visits:
 *
 *	for (node = tree->root; node; node = usiw_cm_tree_child(node, hash, depth++))
 */
#ifndef USIW_CM_TREE_H
#define USIW_CM_TREE_H

#include "../uapi/usiw_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct usiw_cm_node - an entry's node in a tree
 * @parent:	NULL at the root
 * @child:	subtrees: [0] with the next bit of the hash clear, [1] with that bit set
 * @hash:	set by usiw_cm_tree_add()
 */
struct usiw_cm_node {
	struct usiw_cm_node *parent, *child[2];
	__u32 hash;
};

/* A tree; zeroed (empty) at first. */
struct usiw_cm_tree {
	struct usiw_cm_node *root;
};

/*
 * Returns the index of the child under which @hash is found, for a node at @depth: a bit of @hash.
 */
static inline int usiw_cm_tree_side(__u32 hash, unsigned int depth)
{
	return hash >> depth % 32 & 1;
}

static inline struct usiw_cm_node *usiw_cm_tree_child(const struct usiw_cm_node *node, __u32 hash,
						      unsigned int depth)
{
	return node->child[usiw_cm_tree_side(hash, depth)];
}

void usiw_cm_tree_add(struct usiw_cm_tree *tree, struct usiw_cm_node *node, __u32 hash);
void usiw_cm_tree_remove(struct usiw_cm_tree *tree, struct usiw_cm_node *node);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_TREE_H */
