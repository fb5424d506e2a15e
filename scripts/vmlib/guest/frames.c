// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Frames to the host over the virtio-serial port, and the kernel's log. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

#define OUT_BUFFER	65536

int port_fd = -1;
int kmsg_fd = -1;

static char out_buffer[OUT_BUFFER];
static size_t out_used;

long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- frames ---- */

void flush_frames(void)
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

void put_frame(char type, const void *data, size_t length)
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

void status(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_text('S', format, args);
	va_end(args);
}

void diag(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_text('D', format, args);
	va_end(args);
}

void finish(void)
{
	status("done");
	/* The host ends the machine when it reads "done"; this is for when nobody reads. */
	sleep(2);
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

void fail(const char *format, ...)
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

void drain_kmsg(void)
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
