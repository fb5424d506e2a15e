// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Modules, the root file system, limits. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "init.h"

#define PORT_NAME	"usiw.vm"

void load_module(const char *path, bool required)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		if (required)
			fail("%s: %m", path);
		return;
	}
	if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST && required)
		fail("loading %s: %m", path);
	close(fd);
}

void load_modules(const struct list *modules)
{
	for (int i = 0; i < modules->count; i++)
		load_module(modules->item[i], true);
}

void mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *options)
{
	mkdir(target, 0755);
	if (mount(source, target, type, flags, options))
		fail("mount %s on %s (%s): %m", source, target, type ? type : "bind");
}

static void make_directories(const char *path)
{
	char part[4096];

	snprintf(part, sizeof(part), "%s", path);
	for (char *at = part + 1; *at; at++) {
		if (*at == '/') {
			*at = 0;
			mkdir(part, 0755);
			*at = '/';
		}
	}
	mkdir(part, 0755);
}

int open_port(void)
{
	for (int tries = 0; tries < 200; tries++) {
		DIR *dir = opendir("/sys/class/virtio-ports");
		struct dirent *entry;

		while (dir && (entry = readdir(dir))) {
			char path[512], name[64] = "";
			int fd;

			if (entry->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				continue;
			if (read(fd, name, sizeof(name) - 1) < 0)
				name[0] = 0;
			close(fd);
			name[strcspn(name, "\n")] = 0;
			if (strcmp(name, PORT_NAME))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
			fd = open(path, O_WRONLY | O_CLOEXEC);
			if (fd >= 0) {
				closedir(dir);
				return fd;
			}
		}
		if (dir)
			closedir(dir);
		usleep(10000);
	}
	return -1;
}

void mount_root(void)
{
	static const char host_options[] =
		"trans=virtio,version=9p2000.L,msize=1048576,cache=loose,access=any";
	static const char project_options[] =
		"trans=virtio,version=9p2000.L,msize=1048576,cache=mmap,access=any";
	char path[4096];

	mount_at("host", "/lower", "9p", MS_RDONLY, host_options);
	mount_at("tmpfs", "/rw", "tmpfs", 0, "mode=0755");
	mkdir("/rw/upper", 0755);
	mkdir("/rw/work", 0755);
	mount_at("overlay", "/r", "overlay", 0, "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work");
	mount_at("tmpfs", "/r/tmp", "tmpfs", 0, "mode=1777");
	mount_at("tmpfs", "/r/run", "tmpfs", 0, "mode=0755");
	snprintf(path, sizeof(path), "/r%s", settings.project);
	make_directories(path);
	mount_at("project", path, "9p", 0, project_options);

	/* From the cached share, so that modprobe is quick. */
	snprintf(path, sizeof(path), "/r/lib/modules/%s", settings.kver);
	make_directories(path);
	{
		char source[4096];

		snprintf(source, sizeof(source), "/lower%s", settings.modules);
		mount_at(source, path, NULL, MS_BIND, NULL);
	}
	mount_at("/dev", "/r/dev", NULL, MS_MOVE, NULL);
	mount_at("/proc", "/r/proc", NULL, MS_MOVE, NULL);
	mount_at("/sys", "/r/sys", NULL, MS_MOVE, NULL);
	if (chdir("/r") || chroot(".") || chdir("/"))
		fail("chroot: %m");
	mount_at("devpts", "/dev/pts", "devpts", 0, "mode=0620,ptmxmode=0666");
	mount_at("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
	mount_at("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	mount_at("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
	mkdir("/run/lock", 01777);
	mkdir("/run/netns", 0755);
}

void write_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		diag("%s: %m", path);
	if (fd >= 0)
		close(fd);
}

void configure(void)
{
	struct rlimit many = { 65536, 1048576 }, all = { RLIM_INFINITY, RLIM_INFINITY };
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
	sethostname("guest", 5);
	setrlimit(RLIMIT_NOFILE, &many);
	setrlimit(RLIMIT_MEMLOCK, &all);
	for (int i = 0; i < settings.sysctl.count; i++) {
		char path[512];
		char *value = strchr(settings.sysctl.item[i], ' ');

		if (!value)
			fail("sysctl without a value: %s", settings.sysctl.item[i]);
		*value++ = 0;
		snprintf(path, sizeof(path), "/proc/sys/%s", settings.sysctl.item[i]);
		write_file(path, value);
	}
}
