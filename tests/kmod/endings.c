// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Changes under a connection in use: the end of a process, a netdev, a device or a network
 * namespace.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

/* ---- Death ------------------------------------------------------------- */

/* Starts a child that stops at @stage and waits to be killed. */
static pid_t child(int stage, int port)
{
	pid_t pid = fork();
	uint32_t id;
	struct qp qp;

	if (pid)
		return pid;
	end_open(&a, a_dev, a_ip);
	end_qp(&a, &qp);
	if (stage >= 1)
		id = resolve_to(&a, b_ip, port);
	a.mute = stage < 3;
	if (stage >= 2)
		CHECK_EQ(cm_connect(&a.cm, id, qp.qpn, 1, 1, "k", 1), 0);
	for (;;)
		engines(&a, 1000);
}

static void kill_and_reap(pid_t pid, int stage)
{
	double t = now_s();
	int status;

	kill(pid, SIGKILL);
	while (waitpid(pid, &status, WNOHANG) == 0 && now_s() - t < 5 * patience())
		engines(&b, 10);
	if (now_s() - t >= 5 * patience()) {
		char command[64];

		printf("  stage %d: cannot be killed:\n", stage);
		snprintf(command, sizeof(command), "cat /proc/%d/stack", pid);
		CHECK_EQ(system(command), 0);
	}
	CHECK(now_s() - t < 5 * patience());
	CHECK(WIFSIGNALED(status));
}

void test_kill(void)
{
	uint32_t listen_id;
	struct cm_event ev;
	struct qp qp;
	pid_t pid;

	ends_close(&a, &b);
	end_open(&b, b_dev, b_ip);
	listen_id = listen_on(&b, b_ip, PORT, 8);
	for (int stage = 0; stage < 6; stage++) {
		pid = child(stage, PORT);
		end_qp(&b, &qp);
		if (stage < 2)
			engines(&b, 300);
		else
			CHECK(expect(&b, EV_CONNECT_REQUEST, &ev, 5000));
		if (stage >= 3)
			CHECK_EQ(cm_accept(&b.cm, ev.id, qp.qpn, 1, 1, NULL, 0), 0);
		if (stage >= 4)
			CHECK(expect(&b, EV_ESTABLISHED, NULL, 5000));
		b.seen[USIW_EVENT_ABORT] = 0;
		kill_and_reap(pid, stage);
		if (stage == 3)
			CHECK(expect(&b, EV_ESTABLISHED, NULL, 5000));
		if (stage >= 3)
			CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
		if (stage >= 2)
			CHECK_EQ(cm_destroy_id(&b.cm, ev.id), 0);
		CHECK_EQ(destroy_qp(&qp), 0);
		b.nr_qps--;
	}
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	end_close(&b);
	ends_open(&a, &b);
}

/* ---- The netdev -------------------------------------------------------- */

/* The MAC of a netdev of this network namespace, as text. */
static void mac_of(const char *ifname, char text[18])
{
	struct ifreq req = {};
	const unsigned char *mac = (unsigned char *)req.ifr_hwaddr.sa_data;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", ifname);
	CHECK_EQ(ioctl(fd, SIOCGIFHWADDR, &req), 0);
	close(fd);
	snprintf(text, 18, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

void test_netdev(void)
{
	const char *va = a.dev.info.link.ifname, *vb = b.dev.info.link.ifname;
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	char mac[18];
	struct pair p;

	a.seen[USIW_EVENT_LINK] = 0;
	enter(&a);
	sh("ip link set %s mtu 1400", va);
	CHECK(expect_record(&a, USIW_EVENT_LINK, 1, 2000));
	CHECK_EQ(a.last[USIW_EVENT_LINK].link.mtu, 1400);
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	CHECK_EQ(a.last[USIW_EVENT_CONNECT].conn.mtu, 1400);
	CHECK_EQ(b.last[USIW_EVENT_CONNECT].conn.mtu, 1400);

	/*
	 * A process that takes raw packets closes the data socket. The module then reports changes
	 * that the kernel would handle for a socket.
	 */
	CHECK_EQ(a.last[USIW_EVENT_CONNECT].conn.flags & PORT_FLAGS, PORT_FLAGS);
	CHECK_EQ(close(a.last[USIW_EVENT_CONNECT].conn.data_fd), 0);

	/* The MAC of the peer changes, and the kernel learns the new one. */
	enter(&b);
	mac_of(vb, mac);
	sh("ip link set %s address 02:00:00:00:00:77", vb);
	enter(&a);
	sh("ip neigh replace %s lladdr 02:00:00:00:00:77 dev %s", b_ip, va);
	CHECK(expect_record(&a, USIW_EVENT_PATH, 1, 3000));
	CHECK_EQ(a.last[USIW_EVENT_PATH].conn.remote_mac[5], 0x77);
	/* An entry with the old MAC, for example by IPv6, would lose datagrams for seconds. */
	enter(&b);
	sh("ip link set %s address %s", vb, mac);
	enter(&a);
	sh("ip neigh del %s dev %s", b_ip, va);

	/* The connections of an address end when the address is removed. */
	a.seen[USIW_EVENT_ABORT] = 0;
	sh("ip addr del %s/%d dev %s", a_ip, a.ns_fd < 0 ? 32 : 24, va);
	CHECK(expect_record(&a, USIW_EVENT_ABORT, 1, 3000));
	CHECK_EQ(a.last[USIW_EVENT_ABORT].conn.reason, USIW_ABORT_ADDRESS);
	CHECK(expect(&a, EV_DISCONNECTED, NULL, 3000));
	sh("ip addr add %s/%d dev %s", a_ip, a.ns_fd < 0 ? 32 : 24, va);
	sh("ip link set %s mtu 1500", va);
	if (a.ns_fd < 0)
		sh("ip route replace %s dev %s src %s table 101", b_ip, va, a_ip);
	finish(&a, &b, &p);
	while (expect(&b, EV_DISCONNECTED, NULL, 50))
		;
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
}

/* ---- Removal ----------------------------------------------------------- */

void test_remove(void)
{
	uint32_t listen_id = listen_on(&b, b_ip, PORT, 8);
	char va[16];
	struct usiw_event ev;
	struct pair p;
	double t;

	memcpy(va, a.dev.info.link.ifname, sizeof(va));
	establish(&a, &b, listen_id, b_ip, PORT, &p);
	t = now_s();
	enter(&a);
	sh("rdma link delete %s", a_dev);
	CHECK(now_s() - t < 5 * patience());
	CHECK(expect(&b, EV_DISCONNECTED, NULL, 3000));
	CHECK(expect_record(&a, USIW_EVENT_DEVICE_GONE, 1, 1000));
	CHECK_EQ(read(a.dev.event_fd, &ev, sizeof(ev)), 0);
	CHECK_EQ(qp_state(&p.qa, NULL, NULL), -EIO);
	end_close(&a);
	CHECK_EQ(cm_destroy_id(&b.cm, p.idb), 0);
	CHECK_EQ(destroy_qp(&p.qb), 0);
	CHECK_EQ(cm_destroy_id(&b.cm, listen_id), 0);
	sh("rdma link add %s type usiw netdev %s", a_dev, va);
	CHECK(system("rdma link add usiwx type usiw netdev lo >/dev/null && "
		     "! rdma link add usiwy type usiw netdev lo 2>/dev/null && "
		     "rdma link delete usiwx") == 0);
	usleep(300000);
	end_close(&b);
	ends_open(&a, &b);
}

/* A network namespace ends with its devices while contexts and sockets are open. */
void test_netns(void)
{
	struct sockaddr_storage any;
	struct pollfd pfd;
	struct dev dev;
	struct qp qp;
	struct cm cm;
	uint32_t id;
	double t;
	int fd;

	sh("ip netns add usiw-t");
	sh("ip -n usiw-t link add vt type veth peer name vu && ip -n usiw-t link set vt up && "
	   "ip -n usiw-t link set vu up && ip -n usiw-t link set lo up && "
	   "ip -n usiw-t addr add 10.77.0.1/24 dev vt");
	sh("ip netns exec usiw-t rdma link add usiwt type usiw netdev vt && "
	   "ip netns exec usiw-t rdma link add usiwl type usiw netdev lo");
	fd = open("/run/netns/usiw-t", O_RDONLY | O_CLOEXEC);
	CHECK_EQ(setns(fd, CLONE_NEWNET), 0);
	close(fd);
	CHECK_EQ(dev_open(&dev, "usiwt"), 0);
	CHECK_EQ(create_qp(&dev, &qp), 0);
	CHECK_EQ(cm_open(&cm), 0);
	addr_set(&any, "::", PORT + 1);
	CHECK_EQ(cm_create_id(&cm, &id), 0);
	CHECK_EQ(cm_bind(&cm, id, &any), 0);
	CHECK_EQ(cm_listen(&cm, id, 8), 0);
	sh("grep -q usiw /proc/modules && ss -uanHp | grep -q ':%d '", PORT + 1);
	/* The ids of rdma_cm hold the namespace, but no object of usiw does. */
	cm_close(&cm);
	fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK_EQ(setns(fd, CLONE_NEWNET), 0);
	close(fd);
	t = now_s();
	sh("ip netns del usiw-t");
	pfd = (struct pollfd){ .fd = dev.event_fd, .events = POLLIN };
	for (int i = 0; i < 100 && !(pfd.revents & POLLHUP); i++) {
		poll(&pfd, 1, 0);
		usleep(100000);
	}
	CHECK(pfd.revents & POLLHUP);
	printf("  gone after %.1f s\n", now_s() - t);
	dev_close(&dev);
}
