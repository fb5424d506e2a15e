/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * load HOW LIBRARY: loads a library by dlopen(3), with RTLD_DEEPBIND or into a namespace of its own, and prints how many
 * RDMA devices the libibverbs finds that is in it or came with it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "", *library = argc > 2 ? argv[2] : "libibverbs.so.1";
	void *handle = strcmp(how, "deep") == 0 ? dlopen(library, RTLD_NOW | RTLD_DEEPBIND) :
		       strcmp(how, "namespace") == 0 ? dlmopen(LM_ID_NEWLM, library, RTLD_NOW) :
						       dlopen(library, RTLD_NOW);
	void **(*list)(int *) = handle ? (void **(*)(int *))dlsym(handle, "ibv_get_device_list") : NULL;
	int devices = -1;

	if (!list) {
		puts(dlerror());
		return 1;
	}
	list(&devices);
	printf("%d devices\n", devices);
	return 0;
}
