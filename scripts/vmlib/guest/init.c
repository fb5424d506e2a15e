// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Process 1 of a test guest: makes a root file system out of the host's, runs the set-up and one command, and reports
 * everything over one virtio-serial port.
 *
 * It is one static program and not a script because under TCG every exec costs 0.1 s or more.
 *
 * Settings come from /run.conf in the initramfs: NUL-terminated "key=value" strings, see vmlib/guest.py for the keys.
 *
 * What it sends is a sequence of frames { u8 type, u32 length (little endian), payload }, in the order of events:
 *   'O' / 'E'  standard output / standard error of the command
 *   'K'        one record of /dev/kmsg
 *   'D'        diagnostics for the log
 *   'S'        a status line; the last one is "done"
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ITEMS	256
#define OUT_BUFFER	65536
#define TERM_GRACE_MS	2000	/* between SIGTERM and SIGKILL after a time-out */
#define KILL_GRACE_MS	8000	/* for processes to die after SIGKILL */
#define PORT_NAME	"usiw.vm"

struct list {
	char *item[MAX_ITEMS];	/* NULL-terminated, for execve */
	int count;
};

/* The settings, one member for each key of /run.conf. */
static struct list base_modules;	/* "base": loaded before the root is there */
static struct list late_modules;	/* "late": loaded while the root is mounted */
static struct list kernel_objects;	/* "ko": paths in the root, loaded after the mark */
static struct list sysctls;		/* "sysctl": "path value" */
static struct list setup_args;		/* "setup": what prints the environment of the topology */
static struct list teardown_args;	/* "teardown": run after the command */
static struct list unload_modules;	/* "unload": removed after the teardown */
static struct list command_args;	/* "arg" */
static struct list environment;		/* "env" */
static const char *project_dir;		/* "project": absolute path, mounted read-write */
static const char *modules_dir;		/* "modules": absolute path of the tree to see as /lib/modules/VERSION */
static const char *kernel_version;	/* "kver" */
static const char *window_size;		/* "winsize": "rows cols" */
static const char *term;		/* "tty": device for an interactive command, or unset */
static int timeout_ms = 120000;		/* "timeout": seconds, 0 for none */
static bool probe_only;			/* "probe": only say that the machine boots */

static int port_fd = -1;
static int kmsg_fd = -1;
static int signal_fd = -1;
static char out_buffer[OUT_BUFFER];
static size_t out_used;

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- frames ---- */

static void flush_frames(void)
{
	size_t done = 0;

	while (done < out_used && port_fd >= 0) {
		ssize_t n = write(port_fd, out_buffer + done, out_used - done);

		if (n > 0) {
			done += n;
		} else if (n < 0 && errno == EAGAIN) {
			struct pollfd wait = { .fd = port_fd, .events = POLLOUT };

			poll(&wait, 1, 1000);
		} else if (n < 0 && errno != EINTR) {
			break;
		}
	}
	out_used = 0;
}

static void put_frame(char type, const void *data, size_t length)
{
	uint8_t header[5] = { type, length, length >> 8, length >> 16, length >> 24 };

	if (out_used + sizeof(header) + length > sizeof(out_buffer))
		flush_frames();
	memcpy(out_buffer + out_used, header, sizeof(header));
	memcpy(out_buffer + out_used + sizeof(header), data, length);
	out_used += sizeof(header) + length;
}

static void put_text(char type, const char *format, va_list args)
{
	char text[1024];
	int length = vsnprintf(text, sizeof(text), format, args);

	if (length >= (int)sizeof(text))
		length = sizeof(text) - 1;
	put_frame(type, text, length);
	flush_frames();
}

__attribute__((format(printf, 1, 2))) static void status(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_text('S', format, args);
	va_end(args);
}

__attribute__((format(printf, 1, 2))) static void diag(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_text('D', format, args);
	va_end(args);
}

__attribute__((noreturn)) static void finish(void)
{
	status("done");
	/* The host ends the machine when it reads "done"; this is for when nobody reads. */
	sleep(2);
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

/* Ends the run before the command could start. Also on the console: the port may not exist. */
__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	dprintf(2, "usiw-vm: %s\n", text);
	status("fail %s", text);
	finish();
}

/* ---- settings ---- */

static void add(struct list *list, char *value)
{
	if (list->count >= MAX_ITEMS - 1)
		fail("too many settings at %s", value);
	list->item[list->count++] = value;
}

static void apply_setting(char *key, char *value)
{
	static const struct {
		const char *key;
		struct list *list;
	} lists[] = {
		{ "base", &base_modules }, { "late", &late_modules }, { "ko", &kernel_objects },
		{ "sysctl", &sysctls }, { "setup", &setup_args }, { "teardown", &teardown_args },
		{ "unload", &unload_modules }, { "arg", &command_args }, { "env", &environment },
	};
	static const struct {
		const char *key;
		const char **value;
	} strings[] = {
		{ "project", &project_dir }, { "modules", &modules_dir }, { "kver", &kernel_version },
		{ "winsize", &window_size }, { "tty", &term },
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (!strcmp(key, lists[i].key)) {
			add(lists[i].list, value);
			return;
		}
	}
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		if (!strcmp(key, strings[i].key)) {
			*strings[i].value = value;
			return;
		}
	}
	if (!strcmp(key, "timeout"))
		timeout_ms = atoi(value) * 1000;
	else if (!strcmp(key, "probe"))
		probe_only = true;
	else
		fail("unknown setting %s", key);
}

static void read_settings(const char *path)
{
	struct stat info;
	char *text, *at;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &info) < 0)
		fail("%s: %m", path);
	text = malloc(info.st_size + 1);
	if (!text || read(fd, text, info.st_size) != info.st_size)
		fail("%s: cannot read", path);
	text[info.st_size] = 0;
	close(fd);
	for (at = text; at < text + info.st_size; ) {
		char *next = at + strlen(at) + 1;
		char *value = strchr(at, '=');

		if (!value)
			fail("setting without a value: %s", at);
		*value++ = 0;
		apply_setting(at, value);
		at = next;
	}
}

/* ---- the machine ---- */

static void load_module(const char *path, bool required)
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

static void load_modules(const struct list *modules)
{
	for (int i = 0; i < modules->count; i++)
		load_module(modules->item[i], true);
}

static void mount_at(const char *source, const char *target, const char *type, unsigned long flags, const char *options)
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

/* Opens the virtio-serial port named PORT_NAME; it may show up late where virtio_console is a module. */
static int open_port(void)
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

static void mount_root(void)
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
	snprintf(path, sizeof(path), "/r%s", project_dir);
	make_directories(path);
	mount_at("project", path, "9p", 0, project_options);

	/* From the cached share, so that modprobe is quick. */
	snprintf(path, sizeof(path), "/r/lib/modules/%s", kernel_version);
	make_directories(path);
	{
		char source[4096];

		snprintf(source, sizeof(source), "/lower%s", modules_dir);
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

static void write_file(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		diag("%s: %m", path);
	if (fd >= 0)
		close(fd);
}

static void configure(void)
{
	struct rlimit many = { 65536, 1048576 }, all = { RLIM_INFINITY, RLIM_INFINITY };
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
	sethostname("guest", 5);
	setrlimit(RLIMIT_NOFILE, &many);
	setrlimit(RLIMIT_MEMLOCK, &all);
	for (int i = 0; i < sysctls.count; i++) {
		char path[512];
		char *value = strchr(sysctls.item[i], ' ');

		if (!value)
			fail("sysctl without a value: %s", sysctls.item[i]);
		*value++ = 0;
		snprintf(path, sizeof(path), "/proc/sys/%s", sysctls.item[i]);
		write_file(path, value);
	}
}

/* Sends what the kernel has logged since the last call. */
static void drain_kmsg(void)
{
	static char record[8192];
	ssize_t n;

	if (kmsg_fd < 0)
		return;
	for (;;) {
		n = read(kmsg_fd, record, sizeof(record));
		if (n > 0)
			put_frame('K', record, n);
		else if (n < 0 && errno == EPIPE)	/* records were overwritten before we came */
			put_frame('D', "kernel log overrun", 18);
		else if (n < 0 && errno == EINTR)
			continue;
		else
			break;
	}
}

/* ---- processes ---- */

struct run {
	pid_t pid;
	int wait_status;
	bool ended;
	bool timed_out;
	int out, err;		/* read ends of the pipes, -1 when at end of file */
	char *capture;		/* where standard output is kept instead of being sent; may be NULL */
	size_t capture_size, captured;
};

static void report_file(const char *directory, const char *name)
{
	char path[512], text[900];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return;
	for (ssize_t i = 0; i < n; i++) {
		if (!text[i])
			text[i] = ' ';
	}
	text[n] = 0;
	diag("%s: %s", path, text);
}

/* True for a user process other than this one: what has no memory map is a kernel thread or dead. */
static bool user_process(const char *pid)
{
	char path[64], line[16];
	int fd;
	ssize_t n;

	if (pid[0] < '1' || pid[0] > '9' || !strcmp(pid, "1"))
		return false;
	snprintf(path, sizeof(path), "/proc/%.16s/statm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, line, sizeof(line));
	close(fd);
	return n > 1 && line[0] != '0';
}

/* Tells the log what every user process, and every thread of it, is doing. */
static void report_processes(void)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[300];
		DIR *tasks;
		struct dirent *task;

		if (!user_process(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%s", entry->d_name);
		report_file(path, "cmdline");
		snprintf(path, sizeof(path), "/proc/%s/task", entry->d_name);
		tasks = opendir(path);
		while (tasks && (task = readdir(tasks))) {
			char thread[600];

			if (task->d_name[0] == '.')
				continue;
			snprintf(thread, sizeof(thread), "%s/%s", path, task->d_name);
			report_file(thread, "comm");
			report_file(thread, "wchan");
			report_file(thread, "stack");
		}
		if (tasks)
			closedir(tasks);
	}
	if (dir)
		closedir(dir);
}

static void reap(struct run *run)
{
	struct signalfd_siginfo info;
	int wait_status;
	pid_t pid;

	while (read(signal_fd, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		if (run && pid == run->pid) {
			run->wait_status = wait_status;
			run->ended = true;
		}
	}
}

/* Moves what is in a pipe on; returns false at end of file. */
static bool relay(struct run *run, int fd, char type)
{
	static char data[16384];
	ssize_t n = read(fd, data, sizeof(data));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	if (type == 'O' && run->capture) {
		if ((size_t)n > run->capture_size - run->captured)
			n = run->capture_size - run->captured;
		memcpy(run->capture + run->captured, data, n);
		run->captured += n;
	} else {
		put_frame(type, data, n);
	}
	return true;
}

static void exec_child(char **argv, int out, int err, const char *tty)
{
	sigset_t none;
	int in;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (tty) {
		struct winsize size = { 24, 80, 0, 0 };

		in = open(tty, O_RDWR);
		if (in < 0)
			_exit(126);
		out = err = in;
		ioctl(in, TIOCSCTTY, 0);
		if (window_size)
			sscanf(window_size, "%hu %hu", &size.ws_row, &size.ws_col);
		ioctl(in, TIOCSWINSZ, &size);
	} else {
		in = open("/dev/null", O_RDONLY);
	}
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	if (chdir(project_dir))
		dprintf(2, "%s: %m\n", project_dir);
	environ = environment.item;
	execvpe(argv[0], argv, environment.item);
	dprintf(2, "%s: %m\n", argv[0]);
	_exit(errno == ENOENT ? 127 : 126);
}

/*
 * Runs argv to its end or for limit_ms (0: no limit), relaying its output and the kernel's log. After the limit its
 * processes are described in the log, then SIGTERM, then SIGKILL for everything.
 */
static void run_command(struct run *run, char **argv, int limit_ms, const char *tty)
{
	int out[2], err[2];
	long deadline = limit_ms ? now_ms() + limit_ms : 0;
	int stage = 0;

	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		fail("pipe: %m");
	run->pid = fork();
	if (run->pid < 0)
		fail("fork: %m");
	if (!run->pid)
		exec_child(argv, out[1], err[1], tty);
	close(out[1]);
	close(err[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	run->out = out[0];
	run->err = err[0];

	while (!run->ended) {
		struct pollfd fds[] = {
			{ .fd = signal_fd, .events = POLLIN }, { .fd = run->out, .events = POLLIN },
			{ .fd = run->err, .events = POLLIN }, { .fd = kmsg_fd, .events = POLLIN },
		};
		long left = deadline ? deadline - now_ms() : -1;

		if (deadline && left <= 0) {
			if (stage == 0) {
				run->timed_out = true;
				status("timeout");
				report_processes();
				write_file("/proc/sysrq-trigger", "w");
				kill(-run->pid, SIGTERM);
				deadline = now_ms() + TERM_GRACE_MS;
			} else if (stage == 1) {
				kill(-1, SIGKILL);
				deadline = now_ms() + KILL_GRACE_MS;
			} else {
				break;
			}
			stage++;
			continue;
		}
		if (poll(fds, 4, left) < 0 && errno != EINTR)
			fail("poll: %m");
		if (fds[1].revents && !relay(run, run->out, 'O'))
			run->out = -1;
		if (fds[2].revents && !relay(run, run->err, 'E'))
			run->err = -1;
		if (fds[3].revents)
			drain_kmsg();
		if (fds[0].revents)
			reap(run);
		flush_frames();
	}
	/* What was written before the end; an orphan that holds the pipe open is not waited for. */
	for (int i = 0; i < 64 && run->out >= 0; i++) {
		struct pollfd more = { .fd = run->out, .events = POLLIN };

		if (poll(&more, 1, 0) <= 0 || !relay(run, run->out, 'O'))
			break;
	}
	for (int i = 0; i < 64 && run->err >= 0; i++) {
		struct pollfd more = { .fd = run->err, .events = POLLIN };

		if (poll(&more, 1, 0) <= 0 || !relay(run, run->err, 'E'))
			break;
	}
	close(out[0]);
	close(err[0]);
	drain_kmsg();
	flush_frames();
}

/* Kills every process that is left and says which could not be killed. */
static void kill_all(void)
{
	long deadline = now_ms() + KILL_GRACE_MS;
	DIR *dir;
	struct dirent *entry;

	kill(-1, SIGKILL);
	while (now_ms() < deadline) {
		struct pollfd wait = { .fd = signal_fd, .events = POLLIN };

		reap(NULL);
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		poll(&wait, 1, 50);
		drain_kmsg();
	}
	dir = opendir("/proc");
	while (dir && (entry = readdir(dir))) {
		char path[300], name[32] = "?";
		int fd;

		if (!user_process(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0) {
			if (read(fd, name, sizeof(name) - 1) < 0)
				name[0] = 0;
			close(fd);
		}
		name[strcspn(name, "\n")] = 0;
		status("stuck %s %s", entry->d_name, name);
	}
	if (dir)
		closedir(dir);
	report_processes();
	write_file("/proc/sysrq-trigger", "w");
	drain_kmsg();
}

/* Takes over lines KEY=VALUE or KEY='VALUE' of the topology script into the environment. */
static void take_environment(char *text)
{
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *value = strchr(line, '=');
		size_t length = strlen(line);

		if (!value)
			continue;
		if (value[1] == '\'' && line[length - 1] == '\'') {
			line[length - 1] = 0;
			memmove(value + 1, value + 2, strlen(value + 2) + 1);
		}
		add(&environment, line);
	}
}

static void report_end(const char *what, const struct run *run)
{
	if (!run->ended)
		status("%s unkillable", what);
	else if (WIFSIGNALED(run->wait_status))
		status("%s signal %d", what, WTERMSIG(run->wait_status));
	else
		status("%s exit %d", what, WEXITSTATUS(run->wait_status));
}

static void run_setup(void)
{
	static char text[16384];
	struct run run = { .capture = text, .capture_size = sizeof(text) - 1 };

	run_command(&run, setup_args.item, 30000, NULL);
	if (run.timed_out || !WIFEXITED(run.wait_status) || WEXITSTATUS(run.wait_status)) {
		report_end("setup", &run);
		fail("the topology could not be made");
	}
	text[run.captured] = 0;
	take_environment(text);
}

static void run_teardown(void)
{
	struct run run = { 0 };

	if (teardown_args.count) {
		run_command(&run, teardown_args.item, 30000, NULL);
		report_end("teardown", &run);
	}
	for (int i = 0; i < unload_modules.count; i++) {
		if (syscall(SYS_delete_module, unload_modules.item[i], O_NONBLOCK))
			status("unload %s: %m", unload_modules.item[i]);
	}
}

int main(void)
{
	struct run run = { 0 };
	sigset_t mask;
	pid_t loader;

	mount_at("devtmpfs", "/dev", "devtmpfs", 0, "mode=0755");
	mount_at("proc", "/proc", "proc", 0, NULL);
	mount_at("sysfs", "/sys", "sysfs", 0, NULL);
	/* The kernel found no /dev/console in the initramfs. */
	for (int fd = 0; fd < 3; fd++)
		dup2(open("/dev/console", O_RDWR), fd);
	read_settings("/run.conf");
	load_modules(&base_modules);
	port_fd = open_port();
	if (port_fd < 0)
		fail("no virtio-serial port");
	status("boot %ld", now_ms());
	if (probe_only)
		finish();

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	loader = fork();
	if (!loader) {
		load_modules(&late_modules);
		_exit(0);
	}
	mount_root();
	configure();
	waitpid(loader, NULL, 0);
	kmsg_fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	drain_kmsg();
	status("root %ld", now_ms());

	for (int i = 0; i < kernel_objects.count; i++)
		load_module(kernel_objects.item[i], true);
	if (setup_args.count)
		run_setup();
	drain_kmsg();
	status("ready %ld", now_ms());

	run_command(&run, command_args.item, timeout_ms, term);
	report_end(run.timed_out ? "late" : "command", &run);
	kill_all();
	run_teardown();
	usleep(50000);	/* for what the kernel still has to say */
	drain_kmsg();
	sync();
	status("end %ld", now_ms());
	finish();
}
