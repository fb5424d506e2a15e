// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The stub: stands here for a command that runs in the other guest. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "remote.h"

#define STATUS_LOST	255	/* the agent is gone, or was never there */

static const int passed_on[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT };

static bool send_request(int fd, char **command)
{
	char folder[4096];

	for (char **item = environ; *item; item++) {
		if (!write_frame(fd, 'E', *item, strlen(*item)))
			return false;
	}
	if (getcwd(folder, sizeof(folder)) && !write_frame(fd, 'D', folder, strlen(folder)))
		return false;
	for (char **word = command; *word; word++) {
		if (!write_frame(fd, 'A', *word, strlen(*word)))
			return false;
	}
	return write_frame(fd, 'R', "", 0);
}

static void note_pid(pid_t pid, bool ended)
{
	char path[64], part[80];
	int fd;

	snprintf(path, sizeof(path), "/run/remote/%d", getpid());
	if (ended) {
		unlink(path);
		return;
	}
	mkdir("/run/remote", 01777);
	snprintf(part, sizeof(part), "%s.part", path);	/* whoever looks sees the whole number */
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	dprintf(fd, "%d", pid);
	close(fd);
	rename(part, path);
}

/* Ends as the command did. */
static int end_like(int status)
{
	struct rlimit none = { 0, 0 };
	sigset_t mask;

	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	setrlimit(RLIMIT_CORE, &none);
	signal(WTERMSIG(status), SIG_DFL);
	sigemptyset(&mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	raise(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}

/* Takes a frame of the agent; false when there will be no more of them. */
static bool take(int fd, int *status, bool *ended)
{
	struct frame frame;
	pid_t pid;

	if (!read_frame(fd, &frame))
		return false;
	if (frame.type == 'O' || frame.type == 'E') {
		write_all(frame.type == 'O' ? 1 : 2, frame.data, frame.length);
	} else if (frame.type == 'P' && frame.length == sizeof(pid)) {
		memcpy(&pid, frame.data, sizeof(pid));
		note_pid(pid, false);
	} else if (frame.type == 'X' && frame.length == sizeof(*status)) {
		memcpy(status, frame.data, sizeof(*status));
		*ended = true;
		return false;
	}
	return true;
}

static void pass_signal(int signals, int fd)
{
	struct signalfd_siginfo info;
	char number;

	while (read(signals, &info, sizeof(info)) == sizeof(info)) {
		number = info.ssi_signo;
		write_frame(fd, 'S', &number, 1);
	}
}

int run(const char *where, char **command)
{
	int fd, signals, status = 0;
	bool input = true, ended = false;
	char data[CHUNK];
	sigset_t mask;

	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		sigaddset(&mask, passed_on[i]);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	fd = open_socket(where, false);
	if (fd < 0 || signals < 0 || !send_request(fd, command)) {
		fprintf(stderr, "remote: %s: %m\n", where);
		return STATUS_LOST;
	}
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = fd, .events = POLLIN }, { .fd = signals, .events = POLLIN },
			{ .fd = input ? 0 : -1, .events = POLLIN },
		};

		if (poll(fds, 3, -1) < 0)
			continue;
		if (fds[0].revents && !take(fd, &status, &ended))
			break;
		if (fds[1].revents)
			pass_signal(signals, fd);
		if (fds[2].revents) {
			ssize_t n = read(0, data, sizeof(data));

			if (n >= 0 || errno != EINTR) {
				input = n > 0;
				write_frame(fd, 'I', data, n > 0 ? n : 0);
			}
		}
	}
	note_pid(0, true);
	if (!ended) {
		fprintf(stderr, "remote: %s: the agent is gone\n", where);
		return STATUS_LOST;
	}
	return end_like(status);
}

static long seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

int ask(const char *where, char request, int seconds)
{
	long deadline = seconds_now() + seconds;
	struct frame frame;

	signal(SIGPIPE, SIG_IGN);
	alarm(seconds + 1);	/* a connection that hangs is no answer either */
	do {
		int fd = open_socket(where, false);

		if (fd >= 0) {
			if (write_frame(fd, request, "", 0) && read_frame(fd, &frame) && frame.type == 'X')
				return 0;
			close(fd);
		}
		usleep(50000);
	} while (seconds_now() < deadline);
	fprintf(stderr, "remote: no answer from %s within %d s\n", where, seconds);
	return 1;
}
