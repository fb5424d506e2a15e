// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Tests the module by its raw ABIs: objects, hostile arguments, connections and how they end. The
 * program needs the two-ended topology of scripts/vm (A_DEV, A_IP, A_IP6, B_...). It runs all
 * cases, or those named, and prints one line for each. Its exit status is 0 if all pass.
 */
#define _GNU_SOURCE
#include <stdarg.h>

#include "cases.h"

const char *a_dev, *b_dev, *a_ip, *b_ip, *a_ip6, *b_ip6;

struct end a, b;

void sh(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	CHECK_EQ(system(command), 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "context", test_context },
	{ "counters", test_counters },
	{ "queues", test_queues },
	{ "qp_states", test_qp_states },
	{ "mr", test_mr },
	{ "methods", test_methods },
	{ "abi", test_abi },
	{ "pages", test_pages },
	{ "handed_over", test_handed_over },
	{ "closed_under_way", test_closed_under_way },
	{ "fork_shares", test_fork_shares },
	{ "any_ioctl", test_any_ioctl },
	{ "unread_events", test_unread_events },
	{ "connect", test_connect },
	{ "reject", test_reject },
	{ "silence", test_silence },
	{ "refused_by_engine", test_refused_by_engine },
	{ "destroy_qp_first", test_destroy_qp_first },
	{ "abrupt", test_abrupt },
	{ "hostile_order", test_hostile_order },
	{ "wildcard", test_wildcard },
	{ "port_spaces", test_port_spaces },
	{ "crossing", test_crossing },
	{ "many", test_many },
	{ "kill", test_kill },
	{ "netdev", test_netdev },
	{ "datagrams", test_datagrams },
	{ "moves", test_moves },
	{ "remove", test_remove },
	{ "netns", test_netns },
};

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 1;
}

/* uapi_test [CASE ...]; uapi_test --list names the cases. */
int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			puts(tests[i].name);
		return 0;
	}
	a_dev = getenv("A_DEV");
	b_dev = getenv("B_DEV");
	a_ip = getenv("A_IP");
	b_ip = getenv("B_IP");
	a_ip6 = getenv("A_IP6");
	b_ip6 = getenv("B_IP6");
	if (!a_dev || !b_dev || !a_ip || !b_ip || !a_ip6 || !b_ip6) {
		fprintf(stderr, "uapi_test: run it by scripts/vm, which sets A_DEV, A_IP ...\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	ends_open(&a, &b);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		double t = now_s();

		if (!wanted(tests[i].name, argc, argv))
			continue;
		tests[i].run();
		printf("ok %s (%.1f s)\n", tests[i].name, now_s() - t);
	}
	ends_close(&a, &b);
	return 0;
}
