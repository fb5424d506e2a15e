/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Which libibverbs this is: by the functions that it has, and where that does not tell, by trying. */
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/glue.h"

struct usiw_library usiw_library;

/*
 * Versions that differ in a layout, newest first. A new operation comes with a public function, so each is known by its
 * number and the newest function that it has. (57 has none that 36 did not have, and a number of its own.)
 */
static const struct {
	unsigned int rdma_core, number;
	const char *has;
	size_t context_front;
} generations[] = {
	{ 65, 65, "ibv_create_comp_cntr", 368 },
	{ 64, 64, "ibv_alloc_buf", 368 },
	{ 62, 59, "ibv_dm_export_dmabuf_fd", 352 },
	{ 59, 59, "ibv_alloc_dmah", 344 },
	{ 57, 57, "ibv_query_qp_data_in_order", 320 },
	{ 36, 34, "ibv_query_qp_data_in_order", 320 },
	{ 35, 34, "ibv_import_dm", 320 },
	{ 34, 34, "ibv_reg_dmabuf_mr", 320 },
};

enum { GENERATIONS = sizeof(generations) / sizeof(generations[0]) };

/* One line for people; -1. */
static __attribute__((format(printf, 1, 2))) int refuse(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "usiw: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "; this usiw fits rdma-core %d to %d: install a usiw that is made for it, or an rdma-core of "
		"these\n", USIW_OPERATIONS_OLDEST, USIW_OPERATIONS_NEWEST);
	return -1;
}

static void *function(void *handle, const char *name)
{
	return dlsym(handle ? handle : RTLD_DEFAULT, name);
}

/* The library's file, its links followed: it is named for its version. */
static const char *file_of(const void *function, char *name)
{
	Dl_info info;

	if (!dladdr(function, &info) || !info.dli_fname)
		return "libibverbs";
	return realpath(info.dli_fname, name) ? name : info.dli_fname;
}

/* The rdma-core of "libibverbs.so.1.14.44.0" (44); 0 if the file is not named like this. */
static unsigned int version_of(const char *file)
{
	const char *at = strstr(file, "libibverbs.so.1.");
	unsigned int version;

	return at && sscanf(at, "libibverbs.so.1.%*u.%u.%*u", &version) == 1 ? version : 0;
}

/* Tries each place where "comp_mask" may be: the library says when it has found the bit there. */
static size_t find_qp_mask(void *handle)
{
	struct ibv_qp_ex *(*to_qp_ex)(struct ibv_qp *) = NULL;
	union {
		struct ibv_qp qp;
		char bytes[USIW_VERBS_QP_BYTES];
	} trial;
	const uint32_t set = USIW_VERBS_QP_EX;

	*(void **)&to_qp_ex = function(handle, "ibv_qp_to_qp_ex");
	if (!to_qp_ex)
		return 0;
	for (size_t at = sizeof(struct ibv_qp); at <= sizeof(trial) - 2 * sizeof(uint64_t); at += sizeof(void *)) {
		memset(&trial, 0, sizeof(trial));
		memcpy(trial.bytes + at, &set, sizeof(set));
		if (to_qp_ex(&trial.qp))
			return at;
	}
	return 0;
}

/* The name of a function that the library lacks, or NULL. */
static const char *find_functions(void *handle)
{
#define FIND(name, result, arguments) \
	*(void **)&usiw_library.name = function(handle, #name); \
	if (!usiw_library.name) \
		return #name;
	USIW_LIBRARY_FUNCTIONS(FIND)
	*(void **)&usiw_library.get_context_34 = function(handle, "ibv_cmd_get_context");
	return usiw_library.get_context_34 ? NULL : "ibv_cmd_get_context";
}

int usiw_library_find(void)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	char name[sizeof("verbs_register_driver_00")], path[PATH_MAX];
	const char *file, *missing;
	unsigned int i;

	for (i = 0; i < GENERATIONS; i++) {
		snprintf(name, sizeof(name), "verbs_register_driver_%u", generations[i].number);
		*(void **)&usiw_library.register_driver = function(handle, name);
		if (usiw_library.register_driver && function(handle, generations[i].has))
			break;
	}
	if (i == GENERATIONS)
		return refuse("no libibverbs of this process has a provider ABI that usiw knows");
	file = file_of(*(void **)&usiw_library.register_driver, path);
	if (version_of(file) > USIW_OPERATIONS_NEWEST)
		return refuse("%s is of rdma-core %u", file, version_of(file));
	missing = find_functions(handle);
	usiw_library.number = generations[i].number;
	usiw_library.rdma_core = generations[i].rdma_core;
	usiw_library.context_front = generations[i].context_front;
	usiw_library.qp_mask_at = find_qp_mask(handle);
	if (!missing && !usiw_library.qp_mask_at)
		missing = "struct ibv_qp_ex that is known";
	return missing ? refuse("%s has no %s", file, missing) : 0;
}
