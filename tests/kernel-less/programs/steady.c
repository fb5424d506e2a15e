/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A connection that carries data until the test has seen enough, and verifies all of it.
 *
 *   steady PORT TIMEOUT            the server, which waits for a TCP connection first
 *   steady PORT TIMEOUT ADDRESS    the client
 *
 * TIMEOUT is the attribute of both QPs; 0 means no limit. In each round the client WRITEs a pattern
 * into the server's memory and sends a SEND. The server compares, and answers by a SEND of another
 * pattern, which the client compares. SIGTERM at the client makes the round the last one, and both
 * ends exit with status 0. If a work request fails, the program prints its status, waits for a line
 * on its standard input, and exits with status 3 if no byte of its memory has changed meanwhile.
 */
#include <signal.h>

#include "own_qp.h"

enum { SIZE = 100000, REPLY = 20000, LIMIT_MS = 120000, GO_ON = 0, LAST = 1, ENDED = 3 };
enum { BY_SEND, BY_RECEIVE }; /* wr_id */

static volatile sig_atomic_t last;

static void on_signal(int number)
{
	(void)number;
	last = LAST;
}

struct steady {
	struct end end;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct card peer;
	/* The bytes that the peer writes into, those of this end, and those of a SEND. */
	unsigned char here[SIZE], mine[SIZE], received[REPLY + 1];
};

/* A work request has failed. The memory has to stay as it is. */
_Noreturn static void ended(struct steady *s, const struct ibv_wc *wc, int rounds)
{
	static struct steady before;
	char line[16];

	memcpy(before.here, s->here, SIZE);
	memcpy(before.received, s->received, sizeof(s->received));
	printf("ended: %s after %d rounds\n", ibv_wc_status_str(wc->status), rounds);
	CHECK(fgets(line, sizeof(line), stdin));
	CHECK(memcmp(before.here, s->here, SIZE) == 0);
	CHECK(memcmp(before.received, s->received, sizeof(s->received)) == 0);
	exit(ENDED);
}

/* Waits for @sends SENDs and WRITEs and for @receives. */
static void wait_for(struct steady *s, int sends, int receives, int rounds)
{
	while (sends > 0 || receives > 0) {
		struct ibv_wc wc;

		CHECK(next_completion(s->end.cq, &wc, LIMIT_MS));
		if (wc.status != IBV_WC_SUCCESS)
			ended(s, &wc, rounds);
		if (wc.wr_id == BY_RECEIVE)
			receives--;
		else
			sends--;
	}
	CHECK(sends == 0 && receives == 0);
}

static void receive_next(struct steady *s)
{
	post_receive(s->qp, BY_RECEIVE, s->mr, s->received, sizeof(s->received));
}

/* Sends SEND with a pattern, and the word whether this round is the last one. */
static void send_pattern(struct steady *s, int round, int is_last)
{
	fill(s->mine, REPLY, round);
	s->mine[REPLY] = is_last;
	post_send(s->qp, BY_SEND, IBV_WR_SEND, s->mr, s->mine, REPLY + 1, NULL);
}

static void be_client(struct steady *s)
{
	int is_last = GO_ON;

	for (int round = 0; is_last == GO_ON; round++) {
		is_last = last;
		fill(s->mine, SIZE, round);
		post_send(s->qp, BY_SEND, IBV_WR_RDMA_WRITE, s->mr, s->mine, SIZE, &s->peer);
		wait_for(s, 1, 0, round);
		send_pattern(s, round + 1, is_last);
		wait_for(s, 1, 1, round);
		check_filled(s->received, REPLY, round + 2);
		CHECK(s->received[REPLY] == is_last);
		receive_next(s);
		if (round == 0 || is_last)
			printf("round %d\n", round);
	}
}

static void be_server(struct steady *s)
{
	int is_last = GO_ON;

	for (int round = 0; is_last == GO_ON; round++) {
		wait_for(s, 0, 1, round);
		check_filled(s->here, SIZE, round);
		check_filled(s->received, REPLY, round + 1);
		is_last = s->received[REPLY];
		receive_next(s);
		send_pattern(s, round + 2, is_last);
		wait_for(s, 1, 0, round);
	}
}

int main(int argc, char **argv)
{
	static struct steady s;
	const char *address = argc > 3 ? argv[3] : NULL;
	struct card mine;
	int fd;

	CHECK(argc > 2);
	signal(SIGTERM, on_signal);
	fd = meet(address, atoi(argv[1]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_end(&s.end, 16);
	CHECK(s.mr = ibv_reg_mr(s.end.pd, &s, sizeof(s),
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	s.qp = new_qp(&s.end, 4);
	init_qp(s.qp);
	receive_next(&s);
	mine = (struct card){ s.end.gid.gid, s.qp->qp_num, s.mr->rkey, (uintptr_t)s.here };
	exchange(fd, &mine, &s.peer, sizeof(mine));
	connect_qp(&s.end, s.qp, &s.peer, atoi(argv[2]));
	(address ? be_client : be_server)(&s);
	both_here(fd);
	return 0;
}
