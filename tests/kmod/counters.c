// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Pages of counters: values that a process writes into them, and their effect on the totals. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"

/*
 * Returns a total after the kernel has read the pages again. It keeps the last reading for 10 ms.
 */
static uint64_t total(const char *ibdev, const char *name)
{
	unsigned long long value = 0;
	char path[128];
	FILE *f;

	usleep(50000);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", ibdev, name);
	f = fopen(path, "r");
	CHECK(f);
	CHECK_EQ(fscanf(f, "%llu", &value), 1);
	fclose(f);
	return value;
}

/* A QP of @dev and its page. */
static struct usiw_qp_stats *open_qp(struct dev *dev, struct qp *qp)
{
	void *page;

	CHECK_EQ(create_qp(dev, qp), 0);
	CHECK_EQ(qp->stats_size, USIW_COUNTERS_SIZE);
	CHECK(mmap(NULL, 2 * USIW_COUNTERS_SIZE, PROT_READ, MAP_SHARED, dev->fd, qp->stats_offset) ==
	      MAP_FAILED);
	page = mmap(NULL, USIW_COUNTERS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, dev->fd,
		    qp->stats_offset);
	CHECK(page != MAP_FAILED);
	return page;
}

void test_counters(void)
{
	struct usiw_qp_stats *stats, *other;
	uint64_t before, i;
	struct qp qp, second;
	struct dev dev;

	before = total(a_dev, "probes");
	CHECK_EQ(dev_open(&dev, a_dev), 0);
	stats = open_qp(&dev, &qp);
	for (i = 0; i < USIW_COUNTERS_SIZE; i++)
		CHECK_EQ(((const char *)stats)[i], 0);

	/* Pages of contexts and QPs add up. */
	dev.counters[USIW_CNT_PROBES] = 100;
	stats->counters[USIW_CNT_PROBES] = 20;
	other = open_qp(&dev, &second);
	other->counters[USIW_CNT_PROBES] = 3;
	CHECK_EQ(total(a_dev, "probes"), before + 123);

	/* A process that decreases a counter does not decrease the total. */
	stats->counters[USIW_CNT_PROBES] = 0;
	CHECK_EQ(total(a_dev, "probes"), before + 123);
	stats->counters[USIW_CNT_PROBES] = 21;
	CHECK_EQ(total(a_dev, "probes"), before + 124);

	/*
	 * Destroying the QP or the context does not change the totals. A page that is still mapped
	 * no longer counts.
	 */
	CHECK_EQ(destroy_qp(&qp), 0);
	CHECK_EQ(total(a_dev, "probes"), before + 124);
	stats->counters[USIW_CNT_PROBES] = 1000;
	CHECK_EQ(total(a_dev, "probes"), before + 124);
	CHECK(mmap(NULL, USIW_COUNTERS_SIZE, PROT_READ, MAP_SHARED, dev.fd, qp.stats_offset) ==
	      MAP_FAILED);
	munmap(stats, USIW_COUNTERS_SIZE);
	munmap(other, USIW_COUNTERS_SIZE);
	dev_close(&dev);
	CHECK_EQ(total(a_dev, "probes"), before + 124);
}
