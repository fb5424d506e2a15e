// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A hostile process: pages that it maps, descriptors that it passes to others, calls that run
 * during the end and over fork(), and any call with any argument. None of this disturbs the other
 * end or later users.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static uint32_t random_word(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 16;
}

/* Everything works as it did. */
static void check_ends(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	struct pair p;

	establish(&a, &b, listen_id, b_ip, PORT, &p);
	finish(&a, &b, &p);
	while (expect(&b, EV_DISCONNECTED, NULL, 50))
		;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/* ---- Pages: any word of what is mapped, while the kernel adds them up and shows them ---- */

void test_pages(void)
{
	uint64_t *page;
	struct dev dev;
	struct qp qp;
	pid_t child;

	CHECK_EQ(dev_open(&dev, a_dev), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	page = mmap(NULL, USIW_COUNTERS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, dev.fd, qp.stats_offset);
	CHECK(page != MAP_FAILED);
	child = fork();
	if (!child) {
		/*
		 * Small numbers in the counters from which totals are made, because totals never
		 * decrease.
		 */
		for (;;)
			for (size_t i = 0; i < USIW_COUNTERS_SIZE / sizeof(*page); i++) {
				dev.counters[i] = random_word() & 0xff;
				page[i] = i < USIW_CNT_MAX ? random_word() & 0xff :
					  (uint64_t)random_word() << 32 | random_word();
			}
	}
	enter(&a);
	for (int i = 0; i < 20; i++)
		sh("rdma statistic show link %s/1 >/dev/null && rdma resource show qp -dd >/dev/null", a_dev);
	kill(child, SIGKILL);
	CHECK_EQ(waitpid(child, NULL, 0), child);
	/*
	 * Mappings of more than a page, of another process's page, and beyond all pages are
	 * refused.
	 */
	for (int i = 0; i < 1000; i++) {
		off_t at = (off_t)(random_word() % 64) * 4096 << random_word() % 24;
		size_t size = 4096 * (1 + random_word() % 4);
		void *more = mmap(NULL, size, PROT_READ, MAP_SHARED, dev.fd, at);

		if (more == MAP_FAILED)
			continue;
		CHECK_EQ(size, 4096);
		munmap(more, size);
	}
	munmap(page, USIW_COUNTERS_SIZE);
	dev_close(&dev);
	check_ends();
}

/* ---- The event descriptor ---- */

static void *read_to_the_end(void *arg)
{
	struct usiw_event ev;
	const int *fd = arg;
	ssize_t n, records = 0;

	while ((n = read(*fd, &ev, sizeof(ev))) == sizeof(ev))
		records++;
	return (void *)(n ? -1 : records);
}

/* Passes a descriptor over a socket pair. */
static void pass_fd(int sock, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	CHECK_EQ(sendmsg(sock, &msg, 0), 1);
}

static int passed_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	CHECK_EQ(recvmsg(sock, &msg, 0), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Two threads of another process wait on the stream when its context ends. */
static void other_process(int sock)
{
	int fd = passed_fd(sock), flags = fcntl(fd, F_GETFL);
	pthread_t threads[2];
	void *records[2];

	fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, read_to_the_end, &fd), 0);
	usleep(100000);
	CHECK_EQ(write(sock, "", 1), 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &records[i]);
	/* Both get DEVICE_GONE once, then the end of the file. */
	CHECK_EQ((intptr_t)records[0] + (intptr_t)records[1], 1);
	_exit(0);
}

void test_handed_over(void)
{
	int socks[2], status;
	struct dev dev;
	struct qp qp;
	pid_t child;
	char byte;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks), 0);
	child = fork();
	if (!child)
		other_process(socks[1]);
	CHECK_EQ(dev_open(&dev, a_dev), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	pass_fd(socks[0], dev.event_fd);
	CHECK_EQ(read(socks[0], &byte, 1), 1);
	dev_close(&dev);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	close(socks[0]);
	close(socks[1]);
	check_ends();
}

/* A thread reads while another closes the descriptor and then the context. */
void test_closed_under_way(void)
{
	pthread_t thread;
	void *records;
	struct dev dev;
	int fd;

	for (int i = 0; i < 20; i++) {
		CHECK_EQ(dev_open(&dev, a_dev), 0);
		fd = dev.event_fd;
		CHECK_EQ(pthread_create(&thread, NULL, read_to_the_end, &fd), 0);
		if (i % 2)
			usleep(2000);
		dev_close(&dev);
		pthread_join(thread, &records);
		/* The read that had begun gets the end. A later one finds no descriptor. */
		CHECK((intptr_t)records == 1 || (intptr_t)records == -1);
	}
	check_ends();
}

/* A child has the descriptors of its parent and lives longer. */
void test_fork_shares(void)
{
	struct usiw_event ev;
	int go[2], status;
	struct dev dev;
	struct qp qp;
	pid_t child;
	char byte;

	CHECK_EQ(pipe2(go, O_CLOEXEC), 0);
	CHECK_EQ(dev_open(&dev, a_dev), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	child = fork();
	if (!child) {
		close(go[1]);
		CHECK_EQ(read(go[0], &byte, 1), 0);
		/*
		 * ib_core accepts ioctls, but not write(2), from a process that was given the file.
		 */
		CHECK_EQ(cq_event(&dev, dev.cq, USIW_CQ_COMPLETION), 0);
		CHECK_EQ(cq_event(&dev, dev.cq, USIW_CQ_OVERRUN), 0);
		CHECK_EQ(qp_report(&qp, USIW_REPORT_READY, 1, 0, 0), 0);
		CHECK_EQ(qp_report(&qp, USIW_REPORT_ASYNC, 1, 0, 3), 0);
		CHECK_EQ(open_events(dev.fd), -EBUSY);
		dev.counters[0]++;
		CHECK_EQ(fcntl(dev.event_fd, F_SETFL, O_NONBLOCK), 0);
		CHECK(read(dev.event_fd, &ev, sizeof(ev)) < 0 && errno == EAGAIN);
		_exit(0);
	}
	dev_close(&dev);
	close(go[0]);
	close(go[1]);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	check_ends();
}

/* ---- Any method with any argument ---- */

void test_any_ioctl(void)
{
	static const uint16_t objects[] = {
		UVERBS_OBJECT_DEVICE, UVERBS_OBJECT_PD, UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP, USIW_OBJECT_EVENT_FILE,
	};
	static const uint16_t lengths[] = { 0, 4, 8, 15, 16, 17, 128, 4096, UINT16_MAX };
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[3];
	} cmd;
	static uint32_t data[UINT16_MAX / 4 + 1];
	struct dev dev;
	struct qp qp;

	CHECK_EQ(dev_open(&dev, a_dev), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	for (int i = 0; i < 50000; i++) {
		uint32_t word = random_word();

		if (i % 1000 == 0) {	/* in any state */
			modify_qp(&qp, word % 8);
			for (size_t n = 0; n < sizeof(data) / sizeof(data[0]); n++)
				data[n] = n < 8 ? random_word() >> random_word() % 32 : 0;
		}
		memset(&cmd, 0, sizeof(cmd));
		cmd.hdr.object_id = objects[word % 5];
		cmd.hdr.method_id = (word & 0x100 ? 1u << 12 : 0) + (word >> 9) % 4;
		cmd.hdr.num_attrs = (word >> 11) % 4;
		cmd.hdr.length = sizeof(cmd.hdr) + cmd.hdr.num_attrs * sizeof(cmd.attrs[0]);
		cmd.hdr.driver_id = word & 0xe000 ? USIW_DRIVER_ID : word;
		for (int n = 0; n < 3; n++) {
			word = random_word();
			cmd.attrs[n].attr_id = (1u << 12) + (word & 15 ? (uint32_t)n : word >> 4 & 3);
			cmd.attrs[n].len = n ? lengths[(word >> 8) % 9] : word & 0xf0 ? 0 : word >> 16;
			cmd.attrs[n].flags = word & 0x3000 ? UVERBS_ATTR_F_MANDATORY : word >> 8;
			cmd.attrs[n].data = word >> 28 ? (uintptr_t)data : word;
			if (!n && word >> 28)
				cmd.attrs[n].data = word & 1 ? dev.cq : qp.handle;
		}
		ioctl(dev.fd, RDMA_VERBS_IOCTL, &cmd);
	}
	CHECK_EQ(destroy_qp(&qp), 0);
	dev_close(&dev);
	check_ends();
}

/* ---- Events raised for ever, and read late or never ---- */

#define GROUP	"/sys/fs/cgroup/usiw-unread"

static long slab_kb(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];
	long kb = -1;

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Slab: %ld kB", &kb) == 1)
			break;
	fclose(f);
	CHECK(kb > 0);
	return kb;
}

/* Returns the number of records that a descriptor has, and reads all of them. */
static int records_in(int fd, size_t size)
{
	uint8_t record[16];
	int n = 0;

	CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (read(fd, record, size) == (ssize_t)size)
		n++;
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
	return n;
}

static void *read_one(void *arg)
{
	uint64_t desc;

	return (void *)(intptr_t)read(*(int *)arg, &desc, sizeof(desc));
}

/* A reader that waits gets the next event, whatever events were raised and left out before. */
static void check_reader_wakes(struct dev *dev, int raised_before)
{
	pthread_t reader;
	void *got;

	CHECK_EQ(pthread_create(&reader, NULL, read_one, &dev->comp_fd), 0);
	if (!raised_before) {
		usleep(20000);
		CHECK_EQ(cq_event(dev, dev->cq, USIW_CQ_COMPLETION), 0);
	}
	pthread_join(reader, &got);
	CHECK_EQ((intptr_t)got, 8);
}

static void raise_for_ever(void)
{
	long before;
	struct dev dev;
	struct qp qp;

	CHECK_EQ(dev_open(&dev, a_dev), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	before = slab_kb();
	for (int i = 0; i < 60000; i++) {
		CHECK_EQ(cq_event(&dev, dev.cq, USIW_CQ_COMPLETION), 0);
		CHECK_EQ(cq_event(&dev, dev.cq, USIW_CQ_OVERRUN), 0);
		CHECK_EQ(qp_report(&qp, USIW_REPORT_ASYNC, 0, 0, 1 + i % 5), 0);
	}
	/* Without a bound there would be 180,000 records of 64 bytes, 11.5 MB. */
	CHECK(slab_kb() - before < 3000);
	check_reader_wakes(&dev, 1);
	CHECK_EQ(records_in(dev.comp_fd, 8), 3);
	CHECK_EQ(records_in(dev.async_fd, 16), 1 + 5);
	for (int i = 0; i < 20; i++)
		check_reader_wakes(&dev, 0);
	CHECK_EQ(records_in(dev.comp_fd, 8), 0);
	CHECK_EQ(destroy_qp(&qp), 0);
	dev_close(&dev);
	_exit(0);
}

/* The limit of the cgroup would not stop it, because uverbs charges nobody for events. */
void test_unread_events(void)
{
	int status;
	pid_t child;

	sh("echo +memory >/sys/fs/cgroup/cgroup.subtree_control && "
	   "mkdir %s && echo 16M >%s/memory.max", GROUP, GROUP);
	child = fork();
	if (!child) {
		sh("echo %d >%s/cgroup.procs", (int)getpid(), GROUP);
		raise_for_ever();
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	sh("until rmdir %s; do sleep 0.1; done", GROUP);
	CHECK_EQ(status, 0);
	check_ends();
}
