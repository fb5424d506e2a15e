/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the agent and the stub share. A connection carries frames { u8 type, u32 length (host order), payload }.
 *
 * From the stub, a request: 'E' one string of the environment, 'D' the working folder, 'A' one word of the command, and
 * one of 'R' run it, 'P' only answer, 'Q' answer and end the agent. After 'R': 'I' standard input (empty: its end) and
 * 'S' one byte, a signal for the process group.
 *
 * From the agent: 'P' pid_t of the command, 'O' and 'E' its standard output and error, and last 'X', its wait status.
 */
#ifndef USIW_VM_REMOTE_H
#define USIW_VM_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHUNK		4096	/* of data in a frame */
#define MAX_FRAME	(1 << 17)	/* the kernel takes no longer word of a command */

struct frame {
	char type;
	uint32_t length;
	char *data;	/* of a static buffer, with a 0 behind it */
};

/* A connected or listening TCP socket at "ADDRESS:PORT"; -1 with errno. */
int open_socket(const char *where, bool listening);
/* Reads a frame; false at the end of the stream or when it makes no sense. */
bool read_frame(int fd, struct frame *frame);
/* Writes a frame, however long that takes; false when the other side is gone. */
bool write_frame(int fd, char type, const void *data, uint32_t length);
bool write_all(int fd, const void *data, size_t length);

/* agent.c: serves until a stub asks it to end. */
int serve(const char *where);

/* stub.c */
int run(const char *where, char **command);
/* Asks the agent for an answer ('P') or to end ('Q'), for at most so many seconds. */
int ask(const char *where, char request, int seconds);

#endif
