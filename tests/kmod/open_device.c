// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * open_device NAME: opens the device twice by libibverbs and prints errno for each, 0 if it is
 * open.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; argc == 2 && list && i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), argv[1]))
			continue;
		for (int again = 0; again < 2; again++) {
			struct ibv_context *ctx = ibv_open_device(list[i]);

			printf("open: %d\n", ctx ? 0 : errno);
			if (ctx)
				ibv_close_device(ctx);
		}
		return 0;
	}
	printf("no device\n");
	return 1;
}
