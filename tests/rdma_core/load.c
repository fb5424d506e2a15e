/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* load LIBIBVERBS PROVIDER: loads both, as a program and libibverbs would, and opens a device. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	void (*open_device)(void);

	if (!library || !dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&open_device = dlsym(library, "fake_open");
	open_device();
	return 0;
}
