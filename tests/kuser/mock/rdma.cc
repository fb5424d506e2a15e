// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// ib_core, processes, files.
#include <algorithm>

#include "state.h"

namespace {

ib_device* devices;
std::map<int, file*> descriptors;  ///< nullptr: reserved
std::map<std::string, u64> open_nest, driver_attrs;
bool nest_is_open;
ib_uobject* uobjects;

const uverbs_object_tree* find_object(const ib_device* dev, u32 object) {
  for (const uapi_definition* def = dev->driver_def; def->tree; def++)
    if (def->object == object) return def->tree;
  return nullptr;
}

void destroy_uobject(ib_uobject* uobj, rdma_remove_reason why) {
  for (ib_uobject** at = &uobjects; *at; at = &(*at)->next) {
    if (*at != uobj) continue;
    *at = uobj->next;
    break;
  }
  uobj->live = false;
  uobj->mock_type->destroy(uobj, why);
}

void unlink_device(ib_device* dev) {
  for (ib_device** at = &devices; *at; at = &(*at)->next) {
    if (*at != dev) continue;
    *at = dev->next;
    return;
  }
}

}  // namespace

namespace mock {

void reset_rdma() {
  devices = nullptr;
  uobjects = nullptr;
  for (auto& [fd, file] : descriptors) delete file;
  descriptors.clear();
  mock_link_ops = nullptr;
  mock_on_copy_to_user = mock_on_register = mock_on_registered = nullptr;
  mock_events = 0;
  open_nest.clear();
  driver_attrs.clear();
  nest_is_open = false;
  mock_last_event = {};
}

}  // namespace mock

extern "C" {

struct task_struct* mock_current;
struct rdma_link_ops* mock_link_ops;
struct ib_event mock_last_event;
unsigned int mock_events;
void (*mock_on_copy_to_user)(void);
void (*mock_on_register)(void);
void (*mock_on_registered)(void);

// ---- Processes ----

void mmgrab(struct mm_struct* mm) { mm->grabbed++; }

void mmdrop(struct mm_struct* mm) {
  if (--mm->grabbed < 0) mock_violation("mmdrop without mmgrab");
}

int mmap_read_lock_killable(struct mm_struct* mm) {
  mock_might_sleep("mmap_read_lock");
  if (mock_fails(MOCK_CORE, "mmap_read_lock")) return -EINTR;
  mm->readers++;
  return 0;
}

void mmap_read_unlock(struct mm_struct* mm) {
  if (--mm->readers < 0) mock_violation("mmap_read_unlock without lock");
}

struct vm_area_struct* find_vma(struct mm_struct* mm, unsigned long at) {
  if (!mm->readers) mock_violation("find_vma without the mmap lock");
  for (vm_area_struct& area : mm->areas)
    if (area.vm_end > at) return &area;
  return nullptr;
}

int mmap_write_lock_killable(struct mm_struct* mm) {
  mock_might_sleep("mmap_write_lock");
  if (mock_fails(MOCK_CORE, "mmap_write_lock")) return -EINTR;
  if (mm->readers || mm->written) mock_violation("mmap_write_lock: deadlock");
  mm->written = true;
  return 0;
}

void mmap_write_unlock(struct mm_struct* mm) {
  if (!mm->written) mock_violation("mmap_write_unlock without lock");
  mm->written = false;
}

struct mmu_notifier* mmu_notifier_get_locked(const struct mmu_notifier_ops* ops, struct mm_struct* mm) {
  if (!mm->written) mock_violation("mmu_notifier_get_locked without the mmap lock");
  if (atomic_read(&mm->mm_users) <= 0) mock_violation("a notifier of memory that nobody uses");
  if (mm->notifier) {
    mm->notifier->users++;
    return mm->notifier;
  }
  auto* notifier = ops->alloc_notifier(mm);
  if (IS_ERR(notifier)) return notifier;
  if (mock_fails(MOCK_CORE, "mmu_notifier_get")) {  // a signal is pending
    ops->free_notifier(notifier);
    return static_cast<mmu_notifier*>(ERR_PTR(-EINTR));
  }
  notifier->ops = ops;
  notifier->mm = mm;
  notifier->users = 1;
  return mm->notifier = notifier;
}

void mmu_notifier_put(struct mmu_notifier* notifier) {
  if (--notifier->users) return;
  if (notifier->mm->notifier == notifier) notifier->mm->notifier = nullptr;
  call_rcu(&notifier->rcu, [](struct rcu_head* rcu) {
    auto* gone = container_of(rcu, struct mmu_notifier, rcu);
    gone->ops->free_notifier(gone);
  });
}

void mmu_notifier_synchronize(void) {
  mock_might_sleep("mmu_notifier_synchronize");
  mock_grace_period();
}

void mock_mm_exit(struct mm_struct* mm) {
  atomic_set(&mm->mm_users, 0);
  auto* notifier = mm->notifier;
  if (!notifier) return;
  notifier->ops->release(notifier, mm);
  mm->notifier = nullptr;
}

struct pid* get_task_pid(struct task_struct* task, enum pid_type) {
  task->pid_refs++;
  return reinterpret_cast<pid*>(task);
}

void put_pid(struct pid* pid) {
  if (--reinterpret_cast<task_struct*>(pid)->pid_refs < 0) mock_violation("put_pid without get");
}

struct task_struct* pid_task(struct pid* pid, enum pid_type) {
  mock_check_rcu("pid_task");
  auto* task = reinterpret_cast<task_struct*>(pid);
  return task->reaped ? nullptr : task;
}

int mock_modules;
void __module_get(struct module*) { mock_modules++; }
void module_put(struct module*) {
  if (--mock_modules < 0) mock_violation("module_put without get");
}

// ---- Files ----

loff_t noop_llseek(struct file*, loff_t, int) { return 0; }
void poll_wait(struct file*, wait_queue_head_t*, poll_table*) {}

struct file* anon_inode_getfile(const char*, const struct file_operations* ops, void* priv, int flags) {
  mock_might_sleep("anon_inode_getfile");
  if (mock_fails(MOCK_FILE, "anon_inode_getfile")) return static_cast<file*>(ERR_PTR(-ENFILE));
  return new file{ops, priv, static_cast<unsigned>(flags)};
}

void fput(struct file* file) {
  file->f_op->release(nullptr, file);
  delete file;
}

int get_unused_fd_flags(unsigned int) {
  if (mock_fails(MOCK_FILE, "get_unused_fd_flags")) return -EMFILE;
  int fd = 3;
  while (descriptors.count(fd)) fd++;
  descriptors[fd] = nullptr;
  return fd;
}

void put_unused_fd(unsigned int fd) {
  if (!descriptors.count(fd) || descriptors[fd]) mock_violation("put_unused_fd of a file in use");
  descriptors.erase(fd);
}

void fd_install(unsigned int fd, struct file* file) {
  if (!descriptors.count(fd) || descriptors[fd]) mock_violation("fd_install on what was not reserved");
  descriptors[fd] = file;
}

struct file* mock_file(int fd) { return descriptors.count(fd) ? descriptors[fd] : nullptr; }

void mock_close(int fd) {
  file* open = mock_file(fd);
  descriptors.erase(fd);
  if (open) fput(open);
}

int mock_open_fds(void) { return descriptors.size(); }

unsigned long copy_to_user(void* to, const void* from, unsigned long n) {
  mock_might_sleep("copy_to_user");
  if (mock_on_copy_to_user) mock_on_copy_to_user();
  if (mock_fails(MOCK_COPY, "copy_to_user")) return n;
  memcpy(to, from, n);
  return 0;
}

int ib_copy_from_udata(void* to, struct ib_udata* udata, size_t n) {
  mock_might_sleep("ib_copy_from_udata");
  if (mock_fails(MOCK_COPY, "ib_copy_from_udata")) return -EFAULT;
  if (n > udata->inlen) mock_violation("driver data read beyond its end");
  if (n != 0) memcpy(to, udata->inbuf, std::min(n, udata->inlen));
  return 0;
}

int ib_copy_to_udata(struct ib_udata* udata, void* from, size_t n) {
  mock_might_sleep("ib_copy_to_udata");
  if (mock_on_copy_to_user) mock_on_copy_to_user();
  if (mock_fails(MOCK_COPY, "ib_copy_to_udata")) return -EFAULT;
  if (n > udata->outlen) mock_violation("driver data written beyond its end");
  if (n != 0) memcpy(udata->outbuf, from, std::min(n, udata->outlen));
  return 0;
}

bool ib_is_udata_cleared(struct ib_udata* udata, size_t offset, size_t len) {
  mock_might_sleep("ib_is_udata_cleared");
  if (mock_fails(MOCK_COPY, "ib_is_udata_cleared")) return false;
  if (offset + len > udata->inlen) mock_violation("driver data read beyond its end");
  const auto* bytes = static_cast<const u8*>(udata->inbuf) + offset;
  return std::all_of(bytes, bytes + len, [](u8 byte) { return byte == 0; });
}

// ---- Devices ----

struct ib_device* mock_ib_alloc(size_t size) {
  auto* dev = static_cast<ib_device*>(kzalloc(size, GFP_KERNEL));
  if (!dev) return nullptr;
  dev->dev.refs = 1;
  dev->coredev.owner = dev;
  write_pnet(&dev->coredev.rdma_net, &init_net);
  return dev;
}

void get_device(struct device* dev) { dev->refs++; }

void put_device(struct device* dev) {
  if (!--dev->refs) kfree(container_of(dev, struct ib_device, dev));
}

void ib_dealloc_device(struct ib_device* dev) {
  if (dev->ops && dev->ops->dealloc_driver) dev->ops->dealloc_driver(dev);
  put_device(&dev->dev);
}

int ib_device_set_netdev(struct ib_device* dev, struct net_device* netdev, u32) {
  if (mock_fails(MOCK_CORE, "ib_device_set_netdev")) return -ENOMEM;
  dev->mock_netdev = netdev;
  return 0;
}

int ib_register_device(struct ib_device* dev, const char* name, void*) {
  ib_port_immutable immutable{};
  ib_device_attr attr;
  ib_udata none{};
  mock_might_sleep("ib_register_device");
  if (mock_fails(MOCK_CORE, "ib_register_device")) return -ENFILE;
  strscpy(dev->dev.name, name, sizeof(dev->dev.name));
  dev->ops->query_device(dev, &attr, &none);
  dev->ops->get_port_immutable(dev, 1, &immutable);
  if (mock_on_register) mock_on_register();
  dev->registered = true;
  dev->next = devices;
  devices = dev;
  mock_give_to_client(dev);
  if (mock_on_registered) {
    mock::held_around = mock::held.size();
    mock_on_registered();
    mock::held_around = 0;
  }
  return 0;
}

struct ib_device* ib_device_get_by_netdev(struct net_device* netdev, enum rdma_driver_id) {
  for (ib_device* dev = devices; dev; dev = dev->next) {
    if (dev->mock_netdev != netdev || dev->unregistering) continue;
    dev->refs++;
    return dev;
  }
  return nullptr;
}

struct ib_device* mock_device(const char* netdev) {
  for (ib_device* dev = devices; dev; dev = dev->next)
    if (!strcmp(dev->mock_netdev->name, netdev)) return dev;
  return nullptr;
}

bool ib_device_try_get(struct ib_device* dev) {
  if (!dev->registered || dev->unregistering) return false;
  dev->refs++;
  return true;
}

void iw_destroy_cm_id(struct iw_cm_id*) { mock_violation("iw_destroy_cm_id is for the users of cm_ids"); }

void ib_device_put(struct ib_device* dev) {
  if (--dev->refs < 0) mock_violation("ib_device_put without get");
}

static struct ib_client* own_client;

void mock_give_to_client(struct ib_device* dev) {
  if (own_client && own_client->add(dev) != 0) mock_violation("the module's client does not take its device");
}

void mock_take_from_client(struct ib_device* dev) {
  if (own_client) own_client->remove(dev, nullptr);
}

int ib_register_client(struct ib_client* client) {
  mock_might_sleep("ib_register_client");
  if (mock_fails(MOCK_CORE, "ib_register_client")) return -ENOMEM;
  own_client = client;
  return 0;
}

void ib_unregister_client(struct ib_client*) {
  mock_might_sleep("ib_unregister_client");
  own_client = nullptr;
}

void mock_unregister(struct ib_device* dev) {
  mock_take_from_client(dev);
  unlink_device(dev);
  if (dev->refs) mock_violation("%d references of %s are left", dev->refs, dev->dev.name);
  ib_dealloc_device(dev);
}

void ib_unregister_device_queued(struct ib_device* dev) { dev->unregistering = true; }

bool mock_unregister_queued(void) {
  for (ib_device* dev = devices; dev; dev = dev->next) {
    if (!dev->unregistering) continue;
    mock_unregister(dev);
    return true;
  }
  return false;
}

void ib_unregister_device_and_put(struct ib_device* dev) {
  mock_might_sleep("ib_unregister_device_and_put");
  ib_device_put(dev);
  mock_unregister(dev);
}

void ib_unregister_driver(enum rdma_driver_id) {
  mock_might_sleep("ib_unregister_driver");
  while (devices) mock_unregister(devices);
}

void ib_dispatch_event(const struct ib_event* event) {
  mock_last_event = *event;
  mock_events++;
}

void rdma_link_register(struct rdma_link_ops* ops) { mock_link_ops = ops; }
void rdma_link_unregister(struct rdma_link_ops*) { mock_link_ops = nullptr; }

// ---- Shared pages, statistics, methods ----

int rdma_user_mmap_entry_insert(struct ib_ucontext* c, struct rdma_user_mmap_entry* e, size_t) {
  mock_might_sleep("rdma_user_mmap_entry_insert");
  if (mock_fails(MOCK_CORE, "rdma_user_mmap_entry_insert")) return -ENOMEM;
  *e = {c, 0x10000, 1};
  return 0;
}

struct rdma_user_mmap_entry* rdma_user_mmap_entry_get(struct ib_ucontext*, struct vm_area_struct* vma) {
  auto* e = reinterpret_cast<rdma_user_mmap_entry*>(vma->vm_pgoff);
  if (e) e->refs++;
  return e;
}

void rdma_user_mmap_entry_put(struct rdma_user_mmap_entry* e) {
  if (!--e->refs) e->ucontext->device->ops->mmap_free(e);
}

void rdma_user_mmap_entry_remove(struct rdma_user_mmap_entry* e) { rdma_user_mmap_entry_put(e); }
u64 rdma_user_mmap_get_offset(const struct rdma_user_mmap_entry* e) { return e->mock_offset; }

int vm_insert_page(struct vm_area_struct*, unsigned long, struct page* page) {
  if (mock_fails(MOCK_CORE, "vm_insert_page")) return -ENOMEM;
  return page ? 0 : -EINVAL;
}

struct rdma_hw_stats* rdma_alloc_hw_stats_struct(const struct rdma_stat_desc* d, int n, unsigned long) {
  auto* stats = static_cast<rdma_hw_stats*>(kzalloc(sizeof(rdma_hw_stats), GFP_KERNEL));
  if (stats) {
    stats->descs = d;
    stats->num_counters = n;
  }
  return stats;
}

struct nlattr* nla_nest_start(struct sk_buff*, int) {
  if (mock_fails(MOCK_CORE, "nla_nest_start")) return nullptr;
  nest_is_open = true;
  open_nest.clear();
  return reinterpret_cast<nlattr*>(&open_nest);
}

void nla_nest_end(struct sk_buff*, struct nlattr*) {
  nest_is_open = false;
  driver_attrs = open_nest;
}

void nla_nest_cancel(struct sk_buff*, struct nlattr*) {
  nest_is_open = false;
  driver_attrs.clear();
}

int rdma_nl_put_driver_u64(struct sk_buff*, const char* name, u64 value) {
  if (!nest_is_open || mock_fails(MOCK_CORE, "rdma_nl_put_driver_u64")) return -EMSGSIZE;
  open_nest[name] = value;
  return 0;
}

int rdma_nl_put_driver_string(struct sk_buff*, const char* name, const char* text) {
  if (!nest_is_open || mock_fails(MOCK_CORE, "rdma_nl_put_driver_string")) return -EMSGSIZE;
  open_nest[name] = reinterpret_cast<u64>(text);
  return 0;
}

const char* mock_driver_word(const char* name) {
  return driver_attrs.contains(name) ? reinterpret_cast<const char*>(driver_attrs[name]) : nullptr;
}

int mock_driver_attrs(const char* name, u64* value) {
  if (driver_attrs.contains(name)) *value = driver_attrs[name];
  return static_cast<int>(driver_attrs.size());
}

void* uverbs_attr_get_obj(const struct uverbs_attr_bundle* attrs, u16) { return attrs->mock_object; }

struct ib_uobject* uverbs_attr_get_uobject(const struct uverbs_attr_bundle* attrs, u16) {
  return static_cast<ib_uobject*>(attrs->mock_object);
}

int mock_uverbs_copy_from(void* to, size_t size, bool longer, const struct uverbs_attr_bundle* attrs, u16) {
  mock_might_sleep("uverbs_copy_from");
  if (mock_fails(MOCK_COPY, "uverbs_copy_from")) return -EFAULT;
  if (attrs->mock_len > size && !longer) return -EINVAL;
  memset(to, 0, size);
  memcpy(to, attrs->mock_data, std::min(size, attrs->mock_len));
  return 0;
}

int mock_uverbs_call(struct ib_device* dev, u32 object, struct uverbs_attr_bundle* attrs) {
  const uverbs_object_tree* tree = find_object(dev, object);
  if (!tree) return -EPROTONOSUPPORT;
  const uverbs_method_def& method = *tree->method;
  const auto* bytes = static_cast<const u8*>(attrs->mock_data);
  if (attrs->mock_len > method.data_size && method.zero_trailing &&
      !std::all_of(bytes + method.data_size, bytes + attrs->mock_len, [](u8 byte) { return byte == 0; }))
    return -EOPNOTSUPP;
  if (attrs->mock_len < method.data_min || (attrs->mock_len > method.data_size && !method.zero_trailing))
    return -EINVAL;
  return method.handler(attrs);
}

// ---- Objects with a descriptor ----

void uverbs_uobject_get(struct ib_uobject* uobj) { kref_get(&uobj->ref); }

void uverbs_uobject_put(struct ib_uobject* uobj) {
  kref_put(&uobj->ref, [](struct kref* k) { kfree(container_of(k, struct ib_uobject, ref)); });
}

int mock_uverbs_open(struct ib_ucontext* c, u32 object) {
  const uverbs_object_tree* tree = find_object(c->device, object);
  if (!tree || !tree->fd_type) return -EPROTONOSUPPORT;
  if (tree->fd_type->fops->release != &uverbs_uobject_fd_release) mock_violation("the core wants its own release");
  const int fd = get_unused_fd_flags(O_CLOEXEC);
  if (fd < 0) return fd;
  auto* uobj = static_cast<ib_uobject*>(kzalloc(tree->fd_type->size, GFP_KERNEL_ACCOUNT));
  file* opened = uobj ? anon_inode_getfile(tree->fd_type->name, tree->fd_type->fops, nullptr, tree->fd_type->flags)
                      : static_cast<file*>(ERR_PTR(-ENOMEM));
  if (IS_ERR(opened)) {
    kfree(uobj);
    put_unused_fd(fd);
    return PTR_ERR(opened);
  }
  uobj->context = c;
  uobj->mock_type = tree->fd_type;
  kref_init(&uobj->ref);
  uverbs_attr_bundle attrs{};
  attrs.mock_object = uobj;
  if (const int ret = tree->method->handler(&attrs); ret != 0) {
    fput(opened);
    put_unused_fd(fd);
    uverbs_uobject_put(uobj);
    return ret;
  }
  uobj->live = true;
  uobj->next = uobjects;
  uobjects = uobj;
  opened->private_data = uobj;
  fd_install(fd, opened);
  return fd;
}

int uverbs_uobject_fd_release(struct inode*, struct file* file) {
  auto* uobj = static_cast<ib_uobject*>(file->private_data);
  if (!uobj) return 0;
  if (uobj->live) destroy_uobject(uobj, RDMA_REMOVE_CLOSE);
  uverbs_uobject_put(uobj);
  return 0;
}

void mock_uverbs_cleanup(struct ib_ucontext* c, enum rdma_remove_reason why) {
  for (ib_uobject *at = uobjects, *next; at; at = next) {
    next = at->next;
    if (at->context == c) destroy_uobject(at, why);
  }
}

}  // extern "C"
