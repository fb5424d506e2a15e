// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Runs commands in the other guest, as if they ran here:
 *
 *	remote serve ADDRESS:PORT		the agent, in the guest where the commands run
 *	remote run ADDRESS:PORT COMMAND...	the stub: gives the command its environment, working folder, standard input
 *						and signals, and takes its output and end over
 *	remote wait ADDRESS:PORT SECONDS	until the agent answers
 *	remote stop ADDRESS:PORT SECONDS	ends the agent
 *
 * A stub that is killed takes the command's process group with it, and so does a command that ends. The stub leaves the
 * command's process id over there in the file /run/remote/PID, PID being its own.
 *
 * It is a static C program because under emulation the start of an interpreter costs 0.3 s. There is no authentication:
 * the wire of control joins nothing but the two guests.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote.h"

static char buffer[MAX_FRAME + 1];

int open_socket(const char *where, bool listening)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	const char *colon = strchr(where, ':');
	char host[64];
	int one = 1, fd;

	if (!colon || colon - where >= (int)sizeof(host)) {
		errno = EINVAL;
		return -1;
	}
	snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
	address.sin_port = htons(atoi(colon + 1));
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listening ? bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 128)
		      : connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

static bool transfer(int fd, char *at, size_t length, bool out)
{
	while (length) {
		ssize_t n = out ? write(fd, at, length) : read(fd, at, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		length -= n;
	}
	return true;
}

bool read_frame(int fd, struct frame *frame)
{
	if (!transfer(fd, &frame->type, 1, false) || !transfer(fd, (char *)&frame->length, 4, false) ||
	    frame->length > MAX_FRAME)
		return false;
	frame->data = buffer;
	buffer[frame->length] = 0;
	return transfer(fd, buffer, frame->length, false);
}

bool write_all(int fd, const void *data, size_t length)
{
	return transfer(fd, (char *)data, length, true);	/* which is only read there */
}

bool write_frame(int fd, char type, const void *data, uint32_t length)
{
	char header[5] = { type };

	memcpy(header + 1, &length, 4);
	return write_all(fd, header, sizeof(header)) && write_all(fd, data, length);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc >= 4 && !strcmp(argv[1], "run"))
		return run(argv[2], argv + 3);
	if (argc == 4 && !strcmp(argv[1], "wait"))
		return ask(argv[2], 'P', atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "stop"))
		return ask(argv[2], 'Q', atoi(argv[3]));
	fprintf(stderr, "usage: remote serve|run|wait|stop ADDRESS:PORT ...\n");
	return 2;
}
