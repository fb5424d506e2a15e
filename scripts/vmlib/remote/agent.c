// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The agent: one process for each connection, its keeper, which starts the command and answers for it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote.h"

struct list {
	char **item;
	size_t count;
};

static void add(struct list *list, const char *text)
{
	list->item = realloc(list->item, (list->count + 2) * sizeof(char *));
	if (!list->item || !(list->item[list->count++] = strdup(text)))
		_exit(1);
	list->item[list->count] = NULL;
}

/* What came for the command's standard input and did not fit into its pipe yet. */
static char input[MAX_FRAME];
static size_t input_at, input_end;

static void feed(int *in)
{
	while (*in >= 0 && input_at < input_end) {
		ssize_t n = write(*in, input + input_at, input_end - input_at);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno != EINTR) {	/* nobody reads it any more */
			close(*in);
			*in = -1;
		}
		input_at += n > 0 ? n : 0;
	}
	input_at = input_end = 0;
}

static void exec_command(char *folder, struct list *command, struct list *environment, const int fds[3])
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	for (int i = 0; i < 3; i++)
		dup2(fds[i], i);
	if (folder && chdir(folder))
		dprintf(2, "%s: %m\n", folder);
	environ = environment->item;
	execvp(command->item[0], command->item);
	dprintf(2, "%s: %m\n", command->item[0]);
	_exit(errno == ENOENT ? 127 : 126);
}

/* Moves what is in a pipe on; false at its end. */
static bool relay(int from, int to, char type)
{
	char data[CHUNK];
	ssize_t n = read(from, data, sizeof(data));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	return n > 0 && write_frame(to, type, data, n);
}

/* Does what the stub says about a running command; false when the stub is gone. */
static bool obey(int fd, pid_t pid, int *in)
{
	struct frame frame;

	if (!read_frame(fd, &frame))
		return false;
	if (frame.type == 'S' && frame.length == 1) {
		kill(-pid, (unsigned char)frame.data[0]);
	} else if (frame.type == 'I' && frame.length) {
		memcpy(input, frame.data, frame.length);
		input_end = frame.length;
		feed(in);
	} else if (frame.type == 'I' && *in >= 0) {
		close(*in);
		*in = -1;
	}
	return true;
}

/* True once the command has ended; it stays a zombie, whose number no other process group can get. */
static bool has_ended(pid_t pid)
{
	siginfo_t info = { 0 };

	return !waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid == pid;
}

/*
 * Stays with the command until it, or the stub, has ended. Input that the command does not take holds back signals that
 * come after it, but not the end of the stub.
 */
static void keep(int fd, pid_t pid, int signals, int in, int out[2])
{
	int status;

	for (;;) {
		struct pollfd fds[] = {
			{ .fd = signals, .events = POLLIN },
			{ .fd = fd, .events = POLLRDHUP | (input_end ? 0 : POLLIN) },
			{ .fd = out[0], .events = POLLIN }, { .fd = out[1], .events = POLLIN },
			{ .fd = input_end ? in : -1, .events = POLLOUT },
		};

		if (poll(fds, 5, -1) < 0 && errno != EINTR)
			break;
		if (fds[2].revents && !relay(out[0], fd, 'O'))
			out[0] = -1;
		if (fds[3].revents && !relay(out[1], fd, 'E'))
			out[1] = -1;
		if (fds[4].revents)
			feed(&in);
		if (fds[1].revents & POLLIN && !obey(fd, pid, &in))
			break;
		if (fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR))
			break;
		if (fds[0].revents && has_ended(pid)) {
			/* What it wrote before its end; an orphan that holds the pipes open is not waited for. */
			for (int i = 0; i < 2; i++) {
				struct pollfd more = { .fd = out[i], .events = POLLIN };

				while (out[i] >= 0 && poll(&more, 1, 0) > 0 && relay(out[i], fd, "OE"[i]))
					;
			}
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			write_frame(fd, 'X', &status, sizeof(status));
			return;
		}
	}
	kill(-pid, SIGKILL);
}

static void start(int fd, char *folder, struct list *command, struct list *environment)
{
	int in[2], out[2], err[2], signals;
	sigset_t mask;
	pid_t pid;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		return;
	pid = fork();
	if (pid < 0)
		return;
	if (!pid)
		exec_command(folder, command, environment, (int[]){ in[0], out[1], err[1] });
	close(in[0]);
	close(out[1]);
	close(err[1]);
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	if (write_frame(fd, 'P', &pid, sizeof(pid)))
		keep(fd, pid, signals, in[1], (int[]){ out[0], err[0] });
	else
		kill(-pid, SIGKILL);
}

static void answer(int fd)
{
	struct list command = { 0 }, environment = { 0 };
	char *folder = NULL;
	struct frame frame;
	int status = 0;

	while (read_frame(fd, &frame)) {
		switch (frame.type) {
		case 'E':
			add(&environment, frame.data);
			break;
		case 'A':
			add(&command, frame.data);
			break;
		case 'D':
			folder = strdup(frame.data);
			break;
		case 'R':
			if (command.count && environment.count)
				start(fd, folder, &command, &environment);
			return;
		case 'Q':
			write_frame(fd, 'X', &status, sizeof(status));
			kill(getppid(), SIGTERM);
			return;
		default:
			write_frame(fd, 'X', &status, sizeof(status));
			return;
		}
	}
}

static void end(int number)
{
	(void)number;
	_exit(0);
}

int serve(const char *where)
{
	int listener = open_socket(where, true);

	if (listener < 0) {
		fprintf(stderr, "remote: %s: %m\n", where);
		return 1;
	}
	signal(SIGTERM, end);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		if (!fork()) {
			signal(SIGTERM, SIG_DFL);
			signal(SIGCHLD, SIG_DFL);
			answer(fd);
			_exit(0);
		}
		close(fd);
	}
}
