// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Kernel memory, arrays of pointers, numbers, search trees.
#include "state.h"

namespace {

struct Allocation {
  size_t size;
  std::string site;
  mem_cgroup* memcg;
};
std::map<const void*, Allocation> allocations;

std::deque<mem_cgroup> cgroups;
mem_cgroup* active;

mem_cgroup* cgroup_of(mm_struct* mm) {
  if (!mm->memcg) mm->memcg = &cgroups.emplace_back();
  return mm->memcg;
}

/// The cgroup that is charged for the next allocations; nullptr: none.
mem_cgroup* payer() {
  if (active) return active;
  if (mock::context.softirq || mock::in_worker() || !mock_current || !mock_current->mm) return nullptr;
  return cgroup_of(mock_current->mm);
}

/// The entries of a struct xarray; nullptr is a reserved index.
using Entries = std::map<unsigned long, void*>;
std::set<Entries*> arrays;

// Search trees are treaps: nearly as balanced as the kernel's red-black trees, and shorter to write.

/// All nodes that are in a tree.
std::set<const rb_node*> linked;

/// Returns the pointer by which the tree reaches @p node.
rb_node*& link_to(rb_root* tree, const rb_node* node) {
  return node->parent ? node->parent->child[node->parent->child[1] == node] : tree->rb_node;
}

/// Rotates the child of @p node on that side above @p node.
void rotate(rb_root* tree, rb_node* node, int side) {
  rb_node* child = node->child[side];
  link_to(tree, node) = child;
  child->parent = node->parent;
  node->child[side] = child->child[!side];
  if (node->child[side]) node->child[side]->parent = node;
  child->child[!side] = node;
  node->parent = child;
}

rb_node* next_of(rb_node* node) {
  if (node->child[1]) {
    for (node = node->child[1]; node->child[0];) node = node->child[0];
    return node;
  }
  while (node->parent && node->parent->child[1] == node) node = node->parent;
  return node->parent;
}

Entries& entries_of(xarray* xa) {
  if (!xa->entries) {
    auto* entries = new Entries;
    arrays.insert(entries);
    xa->entries = entries;
  }
  return *static_cast<Entries*>(xa->entries);
}

}  // namespace

namespace mock {

void reset_memory() {
  mock_on_alloc = nullptr;
  linked.clear();
  for (const auto& [p, unused] : allocations) free(const_cast<void*>(p));
  allocations.clear();
  cgroups.clear();
  active = nullptr;
  for (Entries* entries : arrays) entries->clear();
}

}  // namespace mock

extern "C" {

void (*mock_on_alloc)(void);
unsigned int mock_unaccounted;
const char* mock_unaccounted_site;

static void note_account(gfp_t flags, const char* site) {
  if ((flags & (GFP_KERNEL | __GFP_ACCOUNT)) != GFP_KERNEL) return;
  mock_unaccounted++;
  mock_unaccounted_site = site;
}
/// A new entry may need a node, which the kernel allocates by the array's flags.
static void note_node(const xarray* xa, gfp_t flags, const char* site) {
  note_account(xa->account ? flags | __GFP_ACCOUNT : flags & ~__GFP_ACCOUNT, site);
}

void* mock_alloc(size_t size, gfp_t flags, bool zero, const char* site) {
  if (mock_on_alloc) mock_on_alloc();
  if (flags & GFP_KERNEL) mock_might_sleep(site);
  // The kernel delays the caller while such a cgroup is above its limits, or reclaims its memory.
  if (flags & GFP_KERNEL && active) mock_violation("waiting for a cgroup that is not the caller's");
  note_account(flags, site);
  if (mock_fails(MOCK_ALLOC, site)) return nullptr;
  void* p = malloc(size);
  memset(p, zero ? 0 : 0xa5, size);  // a use of uninitialised memory shows
  mem_cgroup* memcg = flags & __GFP_ACCOUNT ? payer() : nullptr;
  if (memcg) memcg->charged += size;
  allocations[p] = {size, site, memcg};
  return p;
}

struct mem_cgroup* get_mem_cgroup_from_mm(struct mm_struct* mm) {
  if (!mm) return nullptr;
  mem_cgroup* memcg = cgroup_of(mm);
  memcg->refs++;
  return memcg;
}

void mem_cgroup_put(struct mem_cgroup* memcg) {
  if (memcg && --memcg->refs < 0) mock_violation("mem_cgroup_put without get");
}

struct mem_cgroup* set_active_memcg(struct mem_cgroup* memcg) {
  if (memcg && !memcg->refs) mock_violation("a cgroup is charged to which there is no reference");
  return std::exchange(active, memcg);
}

size_t mock_charged(const struct mm_struct* mm) { return mm->memcg ? mm->memcg->charged : 0; }

int mock_memcg_refs(void) {
  int refs = 0;
  for (const mem_cgroup& memcg : cgroups) refs += memcg.refs;
  return refs;
}

void* mock_memdup(const void* from, size_t size, gfp_t flags, const char* site) {
  void* p = mock_alloc(size, flags, false, site);
  if (p) memcpy(p, from, size);
  return p;
}

void* mock_tracked(void* p, size_t size, const char* site) {
  allocations[p] = {size, site, nullptr};
  return p;
}

void kfree(const void* p) {
  if (!p) return;
  const auto found = allocations.find(p);
  if (found == allocations.end()) {
    mock_violation("kfree of what was not allocated");
    return;
  }
  const auto* begin = static_cast<const char*>(p);
  if (mock::work_within(begin, begin + found->second.size))
    mock_violation("memory of %s is freed while work in it is queued", found->second.site.c_str());
  const auto node = linked.lower_bound(reinterpret_cast<const rb_node*>(begin));
  if (node != linked.end() && reinterpret_cast<const char*>(*node) < begin + found->second.size)
    mock_violation("memory of %s is freed while a node in it is in a tree", found->second.site.c_str());
  for (const mock_lock* lock : mock::held) {
    const auto* at = reinterpret_cast<const char*>(lock);
    if (at >= begin && at < begin + found->second.size)
      mock_violation("memory is freed while %s in it is held", lock->name);
  }
  if (found->second.memcg) found->second.memcg->charged -= found->second.size;
  allocations.erase(found);
  free(const_cast<void*>(p));
}

void vfree(const void* p) {
  mock_might_sleep("vfree");
  kfree(p);
}

unsigned int mock_allocations(void) { return allocations.size(); }

const char* mock_first_allocation(void) {
  return allocations.empty() ? "" : allocations.begin()->second.site.c_str();
}

// ---- Search trees ----

void rb_add(struct rb_node* node, struct rb_root* tree, bool (*less)(struct rb_node*, const struct rb_node*)) {
  static u32 random = 1;
  rb_node *parent = nullptr, **at = &tree->rb_node;
  for (; *at; mock_walked++) {
    parent = *at;
    at = &parent->child[!less(node, parent)];
  }
  random = random * 1664525 + 1013904223;
  *node = {tree, parent, {nullptr, nullptr}, random};
  if (!linked.insert(node).second) mock_violation("rb_add of what is in a tree");
  *at = node;
  while (node->parent && node->parent->priority < node->priority)
    rotate(tree, node->parent, node->parent->child[1] == node);
}

struct rb_node* rb_find_first(const void* key, const struct rb_root* tree,
                              int (*cmp)(const void*, const struct rb_node*)) {
  rb_node* match = nullptr;
  for (rb_node* at = tree->rb_node; at; mock_walked++) {
    const int order = cmp(key, at);
    if (!order) match = at;
    at = at->child[order > 0];
  }
  return match;
}

struct rb_node* rb_next_match(const void* key, struct rb_node* node, int (*cmp)(const void*, const struct rb_node*)) {
  rb_node* next = next_of(node);
  if (next) mock_walked++;
  return next && !cmp(key, next) ? next : nullptr;
}

void rb_erase(struct rb_node* node, struct rb_root* tree) {
  if (!linked.erase(node) || node->tree != tree) {
    mock_violation("rb_erase of what is not in that tree");
    return;
  }
  while (node->child[0] || node->child[1])
    rotate(tree, node, !node->child[0] || (node->child[1] && node->child[1]->priority > node->child[0]->priority));
  link_to(tree, node) = nullptr;
}

// ---- xarray ----

void xa_init_flags(struct xarray* xa, gfp_t flags) {
  xa->entries = nullptr;
  xa->from_one = false;
  xa->account = (flags & XA_FLAGS_ACCOUNT) != 0;
}

int xa_alloc_cyclic(struct xarray* xa, u32* id, void* entry, struct xa_limit limit, u32* next, gfp_t flags) {
  if (flags & GFP_KERNEL) mock_might_sleep("xa_alloc_cyclic");
  note_node(xa, flags, "xa_alloc_cyclic");
  if (mock_fails(MOCK_ALLOC, "xa_alloc_cyclic")) return -ENOMEM;
  Entries& entries = entries_of(xa);
  const u32 first = std::max<u32>(limit.min, xa->from_one);
  u32 at = std::max(*next, first);
  for (u64 tries = 0; tries <= u64{limit.max} - first; tries++, at++) {
    if (at > limit.max) at = first;
    if (entries.count(at)) continue;
    entries[at] = entry;
    *id = at;
    *next = at + 1;
    return 0;
  }
  return -EBUSY;
}

void* xa_store(struct xarray* xa, unsigned long index, void* entry, gfp_t flags) {
  if (flags & GFP_KERNEL) mock_might_sleep("xa_store");
  note_node(xa, flags, "xa_store");
  if (mock_fails(MOCK_ALLOC, "xa_store")) return ERR_PTR(-ENOMEM);
  return std::exchange(entries_of(xa)[index], entry);
}

void* xa_load(struct xarray* xa, unsigned long index) {
  const Entries& entries = entries_of(xa);
  const auto found = entries.find(index);
  return found == entries.end() ? nullptr : found->second;
}

void* xa_erase(struct xarray* xa, unsigned long index) {
  void* entry = xa_load(xa, index);
  if (!entries_of(xa).erase(index)) mock_violation("xa_erase of a free index");
  return entry;
}

bool xa_empty(const struct xarray* xa) {
  return !xa->entries || static_cast<const Entries*>(xa->entries)->empty();
}

void xa_destroy(struct xarray* xa) {
  auto* entries = static_cast<Entries*>(xa->entries);
  arrays.erase(entries);
  delete entries;
  xa->entries = nullptr;
}

int xa_err(void* entry) { return IS_ERR(entry) ? PTR_ERR(entry) : 0; }

/// Most of its memory is bitmaps, which the flags of the caller account.
void ida_init(struct ida* ida) { xa_init_flags(&ida->numbers, XA_FLAGS_ACCOUNT); }

int ida_alloc_range(struct ida* ida, unsigned int min, unsigned int max, gfp_t flags) {
  u32 id, next = 0;
  note_account(flags, "ida_alloc_range");
  const int ret = xa_alloc_cyclic(&ida->numbers, &id, ida, {max, min}, &next, flags);
  return ret ? ret : static_cast<int>(id);
}

void ida_free(struct ida* ida, unsigned int id) { xa_erase(&ida->numbers, id); }

void ida_destroy(struct ida* ida) {
  if (!xa_empty(&ida->numbers)) mock_violation("ida_destroy with numbers in use");
  xa_destroy(&ida->numbers);
}

}  // extern "C"
