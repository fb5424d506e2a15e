/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * ib_core, iw_cm and uverbs as the driver sees them; and processes, files and modules.
 */
#ifndef MOCK_RDMA_H
#define MOCK_RDMA_H

#include "net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Processes ---- */
struct file;
struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags, vm_pgoff;
	struct file *vm_file;
};

#define VM_READ			1ul
#define VM_WRITE		2ul
#define VM_PFNMAP		0x400ul
#define VM_IO			0x4000ul

struct mm_struct {
	atomic_t mm_users;
	int grabbed;		/* by mmgrab() */
	int readers;		/* readers of the mmap lock */
	bool written;		/* it is held for writing */
	struct vm_area_struct areas[5];	/* by address; unused entries are zeros */
	struct mmu_notifier *notifier;
	struct mem_cgroup *memcg;	/* set when a caller first asks for it */
};

struct mmu_notifier_ops {
	void (*release)(struct mmu_notifier *notifier, struct mm_struct *mm);
	struct mmu_notifier *(*alloc_notifier)(struct mm_struct *mm);
	void (*free_notifier)(struct mmu_notifier *notifier);
};

/* Freed a grace period after the last user has gone. */
struct mmu_notifier {
	const struct mmu_notifier_ops *ops;
	struct mm_struct *mm;
	unsigned int users;
	struct rcu_head rcu;
};

struct signal_struct {
	unsigned int flags;
};

#define SIGNAL_GROUP_EXIT	4u
struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct nsproxy *nsproxy;
	bool killed;
	int pid_refs;
	bool reaped;
};

/* The mock's pid is the task itself. */
struct pid;
enum pid_type {
	PIDTYPE_TGID,
};

extern struct task_struct *mock_current;
#ifndef __cplusplus
#define current mock_current
#endif

void mmgrab(struct mm_struct *mm);
void mmdrop(struct mm_struct *mm);
int mmap_read_lock_killable(struct mm_struct *mm);
void mmap_read_unlock(struct mm_struct *mm);
struct vm_area_struct *find_vma(struct mm_struct *mm, unsigned long at);
int mmap_write_lock_killable(struct mm_struct *mm);
void mmap_write_unlock(struct mm_struct *mm);
struct mmu_notifier *mmu_notifier_get_locked(const struct mmu_notifier_ops *ops, struct mm_struct *mm);
void mmu_notifier_put(struct mmu_notifier *notifier);
void mmu_notifier_synchronize(void);
struct pid *get_task_pid(struct task_struct *task, enum pid_type type);
void put_pid(struct pid *pid);
struct task_struct *pid_task(struct pid *pid, enum pid_type type);
#define fatal_signal_pending(task) ((task)->killed)
void mock_resched(void);
#define cond_resched() mock_resched()

/* ---- Modules ---- */
struct module;
#define THIS_MODULE ((struct module *)NULL)
void __module_get(struct module *module);
void module_put(struct module *module);
#define task_tgid(task) ((struct pid *)(task))
#define MODULE_AUTHOR(s)
#define MODULE_DESCRIPTION(s)
#define MODULE_LICENSE(s)
#define MODULE_VERSION(s)
#define MODULE_SOFTDEP(s)
#define MODULE_ALIAS_RDMA_LINK(s)
#define MODULE_PARM_DESC(name, s)
#define module_param(name, type, mode) char **const mock_param_##name = &name
extern char **const mock_param_netdevs;
#define module_init(f) int mock_module_init(void) { return f(); }
#define module_exit(f) void mock_module_exit(void) { f(); }
int mock_module_init(void);
void mock_module_exit(void);

/* ---- Files ---- */
struct inode;
struct poll_table_struct;
typedef struct poll_table_struct poll_table;

struct file;
struct file_operations {
	struct module *owner;
	ssize_t (*read)(struct file *file, char *buf, size_t count, loff_t *pos);
	__poll_t (*poll)(struct file *file, poll_table *wait);
	int (*release)(struct inode *inode, struct file *file);
	loff_t (*llseek)(struct file *file, loff_t offset, int whence);
};

struct address_space {
	struct inode *host;
};

struct file {
	const struct file_operations *f_op;
	void *private_data;
	unsigned int f_flags;
	struct address_space *f_mapping;
};

#define i_size_read(inode)	((inode)->i_size)
#ifndef S_ISREG
#define S_ISREG(mode)		(((mode) & 0170000) == 0100000)
#define S_ISBLK(mode)		(((mode) & 0170000) == 0060000)
#endif

#ifndef O_RDONLY
#define O_RDONLY 0
#endif
#ifndef O_NONBLOCK
#define O_NONBLOCK 04000
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC 02000000
#endif
#ifndef EPOLLIN
#define EPOLLIN 1u
#define EPOLLHUP 0x10u
#define EPOLLRDNORM 0x40u
#endif
loff_t noop_llseek(struct file *file, loff_t offset, int whence);
void poll_wait(struct file *file, wait_queue_head_t *wq, poll_table *wait);
struct file *anon_inode_getfile(const char *name, const struct file_operations *ops, void *priv,
				int flags);
void fput(struct file *file);
int get_unused_fd_flags(unsigned int flags);
void put_unused_fd(unsigned int fd);
void fd_install(unsigned int fd, struct file *file);
unsigned long copy_to_user(void *to, const void *from, unsigned long n);

/* ---- ib_core ---- */
enum rdma_driver_id {
	RDMA_DRIVER_UNKNOWN,
	MOCK_DRIVER_ID_IS_ANY_NUMBER = 0x7fffffff,
};

enum ib_event_type {
	IB_EVENT_CQ_ERR,
	IB_EVENT_QP_FATAL,
	IB_EVENT_QP_REQ_ERR,
	IB_EVENT_QP_ACCESS_ERR,
	IB_EVENT_COMM_EST,
	IB_EVENT_SQ_DRAINED,
	IB_EVENT_PORT_ACTIVE,
	IB_EVENT_PORT_ERR,
	IB_EVENT_GID_CHANGE,
	IB_EVENT_SRQ_LIMIT_REACHED = 15,
	IB_EVENT_QP_LAST_WQE_REACHED,
};

enum ib_qp_state { IB_QPS_RESET, IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS, IB_QPS_SQD, IB_QPS_SQE, IB_QPS_ERR };
enum ib_qp_type { IB_QPT_RC = 2, IB_QPT_UD = 4 };
enum ib_sig_type { IB_SIGNAL_ALL_WR, IB_SIGNAL_REQ_WR };
enum ib_cq_notify_flags { IB_CQ_SOLICITED = 1 };
#define IB_QP_STATE			0x1
#define IB_QP_CUR_STATE			0x2
#define IB_QP_ACCESS_FLAGS		0x8
#define IB_QP_MAX_QP_RD_ATOMIC		0x2000
#define IB_QP_MAX_DEST_RD_ATOMIC	0x20000
#define IB_QP_ATTR_STANDARD_BITS	0xfffff
#define IB_ACCESS_LOCAL_WRITE		0x1
#define IB_ACCESS_REMOTE_WRITE		0x2
#define IB_ACCESS_REMOTE_READ		0x4
#define IB_ACCESS_REMOTE_ATOMIC		0x8
#define IB_ACCESS_MW_BIND		0x10
#define IB_ZERO_BASED			0x20
#define IB_ACCESS_ON_DEMAND		0x40
#define IB_ACCESS_HUGETLB		0x80
#define IB_ACCESS_OPTIONAL		0x3ff00000
enum { IB_DEVICE_MEM_WINDOW = 1 << 17, IB_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
       IB_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24, IB_DEVICE_SRQ_RESIZE = 1 << 13 };
enum { IB_MR_REREG_TRANS = 1, IB_MR_REREG_PD = 2, IB_MR_REREG_ACCESS = 4 };
enum ib_mw_type { IB_MW_TYPE_1 = 1, IB_MW_TYPE_2 = 2 };
#define IB_DEFAULT_PKEY_FULL		0xffff
enum { IB_PORT_DOWN = 1, IB_PORT_ACTIVE = 4 };
enum { IB_PORT_PHYS_STATE_POLLING = 2, IB_PORT_PHYS_STATE_DISABLED = 3, IB_PORT_PHYS_STATE_LINK_UP = 5 };
enum { IB_SPEED_SDR = 1, IB_SPEED_DDR = 2, IB_SPEED_FDR10 = 8, IB_SPEED_FDR = 16, IB_SPEED_EDR = 32,
       IB_SPEED_HDR = 64, IB_SPEED_NDR = 128 };
enum { IB_WIDTH_1X = 1, IB_WIDTH_4X = 2 };
enum { IB_PORT_CM_SUP = 1 << 16, RDMA_CORE_PORT_IWARP = 8, RDMA_NODE_RNIC = 4 };
enum { IB_ATOMIC_NONE, IB_ATOMIC_HCA, IB_ATOMIC_GLOB, IBK_ON_DEMAND_PAGING = 4, IBK_ALLOW_USER_UNREG = 32,
       IW_F_NO_PORT_MAP = 1 };

#define IB_FW_VERSION_NAME_MAX 32

struct ib_device_ops;
struct ib_uobject;
struct uapi_definition;
struct device {
	char name[64];
	int refs;
};

/* A device as one network namespace sees it. */
struct ib_core_device {
	struct device dev;
	possible_net_t rdma_net;
	struct ib_device *owner;
};
#define rdma_device_to_drv_device(device, type, member) \
	container_of(container_of(device, struct ib_core_device, dev)->owner, type, member)

struct attribute { const char *name; };
struct device_attribute {
	struct attribute attr;
	ssize_t (*show)(struct device *device, struct device_attribute *attr, char *buf);
};
#define DEVICE_ATTR_RO(_name) \
	struct device_attribute dev_attr_##_name = { .attr = { #_name }, .show = _name##_show }
struct attribute_group { struct attribute **attrs; };
#define sysfs_emit(buf, ...)	snprintf(buf, PAGE_SIZE, __VA_ARGS__)

struct ib_device {
	const struct ib_device_ops *ops;
	const struct uapi_definition *driver_def;
	union {
		struct device dev;
		struct ib_core_device coredev;
	};
	__be64 node_guid;
	char node_desc[64];
	char iw_ifname[IFNAMSIZ];
	int node_type, phys_port_cnt, num_comp_vectors, iw_driver_flags;
	struct mutex unregistration_lock;
	/* the mock's */
	struct net_device *mock_netdev;
	bool registered, unregistering;
	int refs;
	struct ib_device *next;
};
#define dev_name(d) ((d)->name)
void get_device(struct device *dev);
void put_device(struct device *dev);
#define num_possible_cpus() 2

struct ib_event;
struct ib_ucontext { struct ib_device *device; };
struct ib_pd { struct ib_device *device; };
/*
 * The part of uverbs of a CQ, an SRQ or a QP: the list of unread events, and the number of those
 * that were read.
 */
struct ib_uobject {
	struct ib_ucontext *context;
	struct kref ref;
	const struct mock_fd_type *mock_type;
	bool live;	/* false once destroyed; the memory goes with the last reference */
	struct ib_uobject *next;
};
struct ib_uevent_object {
	struct ib_uobject uobject;
	void *event_file;
	struct list_head event_list;
	u32 events_reported;
};
struct ib_ucq_object {
	struct ib_uevent_object uevent;
	struct list_head comp_list;
	u32 comp_events_reported;
};
/* Makes @object new and returns it. */
static inline struct ib_ucq_object *mock_ucq_object(struct ib_ucq_object *object)
{
	memset(object, 0, sizeof(*object));
	INIT_LIST_HEAD(&object->uevent.event_list);
	INIT_LIST_HEAD(&object->comp_list);
	return object;
}

struct ib_cq {
	struct ib_device *device;
	struct ib_ucq_object *uobject;
	struct ib_ucq_object mock_uobject;
	int cqe;
	void *cq_context;
	void (*comp_handler)(struct ib_cq *cq, void *context);
	void (*event_handler)(struct ib_event *event, void *context);
};
struct ib_mr { struct ib_device *device; u32 lkey, rkey; u64 iova, length; };
struct ib_mw { struct ib_device *device; struct ib_pd *pd; u32 rkey; enum ib_mw_type type; };
enum ib_srq_type { IB_SRQT_BASIC, IB_SRQT_XRC, IB_SRQT_TM };
enum ib_srq_attr_mask { IB_SRQ_MAX_WR = 1, IB_SRQ_LIMIT = 2 };
struct ib_srq_attr { u32 max_wr, max_sge, srq_limit; };
struct ib_srq_init_attr {
	struct ib_srq_attr attr;
	enum ib_srq_type srq_type;
};
struct ib_srq {
	struct ib_device *device;
	struct ib_ucq_object *uobject;
	struct ib_ucq_object mock_uobject;
	void *srq_context;
	void (*event_handler)(struct ib_event *event, void *context);
};
struct ib_qp_cap { u32 max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data; };
struct ib_qp {
	struct ib_device *device;
	struct ib_ucq_object *uobject;
	struct ib_ucq_object mock_uobject;
	struct ib_qp *real_qp;
	struct ib_cq *send_cq, *recv_cq;
	struct ib_srq *srq;
	enum ib_qp_type qp_type;
	u32 qp_num;
	void *qp_context;
	void (*event_handler)(struct ib_event *event, void *context);
};
struct ib_event {
	struct ib_device *device;
	union {
		struct ib_cq *cq;
		struct ib_qp *qp;
		struct ib_srq *srq;
		u32 port_num;
	} element;
	enum ib_event_type event;
};
struct ib_qp_init_attr {
	u32 create_flags;
	struct ib_srq *srq;
	enum ib_qp_type qp_type;
	struct ib_cq *send_cq, *recv_cq;
	struct ib_qp_cap cap;
	enum ib_sig_type sq_sig_type;
	u32 port_num;
};
struct ib_qp_attr {
	enum ib_qp_state qp_state, cur_qp_state;
	int path_mtu, qp_access_flags;
	u32 rq_psn, sq_psn, dest_qp_num;
	struct ib_qp_cap cap;
	u16 pkey_index;
	u8 sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer;
	u32 port_num;
	u8 timeout, retry_cnt, rnr_retry;
};
struct ib_cq_init_attr { unsigned int cqe, flags; };
struct ib_port_attr {
	int state, phys_state, max_mtu, active_mtu, gid_tbl_len, pkey_tbl_len;
	u32 port_cap_flags, max_msg_sz;
	u16 active_speed;
	u8 active_width;
};
struct ib_device_attr {
	__be64 sys_image_guid;
	u64 max_mr_size, page_size_cap, device_cap_flags, kernel_cap_flags, fw_ver;
	u32 vendor_id, hw_ver;
	int max_qp, max_qp_wr, max_send_sge, max_recv_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_mw, max_pd,
	    max_srq, max_srq_wr, max_srq_sge;
	struct {
		u64 general_caps;
		struct { u32 rc_odp_caps, uc_odp_caps, ud_odp_caps, xrc_odp_caps; } per_transport_caps;
	} odp_caps;
	int max_qp_rd_atom, max_qp_init_rd_atom, max_res_rd_atom, atomic_cap;
	u64 timestamp_mask, hca_core_clock;
	u16 max_pkeys;
};
struct ib_port_immutable { int gid_tbl_len, pkey_tbl_len; u32 core_cap_flags; };
union ib_gid { u8 raw[16]; };
struct ib_wc;
struct ib_send_wr;
struct ib_recv_wr;
struct iw_cm_id;
struct iw_cm_conn_param;

/* Driver data of a command; fd: of the process that calls. */
struct ib_udata {
	const void *inbuf;
	void *outbuf;
	size_t inlen, outlen;
	struct ib_ucontext *mock_context;
};
int ib_copy_from_udata(void *to, struct ib_udata *udata, size_t n);
int ib_copy_to_udata(struct ib_udata *udata, void *from, size_t n);
bool ib_is_udata_cleared(struct ib_udata *udata, size_t offset, size_t len);
#define rdma_udata_to_drv_context(udata, type, member) \
	container_of((udata)->mock_context, type, member)

struct rdma_user_mmap_entry { struct ib_ucontext *ucontext; u64 mock_offset; int refs; };
int rdma_user_mmap_entry_insert(struct ib_ucontext *c, struct rdma_user_mmap_entry *e, size_t len);
struct rdma_user_mmap_entry *rdma_user_mmap_entry_get(struct ib_ucontext *c,
						      struct vm_area_struct *vma);
void rdma_user_mmap_entry_put(struct rdma_user_mmap_entry *e);
void rdma_user_mmap_entry_remove(struct rdma_user_mmap_entry *e);
u64 rdma_user_mmap_get_offset(const struct rdma_user_mmap_entry *e);
int vm_insert_page(struct vm_area_struct *vma, unsigned long addr, struct page *page);
#define VM_DONTEXPAND		0x40000ul
#define VM_DONTDUMP		0x4000000ul
#define vm_flags_set(vma, flags) ((void)((vma)->vm_flags |= (flags)))

struct rdma_stat_desc { const char *name; };
struct rdma_hw_stats { const struct rdma_stat_desc *descs; int num_counters; u64 value[64]; };
#define RDMA_HW_STATS_DEFAULT_LIFESPAN 10
struct rdma_hw_stats *rdma_alloc_hw_stats_struct(const struct rdma_stat_desc *d, int n, unsigned long t);

/* ---- uverbs objects and methods ---- */
enum rdma_remove_reason { RDMA_REMOVE_DESTROY, RDMA_REMOVE_CLOSE, RDMA_REMOVE_DRIVER_REMOVE };
struct mock_fd_type {
	size_t size;
	void (*destroy)(struct ib_uobject *uobj, enum rdma_remove_reason why);
	const struct file_operations *fops;
	const char *name;
	int flags;
};
void uverbs_uobject_get(struct ib_uobject *uobj);
void uverbs_uobject_put(struct ib_uobject *uobj);
int uverbs_uobject_fd_release(struct inode *inode, struct file *file);

struct uverbs_attr_bundle {
	struct ib_udata driver_udata;
	void *mock_object;
	const void *mock_data;
	size_t mock_len;
};
struct uverbs_method_def {
	u32 id;
	int (*handler)(struct uverbs_attr_bundle *attrs);
	u32 object_attr, object_type, data_attr;
	size_t data_size, data_min;
	bool zero_trailing;
};
struct uverbs_object_tree {
	u32 object;
	const struct uverbs_method_def *method;
	const struct mock_fd_type *fd_type;
};
struct uapi_definition { u32 object; const struct uverbs_object_tree *tree; };
enum { UVERBS_OBJECT_CQ = 3, UVERBS_OBJECT_QP = 4, UVERBS_OBJECT_SRQ = 5, UVERBS_ACCESS_READ = 0, UVERBS_ACCESS_NEW = 2,
       UA_MANDATORY = 0 };
#define UVERBS_HANDLER(id)	mock_handler_##id
#define UVERBS_METHOD(id)	mock_method_##id
#define UVERBS_ATTR_TYPE(type)	sizeof(type), .data_min = sizeof(type)
#define UVERBS_ATTR_STRUCT(type, last) sizeof(type), .data_min = offsetofend(type, last), .zero_trailing = true
#define UVERBS_ATTR_IDR(id, object, access, mandatory) .object_attr = (id), .object_type = (object)
#define UVERBS_ATTR_FD(id, object, access, mandatory) .object_attr = (id), .object_type = (object)
#define UVERBS_ATTR_PTR_IN(id, size, mandatory) .data_attr = (id), .data_size = size
#define UVERBS_TYPE_ALLOC_FD(size, destroy, fops, name, flags)				\
	(const struct mock_fd_type){ size, destroy, fops, name, flags }
#define DECLARE_UVERBS_NAMED_METHOD(method, ...)					\
	static const struct uverbs_method_def UVERBS_METHOD(method) = {			\
		.id = method, .handler = UVERBS_HANDLER(method), __VA_ARGS__ }
#define DECLARE_UVERBS_NAMED_OBJECT(obj, type, m)					\
	static const struct uverbs_object_tree mock_object_##obj = {			\
		.object = obj, .method = m, .fd_type = &type }
#define ADD_UVERBS_METHODS(name, obj, m)						\
	static const struct uverbs_object_tree name = { .object = obj, .method = m }
#define UAPI_DEF_CHAIN_OBJ_TREE(obj, t) { .object = obj, .tree = t }
#define UAPI_DEF_CHAIN_OBJ_TREE_NAMED(obj) { .object = obj, .tree = &mock_object_##obj }
/* Handles an ioctl as ib_core does: it checks the attribute's length, then calls the handler. */
int mock_uverbs_call(struct ib_device *dev, u32 object, struct uverbs_attr_bundle *attrs);
/* Calls a method that makes an object with a descriptor. Returns that, or the error of the driver. */
int mock_uverbs_open(struct ib_ucontext *c, u32 object);
/* The context ends, or the device goes. The objects are destroyed first. */
void mock_uverbs_cleanup(struct ib_ucontext *c, enum rdma_remove_reason why);

/* Netlink attributes of a driver: kept by name, read back by mock_driver_attr(). */
struct sk_buff;
struct nlattr;
enum { RDMA_NLDEV_ATTR_DRIVER = 1 };
struct nlattr *nla_nest_start(struct sk_buff *msg, int type);
void nla_nest_end(struct sk_buff *msg, struct nlattr *nest);
void nla_nest_cancel(struct sk_buff *msg, struct nlattr *nest);
int rdma_nl_put_driver_u64(struct sk_buff *msg, const char *name, u64 value);
int rdma_nl_put_driver_string(struct sk_buff *msg, const char *name, const char *text);
/* Returns the number of attributes in finished nests. @value: that of the last one with this name. */
int mock_driver_attrs(const char *name, u64 *value);
/* Returns the text of an attribute that is no number. */
const char *mock_driver_word(const char *name);

void *uverbs_attr_get_obj(const struct uverbs_attr_bundle *attrs, u16 id);
struct ib_uobject *uverbs_attr_get_uobject(const struct uverbs_attr_bundle *attrs, u16 id);
int mock_uverbs_copy_from(void *to, size_t size, bool longer, const struct uverbs_attr_bundle *attrs, u16 id);
#define uverbs_copy_from(to, attrs, id) mock_uverbs_copy_from(to, sizeof(*(to)), false, attrs, id)
#define uverbs_copy_from_or_zero(to, attrs, id) mock_uverbs_copy_from(to, sizeof(*(to)), true, attrs, id)

#define INIT_RDMA_OBJ_SIZE(ib, drv, member) .size_##ib = sizeof(struct drv)
struct ib_device_ops {
	struct module *owner;
	enum rdma_driver_id driver_id;
	u32 uverbs_abi_ver;
	struct rdma_hw_stats *(*alloc_hw_port_stats)(struct ib_device *, u32);
	int (*alloc_mw)(struct ib_mw *, struct ib_udata *);
	int (*alloc_pd)(struct ib_pd *, struct ib_udata *);
	int (*alloc_ucontext)(struct ib_ucontext *, struct ib_udata *);
#if USIW_MOCK_KERNEL >= 611
	int (*create_cq)(struct ib_cq *, const struct ib_cq_init_attr *, struct uverbs_attr_bundle *);
#else
	int (*create_cq)(struct ib_cq *, const struct ib_cq_init_attr *, struct ib_udata *);
#endif
	int (*create_qp)(struct ib_qp *, struct ib_qp_init_attr *, struct ib_udata *);
	int (*create_srq)(struct ib_srq *, struct ib_srq_init_attr *, struct ib_udata *);
	void (*dealloc_driver)(struct ib_device *);
	int (*dealloc_mw)(struct ib_mw *);
	int (*dealloc_pd)(struct ib_pd *, struct ib_udata *);
	void (*dealloc_ucontext)(struct ib_ucontext *);
	int (*dereg_mr)(struct ib_mr *, struct ib_udata *);
	int (*destroy_cq)(struct ib_cq *, struct ib_udata *);
	int (*destroy_qp)(struct ib_qp *, struct ib_udata *);
	int (*destroy_srq)(struct ib_srq *, struct ib_udata *);
	const struct attribute_group *device_group;
	void (*disassociate_ucontext)(struct ib_ucontext *);
	int (*fill_res_qp_entry)(struct sk_buff *, struct ib_qp *);
	void (*get_dev_fw_str)(struct ib_device *, char *);
	struct ib_mr *(*get_dma_mr)(struct ib_pd *, int);
	int (*get_hw_stats)(struct ib_device *, struct rdma_hw_stats *, u32, int);
	int (*get_port_immutable)(struct ib_device *, u32, struct ib_port_immutable *);
	int (*iw_accept)(struct iw_cm_id *, struct iw_cm_conn_param *);
	void (*iw_add_ref)(struct ib_qp *);
	int (*iw_connect)(struct iw_cm_id *, struct iw_cm_conn_param *);
	int (*iw_create_listen)(struct iw_cm_id *, int);
	int (*iw_destroy_listen)(struct iw_cm_id *);
	struct ib_qp *(*iw_get_qp)(struct ib_device *, int);
	int (*iw_reject)(struct iw_cm_id *, const void *, u8);
	void (*iw_rem_ref)(struct ib_qp *);
	int (*mmap)(struct ib_ucontext *, struct vm_area_struct *);
	void (*mmap_free)(struct rdma_user_mmap_entry *);
	int (*modify_qp)(struct ib_qp *, struct ib_qp_attr *, int, struct ib_udata *);
	int (*modify_srq)(struct ib_srq *, struct ib_srq_attr *, enum ib_srq_attr_mask, struct ib_udata *);
	int (*poll_cq)(struct ib_cq *, int, struct ib_wc *);
	int (*post_recv)(struct ib_qp *, const struct ib_recv_wr *, const struct ib_recv_wr **);
	int (*post_send)(struct ib_qp *, const struct ib_send_wr *, const struct ib_send_wr **);
	int (*post_srq_recv)(struct ib_srq *, const struct ib_recv_wr *, const struct ib_recv_wr **);
	int (*query_device)(struct ib_device *, struct ib_device_attr *, struct ib_udata *);
	int (*query_gid)(struct ib_device *, u32, int, union ib_gid *);
	int (*query_pkey)(struct ib_device *, u32, u16, u16 *);
	int (*query_port)(struct ib_device *, u32, struct ib_port_attr *);
	int (*query_qp)(struct ib_qp *, struct ib_qp_attr *, int, struct ib_qp_init_attr *);
	int (*query_srq)(struct ib_srq *, struct ib_srq_attr *);
	struct ib_mr *(*reg_user_mr)(struct ib_pd *, u64, u64, u64, int, struct ib_udata *);
	int (*req_notify_cq)(struct ib_cq *, enum ib_cq_notify_flags);
	int (*resize_cq)(struct ib_cq *, int, struct ib_udata *);
	struct ib_mr *(*rereg_user_mr)(struct ib_mr *, int, u64, u64, u64, int, struct ib_pd *, struct ib_udata *);
	size_t size_ib_cq, size_ib_mw, size_ib_pd, size_ib_qp, size_ib_srq, size_ib_ucontext;
};

struct ib_device *mock_ib_alloc(size_t size);
#define ib_alloc_device(type, member) \
	container_of(mock_ib_alloc(sizeof(struct type)), struct type, member)
void ib_dealloc_device(struct ib_device *dev);
static inline void ib_set_device_ops(struct ib_device *dev, const struct ib_device_ops *ops)
{
	dev->ops = ops;
}
int ib_device_set_netdev(struct ib_device *dev, struct net_device *netdev, u32 port);
int ib_register_device(struct ib_device *dev, const char *name, void *dma);
struct ib_device *ib_device_get_by_netdev(struct net_device *netdev, enum rdma_driver_id id);
void ib_device_put(struct ib_device *dev);
bool ib_device_try_get(struct ib_device *dev);
void ib_unregister_device_queued(struct ib_device *dev);
void ib_unregister_device_and_put(struct ib_device *dev);
void ib_unregister_driver(enum rdma_driver_id id);

struct ib_client {
	const char *name;
	int (*add)(struct ib_device *dev);
	void (*remove)(struct ib_device *dev, void *client_data);
};
int ib_register_client(struct ib_client *client);
void ib_unregister_client(struct ib_client *client);
void ib_dispatch_event(const struct ib_event *event);

struct rdma_link_ops {
	const char *type;
	int (*newlink)(const char *name, struct net_device *netdev);
};
void rdma_link_register(struct rdma_link_ops *ops);
void rdma_link_unregister(struct rdma_link_ops *ops);

/* ---- iw_cm ---- */
void iw_destroy_cm_id(struct iw_cm_id *cm_id);
enum iw_cm_event_type {
	IW_CM_EVENT_CONNECT_REQUEST = 1,
	IW_CM_EVENT_CONNECT_REPLY,
	IW_CM_EVENT_ESTABLISHED,
	IW_CM_EVENT_DISCONNECT,
	IW_CM_EVENT_CLOSE,
};

struct iw_cm_event {
	enum iw_cm_event_type event;
	int status;
	struct sockaddr_storage local_addr, remote_addr;
	void *private_data, *provider_data;
	u8 private_data_len, ord, ird;
};

struct iw_cm_conn_param {
	const void *private_data;
	u16 private_data_len;
	u32 ord, ird, qpn;
};

/* rdma_cm's id, which is the context of iw_cm's. */
enum mock_port_space { RDMA_PS_IPOIB = 0x0002, RDMA_PS_IB = 0x013f, RDMA_PS_TCP = 0x0106, RDMA_PS_UDP = 0x0111 };
struct rdma_cm_id {
	int ps;
	struct {
		struct {
			struct {
				struct net *net;
			} dev_addr;
		} addr;
	} route;
};

struct iw_cm_id {
	struct ib_device *device;
	struct sockaddr_storage local_addr, m_remote_addr;
	void *provider_data, *context;
	u8 tos;
	bool tos_set, afonly;
	int (*event_handler)(struct iw_cm_id *id, struct iw_cm_event *event);
	void (*add_ref)(struct iw_cm_id *id);
	void (*rem_ref)(struct iw_cm_id *id);
};

#ifdef __cplusplus
}
#endif

#endif /* MOCK_RDMA_H */
