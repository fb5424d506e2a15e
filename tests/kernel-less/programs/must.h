/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Error handling of the programs here: a call that fails ends the program. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>

/* Prints @call with its errno and exits with status 1, if @call returns a negative number. */
#define MUST(call)                                                  \
	do {                                                        \
		if ((call) < 0) {                                   \
			fprintf(stderr, "%s: %m\n", #call);         \
			exit(1);                                    \
		}                                                   \
	} while (0)

#endif
