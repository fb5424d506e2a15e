/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Functions by which tests use the mock: they inject errors, let time pass, deliver datagrams, and
 * ask for violations.
 */
#ifndef MOCK_H
#define MOCK_H

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls that can be made to fail. */
enum mock_call {
	MOCK_ALLOC,		/* memory, arrays, numbers */
	MOCK_SOCKET,		/* sock_create, bind, v6only, sendmsg */
	MOCK_COPY,		/* to and from user memory */
	MOCK_FILE,		/* descriptors and files */
	MOCK_NET,		/* routes, neighbours */
	MOCK_CORE,		/* ib_core, iw_cm's queue, notifiers, workqueues */
	MOCK_CALLS,
};

/* Bit n makes the n-th such call from now on fail. */
extern u64 mock_errors[MOCK_CALLS];
/* The same for all kinds together; mock_fallible counts the calls since mock_inject(). */
extern u64 mock_any_errors;
extern unsigned int mock_fallible;
void mock_inject(u64 any_errors);
/* The same for calls after the first @skip. */
void mock_inject_after(unsigned int skip, u64 any_errors);
/* Returns true once for each set bit. @what: for messages. */
bool mock_fails(enum mock_call kind, const char *what);

void mock_reset(void);

/*
 * Functions that the mock calls at certain points: at an allocation, at a look-up of a route, at a
 * copy to the user, when a random number is drawn, at cond_resched(), while a device is registered
 * but cannot be found yet, and when it can be found.
 */
extern void (*mock_on_alloc)(void);
extern void (*mock_on_route)(void);
extern void (*mock_on_copy_to_user)(void);
extern void (*mock_on_random)(void);
extern void (*mock_on_resched)(void);
extern void (*mock_on_register)(void);
extern void (*mock_on_registered)(void);

/* Context. */
void mock_softirq_begin(void);
void mock_softirq_end(void);

/*
 * Runs the work that is due and returns its number. mock_advance_ms() moves the clock and runs the
 * work that becomes due.
 */
unsigned int mock_run(void);
void mock_advance_ms(unsigned int ms);
/*
 * Maximum number of works that were queued under spin locks without a pause, since a test has set
 * it to 0.
 */
extern unsigned int mock_most_queued;
/* Memory, work and callbacks of the kernel that are left at the end of a test. */
unsigned int mock_allocations(void);
unsigned int mock_pending_works(void);
void mock_grace_period(void);
/* Number of allocations without __GFP_ACCOUNT outside of softirq; and the last one. */
extern unsigned int mock_unaccounted;
extern const char *mock_unaccounted_site;
/*
 * Bytes that the cgroup of an address space pays for; and the number of references to all cgroups.
 */
size_t mock_charged(const struct mm_struct *mm);
int mock_memcg_refs(void);
void mock_idle_check(const char *where);
const char *mock_first_allocation(void);
void *mock_tracked(void *p, size_t size, const char *site);

/*
 * Interfaces: "lo", "eth0" (192.0.2.1, 2001:db8::1, fe80::1), "eth1" (192.0.2.2, 2001:db8::2, fe80::2), and two VLANs
 * of eth0 with its MAC: "eth0.3" (192.0.2.3, 2001:db8::3, fe80::1, too) and "eth0.4" (192.0.2.4, 2001:db8::4, fe80::4).
 */
extern struct net init_net;
struct net_device *mock_netdev(const char *name);
void mock_notify_netdev(struct net_device *dev, unsigned long event);
void mock_remove_addr(struct net_device *dev, const struct in6_addr *addr);
void mock_neigh_update(struct net_device *dev, const struct in6_addr *addr, const u8 *mac);
void mock_net_exit(struct net *net);
extern bool mock_neigh_known;
extern u8 mock_neigh_mac[ETH_ALEN];
extern unsigned int mock_neigh_used;	/* times that a neighbour was used as if to send */
extern int mock_routes, mock_neighbours, mock_sockets;
/*
 * Routes from now on: the interface that all leave by (NULL: that of the source address), a tunnel
 * in them, the path's MTU (0: the interface's), and the result of IPsec: 1 if a policy applies, or
 * an error.
 */
extern struct net_device *mock_route_dev;
extern u32 mock_user;			/* user of the calling process */
extern u32 mock_route_user;		/* user for whom a route was looked up last */
extern const void *mock_route_encap;
extern unsigned int mock_route_mtu;
extern int mock_ipsec;

/* Datagrams that were sent, oldest first. */
struct mock_datagram {
	struct in6_addr from, to;
	__be16 from_port, to_port;
	u8 tos;
	u32 len;
	u8 data[2048];
	bool no_checksum;	/* its checksum field is 0 ... */
	bool partial;		/* ... or holds what a NIC is to finish */
	struct net_device *via;	/* interface that received it; NULL: that of its address */
	bool decrypted, reassembled;
};
unsigned int mock_sent(void);
bool mock_take(struct mock_datagram *d);
/* Delivers a datagram to its socket, from softirq. @linear: bytes in the head of the skb. */
bool mock_deliver(const struct mock_datagram *d, unsigned int linear);
/* The same for an aggregate of datagrams of @size bytes, of which the last may be shorter. */
bool mock_deliver_merged(const struct mock_datagram *d, unsigned int size);
/*
 * Returns the socket of a descriptor of the process. mock_queued() returns the number of skbs that
 * wait in it.
 */
struct socket *mock_socket(int fd);
int mock_queued(const struct socket *sock);
/* Maximum number of sockets of a port that UDP walks for each datagram. */
unsigned int mock_hashed(__be16 port);
/* Returns true if the kernel builds GRO aggregates for the port (UDP_GRO). */
bool mock_port_merges(__be16 port);
/*
 * Change that a BPF program of the process's cgroup makes to the IPv4 address of connect(); 0:
 * none.
 */
extern int mock_bpf_peer;
/* Change that it makes to the address of bind(); 0: none. */
enum { MOCK_BPF_BINDS_A_PORT = 1, MOCK_BPF_BINDS_AN_ADDRESS };
extern int mock_bpf_binds;
extern int mock_modules;	/* references of the module */
void mock_deliver_icmp(const struct mock_datagram *d, unsigned int payload);
void mock_deliver_too_big(const struct mock_datagram *d, unsigned int payload, unsigned int mtu);
bool mock_port_is_open(const struct in6_addr *addr, __be16 port);
extern int mock_foreign_port;	/* port of another owner, host order; 0: none */

/* The last thread of the process has left its memory. */
void mock_mm_exit(struct mm_struct *mm);

/* Files of the process. */
struct file *mock_file(int fd);
void mock_close(int fd);
int mock_open_fds(void);

/* ib_core. */
extern struct rdma_link_ops *mock_link_ops;
struct ib_device *mock_device(const char *netdev);
/*
 * Does what ib_core does when a device goes, after the test has destroyed its objects. A caller
 * that waits does this for devices whose unregistration was queued.
 */
void mock_unregister(struct ib_device *dev);
/*
 * The first step of it takes the device from the module's own client. The second call gives it
 * back.
 */
void mock_take_from_client(struct ib_device *dev);
void mock_give_to_client(struct ib_device *dev);
bool mock_unregister_queued(void);
extern struct ib_event mock_last_event;
extern unsigned int mock_events;

#ifdef __cplusplus
}
#endif

#endif /* MOCK_H */
