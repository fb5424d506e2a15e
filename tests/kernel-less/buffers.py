# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A preloaded library limits the receive buffers of sockets, or grants any size, whatever this host allows."""

import subprocess

#: The kernel's default of net.core.rmem_max, and that of Debian.
RMEM_MAX = 212992
SMALL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int (*real)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
	int most = %d;

	if (level == SOL_SOCKET && name == SO_RCVBUFFORCE) {
		errno = EPERM;
		return -1;
	}
	if (level == SOL_SOCKET && name == SO_RCVBUF && *(const int *)value > most)
		return real(fd, level, name, &most, sizeof(most));
	return real(fd, level, name, value, len);
}
""" % RMEM_MAX
#: Any size is granted, as far as the program can see.
LARGE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
static int granted;
int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int (*real)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");

	if (level != SOL_SOCKET || (name != SO_RCVBUF && name != SO_RCVBUFFORCE))
		return real(fd, level, name, value, len);
	granted = *(const int *)value;
	return 0;
}
int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int (*real)(int, int, int, void *, socklen_t *) = dlsym(RTLD_NEXT, "getsockopt");

	if (level != SOL_SOCKET || name != SO_RCVBUF || granted == 0)
		return real(fd, level, name, value, len);
	*(int *)value = 2 * granted;
	return 0;
}
"""


def environment(folder, source):
    """The environment of a program that has the library of `source` (SMALL or LARGE) preloaded."""
    (folder / "buffers.c").write_text(source)
    library = folder / "buffers.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "buffers.c", "-ldl"], check=True)
    return {"LD_PRELOAD": library}
