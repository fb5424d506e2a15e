// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Adds nodes to a digital search tree, and removes them; see usiw_cm_tree.h. */
#ifdef __KERNEL__
#include <linux/stddef.h>
#else
#include <stddef.h>
#endif

#include "usiw_cm_tree.h"

/* Returns the pointer in the tree that leads to @node. */
static struct usiw_cm_node **pointer_to(struct usiw_cm_tree *tree, struct usiw_cm_node *node)
{
	if (!node->parent)
		return &tree->root;
	return &node->parent->child[node->parent->child[1] == node];
}

void usiw_cm_tree_add(struct usiw_cm_tree *tree, struct usiw_cm_node *node, __u32 hash)
{
	struct usiw_cm_node **at = &tree->root;
	unsigned int depth = 0;

	node->hash = hash;
	node->parent = NULL;
	node->child[0] = NULL;
	node->child[1] = NULL;
	while (*at) {
		node->parent = *at;
		at = &node->parent->child[usiw_cm_tree_side(hash, depth++)];
	}
	*at = node;
}

/*
 * Removes @node, and puts a leaf from below it in its place. All nodes below @node share the hash
 * bits that lead to @node, so any leaf fits there.
 */
void usiw_cm_tree_remove(struct usiw_cm_tree *tree, struct usiw_cm_node *node)
{
	struct usiw_cm_node *leaf = node;
	int side;

	while (leaf->child[0] || leaf->child[1])
		leaf = leaf->child[!leaf->child[0]];
	*pointer_to(tree, leaf) = NULL;
	if (leaf == node)
		return;
	leaf->parent = node->parent;
	*pointer_to(tree, node) = leaf;
	for (side = 0; side < 2; side++) {
		leaf->child[side] = node->child[side];
		if (leaf->child[side])
			leaf->child[side]->parent = leaf;
	}
}
