/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A libibverbs of any version, as far as a provider's registration goes: test_versions.py builds it with what
 * versions.tsv says of the version.
 *
 * NUMBER           of the private ABI
 * WR_FUNCTIONS     of struct ibv_qp_ex
 * FRONT            bytes of struct verbs_context before its struct ibv_context
 * OPERATIONS(X)    X(name) for each operation, in order
 * PUBLIC(X)        X(name) for each public function that tells the version
 * COMMANDS(X)      X(name) for each private function that a provider calls and this one does not have itself
 *
 * The environment may have MODULE_ABI="MIN MAX", of a module that speaks these versions, and none of them is the
 * provider's. The device is opened twice then.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "uapi/usiw_abi.h"

#define PASTE(a, b) a##b
#define NAME(a, b) PASTE(a, b)

/* Under a name of our own here: the header declares some of them. */
#define X(name) int fake_##name(void) __asm__(#name); int fake_##name(void) { abort(); }
PUBLIC(X)
COMMANDS(X)
#undef X

/* What a provider says of itself, and of a device what it asks: by position. */
struct device_ops {
	const char *name;
	uint32_t min, max;
	const void *matches;
	const void *others;
	void *match_device;
	void *(*alloc_context)(struct ibv_device *, int, void *);
	void *import_context;
	struct device *(*alloc_device)(void *);
	void *uninit_device;
};
struct device {
	struct ibv_device device;
	const struct device_ops *ops;
	int references;
	void *entry[2];
	char *sysfs;
	uint64_t core_support;
};

static const struct device_ops *provider;
static char *context;		/* the one that is open, from its struct verbs_context on */
static char sysfs[992];

void NAME(verbs_register_driver_, NUMBER)(const struct device_ops *ops) { provider = ops; }

void *_verbs_init_and_alloc_context(struct ibv_device *device, int fd, size_t size, uintptr_t at, uint32_t driver)
{
	char *all = calloc(1, size);
	struct ibv_context *end;

	(void)driver;
	context = all + at;
	end = (struct ibv_context *)(context + FRONT);
	end->device = device;
	end->cmd_fd = fd;
	((size_t *)end)[-1] = FRONT + sizeof(*end);
	return all;
}

void verbs_uninit_context(void *of) { printf("uninit\t%d\n", of == context); }

/* Those that programs call by inline functions are where these look for them. */
void verbs_set_ops(void *of, void **slots)
{
	static const char *const names[] = {
#define TEXT(name) #name,
		OPERATIONS(TEXT)
	};
	struct ibv_context *end = (struct ibv_context *)((char *)of + FRONT);
	struct verbs_context *calls = (struct verbs_context *)((char *)end - offsetof(struct verbs_context, context));
	Dl_info info;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!slots[i])
			continue;
		dladdr(slots[i], &info);
		printf("slot\t%s\t%s\t%td\n", names[i], info.dli_sname && info.dli_saddr == slots[i] ? info.dli_sname : "-",
		       (char *)slots[i] - (char *)info.dli_fbase);
#define TAKE(where, name) if (!strcmp(names[i], #name)) memcpy(&(where)->name, &slots[i], sizeof(void *))
		TAKE(&end->ops, alloc_mw); TAKE(&end->ops, dealloc_mw); TAKE(&end->ops, poll_cq);
		TAKE(&end->ops, post_send); TAKE(&end->ops, post_recv); TAKE(&end->ops, post_srq_recv);
		TAKE(&end->ops, req_notify_cq); TAKE(calls, create_qp_ex); TAKE(calls, create_srq_ex);
		TAKE(calls, query_rt_values);
	}
}

#if NUMBER < 57
int ibv_cmd_get_context(void *of, void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	const void *fds = NULL;
#else
int ibv_cmd_get_context(void *of, void *cmd, size_t cmd_size, void *fds, void *resp, size_t resp_size)
{
#endif
	const char *module_abi = getenv("MODULE_ABI");
	struct usiw_alloc_ucontext_resp *drv;

	printf("get_context\t%d\t%d\t%d\n", of == context, !fds, cmd && cmd_size < 256 && resp_size < 256);
	memset(resp, 0, resp_size);
	if (!module_abi)
		return 0;
	/* Behind what the kernel itself answers, 8 bytes. */
	drv = (struct usiw_alloc_ucontext_resp *)((char *)resp + 8);
	sscanf(module_abi, "%u %u", &drv->abi_min, &drv->abi_max);
	return EPROTO;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	const uint32_t *mask = (uint32_t *)((char *)qp + sizeof(*qp) + 24 + WR_FUNCTIONS * sizeof(void *));

	return *mask & 2 ? (struct ibv_qp_ex *)qp : NULL;
}

/* As ibv_get_device_list() and ibv_open_device() would. */
void fake_open(void)
{
	union {
		struct ibv_qp qp;
		char bytes[sizeof(struct ibv_qp) + 224];
	} qp = { .bytes = { 0 } };
	void (*is_qp_ex)(struct ibv_qp *) = (void (*)(struct ibv_qp *))dlsym(RTLD_DEFAULT, "usiw_glue_is_qp_ex");
	const char *module_abi = getenv("MODULE_ABI");
	const char *newest = module_abi ? strchr(module_abi, ' ') : NULL;
	struct device *device;
	char *got;

	printf("registered\t%s\n", provider ? provider->name : "-");
	if (!provider)
		return;
	device = provider->alloc_device(sysfs);
	device->ops = provider;
	device->sysfs = sysfs;
	/* The kernel's uverbs_abi_ver. */
	*(uint32_t *)(sysfs + (FIRST < 35 ? 964 : 968)) = newest ? (uint32_t)atoi(newest) : 1000;
	for (int i = 0; i < (module_abi ? 2 : 1); i++) {
		errno = 0;
		got = provider->alloc_context(&device->device, 0, NULL);
		printf("context\t%d\t%s\n", got && got == context, got ? "-" : strerror(errno));
	}
	is_qp_ex(&qp.qp);
	printf("qp_ex\t%d\n", ibv_qp_to_qp_ex(&qp.qp) == (struct ibv_qp_ex *)&qp);
}
