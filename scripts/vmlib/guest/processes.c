// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Running commands, and what is told about processes that hang. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

#define TERM_GRACE_MS	2000	/* between SIGTERM and SIGKILL after a time-out */
#define KILL_GRACE_MS	8000	/* for processes to die after SIGKILL */

int signal_fd = -1;

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
		if (settings.winsize)
			sscanf(settings.winsize, "%hu %hu", &size.ws_row, &size.ws_col);
		ioctl(in, TIOCSWINSZ, &size);
	} else {
		in = open("/dev/null", O_RDONLY);
	}
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	if (chdir(settings.project))
		dprintf(2, "%s: %m\n", settings.project);
	environ = settings.env.item;
	execvpe(argv[0], argv, settings.env.item);
	dprintf(2, "%s: %m\n", argv[0]);
	_exit(errno == ENOENT ? 127 : 126);
}

void run_command(struct run *run, char **argv, int limit_ms, const char *tty)
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
				deadline = now_ms() + TERM_GRACE_MS * settings.patience;
			} else if (stage == 1) {
				kill(-1, SIGKILL);
				deadline = now_ms() + KILL_GRACE_MS * settings.patience;
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

void kill_all(void)
{
	long deadline = now_ms() + KILL_GRACE_MS * settings.patience;
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
