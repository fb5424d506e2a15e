/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Parts of programs that connect their QPs by themselves, without rdma_cm: a TCP connection over
 * which two processes exchange GIDs and QP numbers, a wait for completions, and a pattern that
 * shows whether data has arrived whole.
 */
#ifndef PEERS_H
#define PEERS_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "must.h"

/* Ends the program with a message, unless @condition is true. */
#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "line %d: not true: %s (errno: %m)\n",     \
				__LINE__, #condition);                             \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

enum { COMPLETION_MS = 20000 };

/* A process sends this to its peer over TCP. */
struct card {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t rkey;
	uint64_t addr;
};

/* Returns a TCP connection to the peer. Without an @address the program waits for its peer. */
static inline int meet(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), peer, one = 1;

	MUST(fd);
	if (address) {
		CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
		MUST(connect(fd, (struct sockaddr *)&at, sizeof(at)));
		return fd;
	}
	MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	MUST(bind(fd, (struct sockaddr *)&at, sizeof(at)));
	MUST(listen(fd, 1));
	MUST(peer = accept(fd, NULL, NULL));
	close(fd);
	return peer;
}

/* Sends @size bytes of @mine, and receives as many into @theirs. */
static inline void exchange(int fd, const void *mine, void *theirs, size_t size)
{
	CHECK(write(fd, mine, size) == (ssize_t)size);
	CHECK(recv(fd, theirs, size, MSG_WAITALL) == (ssize_t)size);
}

/* Waits until the peer calls this function as well. */
static inline void both_here(int fd)
{
	char mine = 0, theirs;

	exchange(fd, &mine, &theirs, 1);
}

/* Waits @ms for the next completion of @cq. Returns false if there is none. */
static inline int next_completion(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	int found = 0;

	for (int waited = 0; found == 0 && waited < ms; waited++) {
		for (int tries = 0; found == 0 && tries < 100; tries++)
			found = ibv_poll_cq(cq, 1, wc);
		if (found == 0)
			poll(NULL, 0, 1);
	}
	CHECK(found >= 0);
	return found;
}

/* Waits for the next completion of @cq, which must be a success. */
static inline struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc = {};
	int found = next_completion(cq, &wc, COMPLETION_MS);

	if (!found || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n", found ? ibv_wc_status_str(wc.status) : "no completion");
		exit(1);
	}
	return wc;
}

/* Fills @size bytes so that their order and the number of the @round show. */
static inline void fill(unsigned char *bytes, size_t size, int round)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256 + round);
}

static inline void check_filled(const unsigned char *bytes, size_t size, int round)
{
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != (unsigned char)(i * 7 + i / 256 + round)) {
			fprintf(stderr, "round %d: byte %zu is wrong\n", round, i);
			exit(1);
		}
	}
}

#endif
