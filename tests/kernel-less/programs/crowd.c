/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Thousands of QPs whose peers are late.
 *
 *   crowd late PORT COUNT SECONDS             the peers, which wait for a TCP connection first
 *   crowd waits PORT COUNT SECONDS ADDRESS    those that are in RTS first; ADDRESS is the peers'
 *
 * All QPs of "waits" are in RTS before any of "late" leaves INIT. Every second one has a SEND posted
 * already. SECONDS pass: in the first half the process sleeps, and in the second half another pair
 * of QPs of the same two processes carries messages. Then "late" moves its QPs to RTS, and
 * each QP of both ends sends one message. "waits" prints what the time has cost: processor
 * time, UDP datagrams of its network namespace, memory, and round trips of the other pair with and
 * without the crowd.
 */
#include <stdbool.h>
#include <time.h>

#include "own_qp.h"

enum { CARDS_AT_A_TIME = 128, FOR_EVER = 0, EVERYBODY_MS = 60000, ALONE_SECONDS = 1 };
/* The values of the other pair's messages. */
enum { AGAIN = 1, STOP = 2 };
enum { RECEIVED = 1 }; /* Bit of a wr_id; the other ones have twice the index of the QP. */

struct crowd {
	struct end end;
	struct ibv_mr *mr;
	struct ibv_qp **qps; /* the last one belongs to the other pair */
	struct card *mine, *theirs;
	uint32_t *sent, *received; /* a word for each QP */
	int count;
	bool late;
};

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	MUST(clock_gettime(clock, &t));
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

/* ---- What the time costs ---- */

struct cost {
	double at, processor;
	long in, out;
};

static struct cost cost_so_far(void)
{
	struct cost cost = { .at = now(), .processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID) };
	FILE *file = fopen("/proc/self/net/snmp", "r");
	char line[1024];

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "Udp: %ld %*d %*d %ld", &cost.in, &cost.out);
	fclose(file);
	return cost;
}

static void print_cost(const char *what, struct cost from)
{
	struct cost to = cost_so_far();
	double seconds = to.at - from.at;

	printf("%s: %.1f s, processor %.1f %%, datagrams out %ld in %ld, out in a second %.0f\n",
	       what, seconds, 100 * (to.processor - from.processor) / seconds, to.out - from.out,
	       to.in - from.in, (to.out - from.out) / seconds);
}

static void print_memory(const char *what)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "VmRSS: %ld", &kib);
	fclose(file);
	printf("%s: resident memory %ld MiB\n", what, kib / 1024);
}

/* ---- Both pairs ---- */

static uint32_t value(const struct crowd *c, int i, bool of_late)
{
	return of_late ? c->count + i : i;
}

static void post_receive_of(struct crowd *c, int i)
{
	post_receive(c->qps[i], 2 * i + RECEIVED, c->mr, &c->received[i], sizeof(uint32_t));
}

static void post_send_of(struct crowd *c, int i, uint32_t word)
{
	c->sent[i] = word;
	post_send(c->qps[i], 2 * i, IBV_WR_SEND, c->mr, &c->sent[i], sizeof(uint32_t), NULL);
}

/* Waits for the next message of the other pair, and posts the receive for the next one. */
static uint32_t message_of_pair(struct crowd *c)
{
	double from = now();
	struct ibv_wc wc;

	do {
		while (ibv_poll_cq(c->end.cq, 1, &wc) == 0)
			CHECK(now() < from + EVERYBODY_MS / 1000);
		CHECK(wc.status == IBV_WC_SUCCESS);
		CHECK(wc.wr_id / 2 == (uint64_t)c->count); /* none of the crowd is connected */
	} while (!(wc.wr_id & RECEIVED));
	post_receive_of(c, c->count);
	return c->received[c->count];
}

static void answer_messages(struct crowd *c)
{
	for (uint32_t word = 0; word != STOP;) {
		word = message_of_pair(c);
		post_send_of(c, c->count, word);
	}
}

static void exchange_messages(struct crowd *c, const char *what, double seconds)
{
	double from = now(), until = from + seconds;
	long rounds = 0;

	for (uint32_t word = AGAIN; word != STOP; rounds++) {
		word = now() < until ? AGAIN : STOP;
		post_send_of(c, c->count, word);
		CHECK(message_of_pair(c) == word);
	}
	printf("%s: %.0f round trips in a second\n", what, rounds / (now() - from));
}

/* ---- The crowd ---- */

static void open_crowd(struct crowd *c, int fd)
{
	size_t words = c->count + 1, bytes = 2 * words * sizeof(uint32_t);
	double from = now();

	open_end(&c->end, 4 * words);
	CHECK(c->sent = calloc(1, bytes));
	c->received = c->sent + words;
	CHECK(c->mr = ibv_reg_mr(c->end.pd, c->sent, bytes, IBV_ACCESS_LOCAL_WRITE));
	CHECK(c->qps = calloc(words, sizeof(*c->qps)));
	CHECK(c->mine = calloc(words, sizeof(*c->mine)));
	CHECK(c->theirs = calloc(words, sizeof(*c->theirs)));
	for (size_t i = 0; i < words; i++) {
		c->qps[i] = new_qp(&c->end, 2);
		c->mine[i] = (struct card){ .gid = c->end.gid.gid, .qpn = c->qps[i]->qp_num };
		init_qp(c->qps[i]);
		post_receive_of(c, i);
	}
	for (size_t i = 0; i < words; i += CARDS_AT_A_TIME) {
		size_t n = words - i < CARDS_AT_A_TIME ? words - i : CARDS_AT_A_TIME;

		exchange(fd, &c->mine[i], &c->theirs[i], n * sizeof(struct card));
	}
	printf("created in %.2f s\n", now() - from);
	connect_qp(&c->end, c->qps[c->count], &c->theirs[c->count], FOR_EVER);
}

static void connect_crowd(struct crowd *c)
{
	double from = now();

	for (int i = 0; i < c->count; i++)
		connect_qp(&c->end, c->qps[i], &c->theirs[i], FOR_EVER);
	printf("in RTS in %.2f s\n", now() - from);
}

/* Waits until each QP has sent its message and received the one of its peer. */
static void everybody(struct crowd *c)
{
	double from = now();
	struct ibv_wc wc;

	for (int left = 2 * c->count; left > 0; left--) {
		int i;

		if (!next_completion(c->end.cq, &wc, EVERYBODY_MS)) {
			fprintf(stderr, "%d completions are missing\n", left);
			exit(1);
		}
		if (wc.wr_id / 2 == (uint64_t)c->count) {
			left++; /* a SEND of the other pair */
			continue;
		}
		CHECK(wc.status == IBV_WC_SUCCESS);
		i = wc.wr_id / 2;
		if (wc.wr_id & RECEIVED)
			CHECK(c->received[i] == value(c, i, !c->late));
	}
	printf("all messages after %.2f s\n", now() - from);
}

static void run_late(struct crowd *c, int fd, int seconds)
{
	answer_messages(c);
	both_here(fd);
	/* The sleep of the other end, in which nothing arrives. */
	poll(NULL, 0, 1000 * seconds / 2);
	answer_messages(c);
	both_here(fd);
	connect_crowd(c);
	for (int i = 0; i < c->count; i++)
		post_send_of(c, i, value(c, i, true));
}

static void run_waiting(struct crowd *c, int fd, int seconds)
{
	struct cost from;

	exchange_messages(c, "alone", ALONE_SECONDS);
	print_memory("alone");
	connect_crowd(c);
	for (int i = 0; i < c->count; i += 2)
		post_send_of(c, i, value(c, i, false));
	print_memory("waiting");
	from = cost_so_far();
	both_here(fd);
	poll(NULL, 0, 1000 * seconds / 2);
	print_cost("sleeping", from);
	from = cost_so_far();
	exchange_messages(c, "beside the crowd", seconds / 2.0);
	print_cost("exchanging", from);
	both_here(fd);
	for (int i = 1; i < c->count; i += 2)
		post_send_of(c, i, value(c, i, false));
}

int main(int argc, char **argv)
{
	struct crowd c = {};
	int fd, seconds;

	CHECK(argc > 4);
	c.late = strcmp(argv[1], "late") == 0;
	c.count = atoi(argv[3]);
	seconds = atoi(argv[4]);
	fd = meet(argc > 5 ? argv[5] : NULL, atoi(argv[2]));
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_crowd(&c, fd);
	(c.late ? run_late : run_waiting)(&c, fd, seconds);
	everybody(&c);
	print_memory("connected");
	both_here(fd);
	return 0;
}
