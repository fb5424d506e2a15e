/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A preloaded library that counts netlink sockets. usiw-run opens one for each question about a
 * route or a neighbour. The number is printed when the process ends.
 */
#include <linux/netlink.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long questions;

int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK)
		__atomic_add_fetch(&questions, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_socket, domain, type, protocol);
}

__attribute__((destructor)) static void print_number(void)
{
	fprintf(stderr, "netlink sockets: %ld\n", questions);
}
