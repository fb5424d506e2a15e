/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Kernel-user ABI between the kernel side (usiw.ko, or usiw-run, which emulates it) and the provider
 * libusiw. The kernel side owns names, rights and connections, and the provider owns the data. They
 * exchange data by the driver data of the uverbs commands, the event stream of a context, the custom
 * uverbs methods, and the counters pages. Members have the byte order of the processor unless
 * their type is big-endian (__be16).
 *
 * Module and provider may be of different age. The ABI can grow without a new version, because both
 * sides keep these rules:
 * - A structure gets new members at its end only. If a request is shorter than expected, the missing
 *   members count as 0. If it is longer, it is refused (EOPNOTSUPP) unless all further bytes are 0.
 *   The writer of a response writes the smaller of its own size and the caller's. The caller clears
 *   its buffer before the call.
 * - @comp_mask of a request names new members that must be understood. An unknown bit is refused
 *   (EOPNOTSUPP). @comp_mask of a response names new members that are valid. An unknown bit is
 *   ignored.
 * - The capability word has a bit (USIW_CAP_*) for each action that one side may take only if the
 *   other side understands it. An unknown bit is ignored.
 * - A counters page has space for more counters and gauges than there are today.
 * - Reserved and padding members are written as 0. Another value is refused in a request (EINVAL),
 *   and ignored elsewhere.
 *
 * An assert after each structure fixes its size. The two sides are compiled separately and in two
 * languages, so no compiler would notice that their sizes differ.
 */
#ifndef USIW_ABI_H
#define USIW_ABI_H

#include <linux/types.h>

#include "usiw_assert.h"

#define USIW_ABI_VERSION	3	/* version of this header, the newest that the module accepts */
#define USIW_ABI_VERSION_MIN	3	/* oldest version that the module accepts */
#define USIW_DRIVER_ID		0x75736977u	/* "usiw": ib_core accepts any number */
#define USIW_VENDOR_ID		0x757369u	/* "usi", not an assigned OUI. Not 0, which means "no vendor" */

/* ---- Limits: query_device and every check use these --------------------- */
#define USIW_MAX_QP		16384
#define USIW_MAX_CQ		16384
#define USIW_MAX_SRQ		16384
#define USIW_MAX_PD		65536
#define USIW_MAX_AH		65536	/* RoCE face of usiw-run; the module has no address handles */
#define USIW_MAX_MR		(1 << 20)
#define USIW_MAX_MW		(1 << 20)
#define USIW_MAX_MR_SIZE	(1ull << 46)	/* bytes: half of an x86-64 process's addresses */
#define USIW_MAX_QP_WR		32768	/* work requests per send or receive queue */
#define USIW_MAX_SRQ_WR		65536	/* work requests of a shared receive queue */
#define USIW_MAX_CQE		(1 << 20)
#define USIW_MAX_SGE		32	/* every operation, READ included */
#define USIW_MAX_INLINE		1024	/* bytes */
#define USIW_MAX_MSG_SIZE	0x80000000u	/* 2 GiB */

/* Time stamps of completions: CLOCK_MONOTONIC in nanoseconds, with all 64 bits valid. */
#define USIW_CLOCK_KHZ		1000000u
#define USIW_TIMESTAMP_MASK	0xffffffffffffffffull

/* ---- Context ------------------------------------------------------------ */

/*
 * Capabilities. The request GET_CONTEXT has those that the provider understands. The response has the
 * subset that the module will use. A capability is in force only if the response has it.
 */
#define USIW_CAP_DATA_SOCKET	(1ull << 0)	/* CONNECT may have a data socket: USIW_CONN_F_SOCKET */
#define USIW_CAP_PORT_REPORT	(1ull << 1)	/* the provider reports the port of each connection:
						 * USIW_REPORT_PORT */
#define USIW_CAP_PORT_MOVE	(1ull << 2)	/* with both above: a live connection may change its port,
						 * see USIW_MOVE_MS */
#define USIW_CAP_SOCKETS_ONLY	(1ull << 3)	/* with DATA_SOCKET: no connection of this context uses raw
						 * packets. CONNECT never has PACKET, and the handshake
						 * offers USIW_FEATURE_MERGED */
#define USIW_CAP_MERGES		(1ull << 4)	/* with DATA_SOCKET: connections obey USIW_TRP_F_MERGED. The
						 * handshake offers USIW_FEATURE_MERGES */
#define USIW_CAP_SILENT		(1ull << 5)	/* CONNECT may have USIW_CONN_F_SILENT */

/* Driver data of the request GET_CONTEXT. A shorter one is refused. */
struct usiw_alloc_ucontext_req {
	__u32 abi_version;		/* USIW_ABI_VERSION. If the module does not accept it, the call fails
					 * with EPROTO, and the response has @abi_min and @abi_max */
	__u32 comp_mask;		/* no bit yet */
	__aligned_u64 caps;		/* USIW_CAP_* that the provider understands */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_alloc_ucontext_req) == 16, "usiw_alloc_ucontext_req");

/* Present state of the netdev below a device. */
struct usiw_link_info {
	__u32 ifindex;			/* in the netns of the device */
	__u32 mtu;			/* usable IP MTU: min(netdev's, USIW_MAX_MTU), bytes */
	__u32 lo_mtu;			/* the same for lo of that netns, for local connections */
	__u8 mac[6];
	__u8 up;			/* 1: running with carrier */
	__u8 is_loopback;		/* 1: the netdev is lo itself */
	char ifname[16];
	__u32 reserved[3];
};
USIW_STATIC_ASSERT(sizeof(struct usiw_link_info) == 48, "usiw_link_info");

/*
 * Kinds of ports. The response GET_CONTEXT and USIW_REPORT_PORT use these values.
 *
 * In the response they stand for the ports that the context may use, as the comments at the values
 * say. The module answers PACKET. usiw-run answers SOCKET if its user asks for that port, and SHM
 * otherwise. With SHM, or with PACKET and USIW_CAP_DATA_SOCKET, the provider chooses a port for
 * each connection (provider/port/choice.h). In USIW_REPORT_PORT the value is the port of one
 * connection.
 */
enum usiw_port_kind {
	USIW_PORT_PACKET	= 0,	/* a raw port on the device's netdev, and the data sockets whose
					 * descriptors CONNECT records carry */
	USIW_PORT_SOCKET	= 1,	/* only those data sockets */
	USIW_PORT_SHM		= 2,	/* the same sockets, shared memory to peers on this host that use it
					 * too, and a raw port, opened for the first connection that can
					 * use it */
	USIW_PORT_KIND_MAX,
};

/* Driver data of the response GET_CONTEXT. USIW_METHOD_EVENT_FILE_ALLOC opens the event stream. */
struct usiw_alloc_ucontext_resp {
	__aligned_u64 caps;		/* those USIW_CAP_* of the request that the module will use */
	__aligned_u64 counters_offset;	/* mmap offset of the counters page on the uverbs fd */
	__u32 counters_size;		/* bytes to map; 0 (usiw-run only): there is no page */
	__u32 comp_mask;		/* no bit yet */
	__u32 abi_min;			/* oldest version that the module accepts */
	__u32 abi_max;			/* newest version. If the call fails with EPROTO, both are valid too,
					 * as far as the caller's buffer has space */
	__u32 port_kind;		/* enum usiw_port_kind */
	__u32 reserved;
	struct usiw_link_info link;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_alloc_ucontext_resp) == 88, "usiw_alloc_ucontext_resp");

/* ---- CQ, SRQ, QP, MR --------------------------------------------------------- */

struct usiw_create_cq_req {
	__u32 comp_mask;		/* no bit yet */
	__u32 reserved;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_cq_req) == 8, "usiw_create_cq_req");

struct usiw_create_cq_resp {
	__u32 cqn;
	__u32 comp_mask;		/* no bit yet */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_cq_resp) == 8, "usiw_create_cq_resp");

struct usiw_create_srq_req {
	__u32 comp_mask;		/* no bit yet */
	__u32 reserved;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_srq_req) == 8, "usiw_create_srq_req");

/* The context must have opened its event stream. Otherwise the call fails with EINVAL. */
struct usiw_create_qp_req {
	__u32 comp_mask;		/* no bit yet */
	__u32 reserved;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_qp_req) == 8, "usiw_create_qp_req");

struct usiw_create_qp_resp {
	__u32 qpn;
	__u32 stats_size;		/* bytes to map: USIW_COUNTERS_SIZE; 0: the QP has no page */
	__aligned_u64 stats_offset;	/* mmap offset of struct usiw_qp_stats on the uverbs fd */
	__u32 comp_mask;		/* no bit yet */
	__u32 reserved;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_qp_resp) == 24, "usiw_create_qp_resp");

/*
 * MRs and MWs have no driver data. The standard response has the STag: lkey = rkey = STag =
 * (index << 8) | random low byte for an MR. An MW's rkey is built alike, and binding changes its low
 * byte. An index is unique per device; under usiw-run, per process. MRs have the indices 1 to
 * USIW_MAX_MR - 1, and MWs the USIW_MAX_MW indices that follow.
 */

/* ---- Events, kernel to provider: read(2) on the event file --------------- */

/* Types of event records. A provider ignores types that it does not know. */
enum usiw_event_type {
	/* Install this connection on QP @qpn, then report READY or REFUSED. */
	USIW_EVENT_CONNECT	= 1,
	/* Drain the send queue, send SHUTDOWN, then report CLOSED. */
	USIW_EVENT_DISCONNECT	= 2,
	/* The connection is gone (@conn.reason): flush at once. No report is expected. */
	USIW_EVENT_ABORT		= 3,
	/* Send a keepalive probe to the peer now, because a REQ came for the live 4-tuple. */
	USIW_EVENT_PROBE	= 4,
	/* @link has the new state of the netdev. */
	USIW_EVENT_LINK		= 5,
	/* The device is being removed, or the context has ended. No record follows. */
	USIW_EVENT_DEVICE_GONE	= 6,
	/*
	 * The path of the connection has changed. @conn.mtu is valid, from USIW_MIN_MTU up to the
	 * MTU of the handshake. The provider does not exceed the MTU of CONNECT.
	 *
	 * With USIW_CAP_PORT_MOVE, USIW_CONN_F_PACKET in @conn.flags is set while raw packets are permitted
	 * and reach the peer. While it is not set, @conn.not_packet is the reason. @conn.local_mac and
	 * @conn.remote_mac count only with that flag.
	 *
	 * The record has the newest state. So several changes may come as one record, and a record may
	 * equal CONNECT or the PATH before it.
	 */
	USIW_EVENT_PATH		= 7,
};

/*
 * Change of the port of a live connection (USIW_CAP_PORT_MOVE). The provider keeps @data_fd for the
 * life of the connection. It reports the port by which it sends (USIW_REPORT_PORT) no later than
 * READY, and after each change. After it has reported a port other than PACKET, it sends no frame of
 * its own.
 *
 * If IPsec, an encapsulation or a policy begins to forbid raw packets on a connection that uses
 * them, the kernel queues PATH. The provider then has USIW_MOVE_MS to report another port.
 * Otherwise the kernel ends the connection (ABORT). If the provider has closed @data_fd, the kernel
 * ends the connection at once.
 *
 * The provider receives by both ports all the time. While it has reported PACKET, @data_fd gives only
 * datagrams that a raw port cannot have received or used: those that came by another interface or
 * through IPsec, and those that were reassembled from fragments or joined by GRO. While it has
 * reported another port, @data_fd gives all datagrams. In either case a datagram may arrive twice.
 * (Under usiw-run the provider filters its socket by itself: provider/port/beside_filter.h.)
 */
#define USIW_MOVE_MS		2000

#define USIW_CONN_F_INITIATOR	0x1	/* this end sent the REQ */
#define USIW_CONN_F_LOCAL	0x2	/* the route is RTN_LOCAL: data goes over lo */
#define USIW_CONN_F_IPV6	0x4
#define USIW_CONN_F_SOCKET	0x8	/* CONNECT: @data_fd is a data socket, or -errno */
#define USIW_CONN_F_PACKET	0x10	/* CONNECT with SOCKET, and PATH: raw packets reach the peer too, and
					 * the provider chooses. A CONNECT without SOCKET never has the
					 * flag: raw packets are the only port */
#define USIW_CONN_F_SILENT	0x20	/* CONNECT: the QP has connected without rdma_cm. A stray RESET of the
					 * peer is ignored, and a silent peer does not end the connection
					 * while nothing is outstanding (docs/face.md) */

/* Parameters of a connection. Addresses have 16 bytes; IPv4 is mapped (::ffff:a.b.c.d). */
struct usiw_conn_info {
	__u8 local_addr[16];
	__u8 remote_addr[16];
	__be16 local_port;
	__be16 remote_port;
	__u8 local_mac[6];		/* for raw packets: MAC of the device; with LOCAL, of lo */
	__u8 remote_mac[6];		/* for raw packets: MAC of the next hop */
	__u32 flags;			/* USIW_CONN_F_* */
	__u32 snd_psn;			/* first PSN that this end sends */
	__u32 rcv_psn;			/* first PSN that the peer sends */
	__u32 snd_window;		/* first receive window of the peer, datagrams */
	__u16 ird;			/* final: READs and atomics that this end must serve at a time */
	__u16 ord;			/* final: READs and atomics that this end may have outstanding */
	__u16 mtu;			/* IP MTU of the connection, bytes */
	__u8 hop_limit;			/* IPv4 TTL or IPv6 hop limit */
	__u8 tos;			/* IPv4 TOS or IPv6 traffic class */
	__u32 features;			/* USIW_FEATURE_* that both ends use */
	__u32 reason;			/* ABORT: enum usiw_abort_reason */
	/*
	 * With USIW_CONN_F_SOCKET: a UDP socket for the data of the connection, but not for its
	 * handshake. The kernel side makes the descriptor for the process that reads the record, which
	 * owns the descriptor from then on. -errno if it could not be made; 0 without the flag.
	 *
	 * The module connects the socket to the peer. usiw-run binds the socket to the address and port
	 * of the rdma_cm id. All connections of the same address (or of all addresses) and port get
	 * the same socket.
	 */
	__s32 data_fd;
	__u16 not_packet;		/* why raw packets cannot be used, enum usiw_not_packet: CONNECT with
					 * SOCKET and PATH, if PACKET is not set; else NONE */
	/*
	 * MTU on which the handshake has agreed, bytes, the same at both ends. The peer may send
	 * datagrams of this length even if @mtu, the limit of this end, is less because of the route.
	 * 0 from an older kernel side: take @mtu instead.
	 */
	__u16 handshake_mtu;
	__u32 scope;			/* interface of link-local addresses; 0 for other addresses */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_conn_info) == 92, "usiw_conn_info");

/* Reasons why a connection cannot use raw packets. */
enum usiw_not_packet {
	USIW_NOT_PACKET_NONE		= 0,
	USIW_NOT_PACKET_NETDEV		= 1,	/* the route leaves by another interface, or the MAC
						 * of the next hop is not known yet */
	USIW_NOT_PACKET_IPSEC		= 2,	/* an IPsec policy applies to this 4-tuple */
	USIW_NOT_PACKET_ENCAP		= 3,	/* the route adds headers */
	USIW_NOT_PACKET_OWN		= 4,	/* this end cannot use raw packets on any route, or
						 * the ends have agreed on USIW_FEATURE_MERGED */
	USIW_NOT_PACKET_PEER		= 5,	/* the peer, on this host, has no raw port */
};

/* Reasons for an ABORT record. */
enum usiw_abort_reason {
	USIW_ABORT_LOCAL		= 0,	/* this host, for any other reason: QP set to ERROR,
						 * timeout, raw packets forbidden ... */
	USIW_ABORT_PEER_RESET	= 1,	/* a RESET with both ISNs has arrived */
	USIW_ABORT_NO_CONFIRM	= 2,	/* no CONFIRM came for the ACCEPT */
	USIW_ABORT_ADDRESS	= 3,	/* the local address or the device was removed */
};

/* A record of the event stream. */
struct usiw_event {
	__u32 type;			/* enum usiw_event_type */
	__u32 qpn;			/* 0 for LINK and DEVICE_GONE */
	__u32 conn_id;			/* number of the connection, not 0. LINK, DEVICE_GONE: 0 */
	__u32 reserved;
	union {
		struct usiw_conn_info conn;
		struct usiw_link_info link;
		__u8 pad[112];		/* a record has 128 bytes in every version */
	};
};
USIW_STATIC_ASSERT(sizeof(struct usiw_event) == 128, "usiw_event");

/* ---- Custom uverbs methods, provider to kernel --------------------------- */

/*
 * The driver defines an object, the event file. It adds methods to this object and to UVERBS_OBJECT_CQ,
 * UVERBS_OBJECT_SRQ and UVERBS_OBJECT_QP. The numbers of objects, methods and attributes are in the name
 * space of drivers (UVERBS_ID_NS_SHIFT = 12).
 */
enum usiw_objects {
	USIW_OBJECT_EVENT_FILE = (1u << 12),
};

/*
 * Opens the event stream of the context. read(2) returns whole struct usiw_event, poll(2) works, and
 * the descriptor is close-on-exec. A context opens the stream once, before its first QP. Another
 * call fails with EBUSY. Closing the descriptor ends the stream, and it cannot be opened again.
 */
enum usiw_event_file_methods {
	USIW_METHOD_EVENT_FILE_ALLOC = (1u << 12),
};

enum usiw_event_file_alloc_attrs {
	USIW_ATTR_EVENT_FILE_HANDLE = (1u << 12),	/* FD, new */
};

enum usiw_cq_methods {
	USIW_METHOD_CQ_EVENT = (1u << 12),
};

enum usiw_cq_event_attrs {
	USIW_ATTR_CQ_EVENT_HANDLE = (1u << 12),	/* IDR, the CQ, read access */
	USIW_ATTR_CQ_EVENT_KIND,		/* const __u32: enum usiw_cq_event_kind */
};

enum usiw_cq_event_kind {
	USIW_CQ_COMPLETION	= 0,	/* raise one completion event */
	USIW_CQ_OVERRUN		= 1,	/* raise IBV_EVENT_CQ_ERR */
};

enum usiw_srq_methods {
	USIW_METHOD_SRQ_EVENT = (1u << 12),
};

enum usiw_srq_event_attrs {
	USIW_ATTR_SRQ_EVENT_HANDLE = (1u << 12),	/* IDR, the SRQ, read access */
	USIW_ATTR_SRQ_EVENT_KIND,		/* const __u32: enum usiw_srq_event_kind */
};

enum usiw_srq_event_kind {
	USIW_SRQ_LIMIT		= 0,	/* raise IBV_EVENT_SRQ_LIMIT_REACHED */
};

enum usiw_qp_methods {
	USIW_METHOD_QP_REPORT = (1u << 12),
};

enum usiw_qp_report_attrs {
	USIW_ATTR_QP_REPORT_HANDLE = (1u << 12),	/* IDR, the QP, read access */
	/*
	 * const struct usiw_qp_report. An older provider may omit the members from @port on, which
	 * then count as 0. A newer provider may add bytes at the end, which must be 0.
	 */
	USIW_ATTR_QP_REPORT_DATA,
};

enum usiw_report_kind {
	USIW_REPORT_READY	= 1,	/* the connection of CONNECT is installed in the engine */
	USIW_REPORT_REFUSED	= 2,	/* the connection could not be installed, because of @error */
	USIW_REPORT_PEER_CLOSED	= 3,	/* the peer's SHUTDOWN has arrived; the QP is flushed */
	USIW_REPORT_CLOSED	= 4,	/* the stream has ended after DISCONNECT; the QP is flushed.
					 * As a rule the peer has acknowledged the SHUTDOWN */
	/*
	 * The engine has set the QP to ERROR, because of @error. ETIMEDOUT without a connection (@conn_id 0)
	 * on the RoCE face: what the program has posted has waited too long for one.
	 */
	USIW_REPORT_FAILED	= 5,
	USIW_REPORT_ASYNC	= 6,	/* only raise @async_event for the QP */
	USIW_REPORT_PORT	= 7,	/* the connection sends by @port. With USIW_CAP_PORT_REPORT only */
};

/* A report of the provider about a QP. */
struct usiw_qp_report {
	__u32 kind;			/* enum usiw_report_kind */
	__u32 conn_id;			/* as in the event. A report on an earlier connection only
					 * raises @async_event, and the call returns 0 */
	__s32 error;			/* 0 or -errno: ETIMEDOUT retries exhausted, ECONNRESET a stray
					 * RESET that verified, EREMOTEIO Terminate received, EPROTO
					 * Terminate sent, ENOMEM ... */
	__u32 async_event;		/* enum ib_event_type to raise with the report: up to SQ_DRAINED, or
					 * QP_LAST_WQE_REACHED. 0: none */
	/* The members from here on are for PORT only. A request may omit them. */
	__u32 port;			/* enum usiw_port_kind */
	__u32 port_why;			/* enum usiw_port_why */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_qp_report) == 24, "usiw_qp_report");

/* ---- Counters pages -------------------------------------------------------- */

/*
 * Each context and each QP has a page. The process that owns the page counts there, and the kernel
 * reads the counts. An event that belongs to a QP is counted in the page of the QP, any other event
 * in the page of a context. `rdma statistic show` adds up all pages, also those of contexts and QPs
 * that are gone. `rdma resource show qp -dd` shows the page of a QP. A process can write any value
 * there, so the kernel only shows the values and makes no decision by them.
 *
 * New counters are added before USIW_CNT_MAX, which stays below USIW_COUNTERS_ROOM. usiw_names.h has
 * their names. A module that does not know a counter does not show it.
 */
enum usiw_counter {
	USIW_CNT_TX_PKTS,
	USIW_CNT_TX_BYTES,		/* UDP payload */
	USIW_CNT_RX_PKTS,
	USIW_CNT_RX_BYTES,
	USIW_CNT_TX_SACKS,
	USIW_CNT_RX_SACKS,
	USIW_CNT_RETRANS_FAST,		/* sent again: later datagrams have arrived */
	USIW_CNT_RETRANS_RTO,		/* sent again: nothing was acknowledged for an RTO */
	USIW_CNT_RETRANS_RNR,		/* sent again: the peer had no receive posted */
	USIW_CNT_RETRANS_UNSENT,	/* sent again: the port had not accepted it */
	USIW_CNT_SPURIOUS,		/* acknowledgements that show a spurious retransmission */
	USIW_CNT_RTO,			/* time-outs */
	USIW_CNT_PROBES,		/* keepalive probes sent */
	USIW_CNT_RX_DUP,		/* datagrams that had arrived before */
	USIW_CNT_RX_OOO,		/* datagrams that arrived early and were accepted */
	USIW_CNT_RX_HELD,		/* early datagrams that were parked */
	USIW_CNT_NOT_READY_TX,		/* SACKs sent with NOT_READY: no receive is posted here */
	USIW_CNT_NOT_READY_RX,		/* SACKs received with NOT_READY */
	USIW_CNT_DROP_MALFORMED,	/* too short, wrong version, wrong lengths */
	USIW_CNT_DROP_CHECKSUM,
	USIW_CNT_DROP_NO_CONN,		/* no connection with this 4-tuple on this port */
	USIW_CNT_DROP_WINDOW,		/* PSN outside the window */
	USIW_CNT_DROP_RESET,		/* RESET that did not verify */
	USIW_CNT_DROP_STATE,		/* not expected in the state of the QP */
	USIW_CNT_DROP_NO_BUFFER,	/* no buffer left to receive or to park the datagram */
	USIW_CNT_DROP_EARLY,		/* early, neither placed nor parked: the peer sends it again */
	USIW_CNT_TX_FULL,		/* the port accepted fewer datagrams than offered */
	USIW_CNT_TERM_TX,		/* Terminates sent */
	USIW_CNT_TERM_RX,		/* Terminates received */
	USIW_CNT_COMP_OK,		/* COMP_*: completions, by their enum ibv_wc_status */
	USIW_CNT_COMP_FLUSH,
	USIW_CNT_COMP_LOC_LEN,
	USIW_CNT_COMP_LOC_OP,
	USIW_CNT_COMP_LOC_PROT,
	USIW_CNT_COMP_REM_INV,
	USIW_CNT_COMP_REM_ACCESS,
	USIW_CNT_COMP_REM_OP,
	USIW_CNT_COMP_RETRY,
	USIW_CNT_COMP_RNR,
	USIW_CNT_COMP_ERR,		/* any other status */
	USIW_CNT_CQ_OVERRUN,
	USIW_CNT_RX_CE,			/* DATA, SHUTDOWN received with CE: congestion (RFC 3168) */
	USIW_CNT_TX_CE,			/* datagrams acknowledged by headers that report CE: an estimate */
	USIW_CNT_MAX,
};

/*
 * Gauges: the state of a QP's connection, which the engine writes at timers and while datagrams are
 * missing. While the connection sends, a gauge is an RTO old at most.
 */
enum usiw_gauge {
	USIW_GAUGE_SRTT_NS,		/* smoothed RTT; 0: not measured yet */
	USIW_GAUGE_MIN_RTT_NS,
	USIW_GAUGE_RTO_NS,		/* retransmission timeout, back-off included */
	USIW_GAUGE_CWND,		/* congestion window, datagrams */
	USIW_GAUGE_CREDIT,		/* receive window that the peer grants, datagrams */
	USIW_GAUGE_INFLIGHT,		/* datagrams sent, neither acknowledged nor lost */
	USIW_GAUGE_LOST,		/* datagrams to be sent again */
	USIW_GAUGE_HELD,		/* early datagrams that were accepted: one before them is missing */
	USIW_GAUGE_READS_OUT,		/* own READs on the wire */
	USIW_GAUGE_SQ_BUSY,		/* send work requests begun and not complete */
	USIW_GAUGE_PORT,		/* the connection's port: 1 + enum usiw_port_kind; 0: none */
	USIW_GAUGE_PORT_WHY,		/* enum usiw_port_why */
	USIW_GAUGE_MAX,
};

/* Reasons why a connection uses its port. */
enum usiw_port_why {
	USIW_PORT_WHY_NONE	= 0,
	USIW_PORT_WHY_WISH	= 1,	/* the user requested it: USIW_PORT, usiw-run --port */
	USIW_PORT_WHY_FASTEST	= 2,	/* raw packets are permitted and reach the peer */
	USIW_PORT_WHY_SAME_HOST	= 3,	/* the peer is on this host */
	USIW_PORT_WHY_RIGHTS	= 4,	/* the process has no CAP_NET_RAW */
	USIW_PORT_WHY_NETDEV	= 5,	/* as USIW_NOT_PACKET_NETDEV */
	USIW_PORT_WHY_IPSEC	= 6,	/* as USIW_NOT_PACKET_IPSEC */
	USIW_PORT_WHY_ENCAP	= 7,	/* the route adds headers */
	USIW_PORT_WHY_BROKEN	= 8,	/* the raw port could not be opened */
	USIW_PORT_WHY_ONLY	= 9,	/* nothing else was offered */
	USIW_PORT_WHY_NO_SOCKET	= 10,	/* there is no data socket */
	USIW_PORT_WHY_DOWN	= 11,	/* the interface is down */
	USIW_PORT_WHY_MTU	= 12,	/* outstanding datagrams exceed the MTU of the path */
	USIW_PORT_WHY_SILENT	= 13,	/* nothing arrived by the other port */
	USIW_PORT_WHY_LONG	= 14,	/* bulk mode: the kernel carries GSO/GRO aggregates for the socket */
	USIW_PORT_WHY_MAX,
};

#define USIW_COUNTERS_ROOM	256
#define USIW_GAUGES_ROOM	64
#define USIW_COUNTERS_SIZE	4096	/* size of a page of a context or QP, bytes */

/* The page of a QP. The page of a context has the array of counters only. */
struct usiw_qp_stats {
	__aligned_u64 counters[USIW_COUNTERS_ROOM];	/* by enum usiw_counter */
	__aligned_u64 gauges[USIW_GAUGES_ROOM];		/* by enum usiw_gauge */
	/*
	 * Not 0: the program has called rdma_accept() with the QP. The kernel sets this member before that call
	 * returns. From then on sends may be posted. They are sent once the connection is established. The
	 * provider clears the member when the QP is reset.
	 */
	__aligned_u64 accepted;
	__aligned_u64 reserved[191];
};
USIW_STATIC_ASSERT(sizeof(struct usiw_qp_stats) == USIW_COUNTERS_SIZE, "usiw_qp_stats");

#endif /* USIW_ABI_H */
