/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Kernel-user ABI between usiw.ko (or usiw-run, which plays it) and the provider libusiw:
 * driver data of the uverbs commands, the event stream of a context, the custom uverbs
 * methods, and the counters pages. Host byte order unless a type says otherwise.
 *
 * How it grows without a new version:
 * - Structures get new members at their end only. Who reads a request takes what is missing
 *   at its end as 0, and refuses (EOPNOTSUPP) a longer one unless the rest is 0. Who writes
 *   a response writes the smaller of its own size and the caller's; the caller clears its
 *   buffer before.
 * - @comp_mask of a request names new members that must be understood: an unknown bit is
 *   refused (EOPNOTSUPP). @comp_mask of a response names the new members that are valid:
 *   an unknown bit is ignored.
 * - What one side must not do unless the other understands it has a bit in the capability
 *   word (USIW_CAP_*): an unknown bit is ignored.
 * - Counters and gauges have fixed room in their page.
 * Every reserved or padding member is 0 when written; in a request another value is refused
 * (EINVAL), elsewhere ignored.
 *
 * An assert after each structure fixes its size. The two sides are compiled apart and in two
 * languages, so no compiler would notice that their sizes differ.
 */
#ifndef USIW_ABI_H
#define USIW_ABI_H

#include <linux/types.h>

/* As in usiw_wire.h, which may come first. */
#ifndef USIW_STATIC_ASSERT
#ifdef __cplusplus
#define USIW_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
#else
#define USIW_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#endif
#endif

#define USIW_ABI_VERSION	3	/* of this header, and the newest that the module speaks */
#define USIW_ABI_VERSION_MIN	3	/* the oldest that it still speaks */
#define USIW_DRIVER_ID		0x75736977u	/* "usiw": ib_core takes any number */
#define USIW_VENDOR_ID		0x757369u	/* "usi": nobody's OUI, and not 0, which programs take for none */

/* ---- Limits: the only place; query_device and every check use these ---- */
#define USIW_MAX_QP		16384
#define USIW_MAX_CQ		16384
#define USIW_MAX_SRQ		16384
#define USIW_MAX_PD		65536
#define USIW_MAX_MR		(1 << 20)
#define USIW_MAX_MW		(1 << 20)
#define USIW_MAX_MR_SIZE	(1ull << 46)	/* bytes: half of what a process may map */
#define USIW_MAX_QP_WR		32768	/* work requests per send or receive queue */
#define USIW_MAX_SRQ_WR		65536	/* work requests of a shared receive queue */
#define USIW_MAX_CQE		(1 << 20)
#define USIW_MAX_SGE		32	/* of every operation, READ included */
#define USIW_MAX_INLINE		1024	/* bytes */
#define USIW_MAX_MSG_SIZE	0x80000000u	/* 2 GiB */

/* The clock of the completions' time stamps: CLOCK_MONOTONIC in nanoseconds, all 64 bits of it. */
#define USIW_CLOCK_KHZ		1000000u
#define USIW_TIMESTAMP_MASK	0xffffffffffffffffull

/* ---- Context ------------------------------------------------------------ */

/*
 * Capabilities. The provider says which it understands, the module answers which of those
 * it will use: only these change what either does.
 */
#define USIW_CAP_DATA_SOCKET	(1ull << 0)	/* CONNECT may bring a data socket: USIW_CONN_F_SOCKET */
#define USIW_CAP_PORT_TELL	(1ull << 1)	/* the provider tells each connection's port:
						 * USIW_REPORT_PORT */
#define USIW_CAP_PORT_MOVE	(1ull << 2)	/* with the two above: a live connection may change its
						 * port, as USIW_EVENT_PATH says */
#define USIW_CAP_SOCKETS_ONLY	(1ull << 3)	/* with DATA_SOCKET: no connection of this context ever goes
						 * by raw packets. CONNECT never has PACKET, and the
						 * handshake offers USIW_FEATURE_MERGED */
#define USIW_CAP_MERGES		(1ull << 4)	/* with DATA_SOCKET: connections heed USIW_TRP_F_MERGED. The
						 * handshake offers USIW_FEATURE_MERGES */

/* Driver data of GET_CONTEXT, request. All of it is needed. */
struct usiw_alloc_ucontext_req {
	__u32 abi_version;		/* USIW_ABI_VERSION; if the module does not speak it the call fails
					 * with EPROTO, and the response has @abi_min and @abi_max */
	__u32 comp_mask;		/* no bit yet */
	__aligned_u64 caps;		/* USIW_CAP_*: understood by the provider */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_alloc_ucontext_req) == 16, "usiw_alloc_ucontext_req");

/* State of the netdev below a device, as of now. */
struct usiw_link_info {
	__u32 ifindex;			/* in the netns of the device */
	__u32 mtu;			/* usable IP MTU: min(netdev's, USIW_MAX_MTU), bytes */
	__u32 lo_mtu;			/* the same of that netns' lo, for local connections */
	__u8 mac[6];
	__u8 up;			/* 1: running with carrier */
	__u8 is_loopback;		/* 1: the netdev is lo itself */
	char ifname[16];
	__u32 reserved[3];
};
USIW_STATIC_ASSERT(sizeof(struct usiw_link_info) == 48, "usiw_link_info");

/*
 * Which ports a context has. The module answers PACKET, and where USIW_CAP_DATA_SOCKET is agreed
 * the provider chooses for each connection from what CONNECT offers (provider/port/choice.h).
 * usiw-run answers SOCKET or SHM, as its user says; of these SHM leaves the provider the choice.
 * Of a connection: USIW_REPORT_PORT.
 */
enum usiw_port_kind {
	USIW_PORT_PACKET	= 0,	/* a raw port on the netdev of @link; others as CONNECT offers */
	USIW_PORT_SOCKET	= 1,	/* the sockets that come with CONNECT, and nothing else */
	USIW_PORT_SHM		= 2,	/* these, shared memory to peers on this host that have it, and a raw
					 * port, made when the first connection comes that it can serve */
	USIW_PORT_KIND_MAX,
};

/* Driver data of GET_CONTEXT, response. The event stream is opened by USIW_METHOD_EVENT_FILE_ALLOC. */
struct usiw_alloc_ucontext_resp {
	__aligned_u64 caps;		/* USIW_CAP_*: of the request's, those that the module will use */
	__aligned_u64 counters_offset;	/* mmap offset of the counters page on the uverbs fd */
	__u32 counters_size;		/* bytes to map */
	__u32 comp_mask;		/* no bit yet */
	__u32 abi_min;			/* versions that the module speaks: also when the call fails */
	__u32 abi_max;			/* with EPROTO, if there is room for them */
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

/* The context must have opened its event stream, or the call fails with EINVAL. */
struct usiw_create_qp_req {
	__u32 comp_mask;		/* no bit yet */
	__u32 reserved;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_qp_req) == 8, "usiw_create_qp_req");

struct usiw_create_qp_resp {
	__u32 qpn;
	__u32 stats_size;		/* bytes to map: USIW_COUNTERS_SIZE; 0: there is no page */
	__aligned_u64 stats_offset;	/* mmap offset of struct usiw_qp_stats on the uverbs fd */
	__u32 comp_mask;		/* no bit yet */
	__u32 reserved;
};
USIW_STATIC_ASSERT(sizeof(struct usiw_create_qp_resp) == 24, "usiw_create_qp_resp");

/* MR: lkey = rkey = STag = (index << 8) | random low byte, in the standard response; an MW's rkey is of
 * the same shape, but for its low byte, which binding changes. An index is unique per device: 1 to
 * USIW_MAX_MR - 1 of MRs, the USIW_MAX_MW next ones of MWs. No driver data. */

/* ---- Events, kernel to provider: read(2) on the event file --------------- */

/* A provider ignores types that it does not know. */
enum usiw_event_type {
	/* Install this connection on QP @qpn and answer with USIW_REPORT_READY. */
	USIW_EVENT_CONNECT	= 1,
	/* Drain the send queue, send SHUTDOWN, then report CLOSED. */
	USIW_EVENT_DISCONNECT	= 2,
	/* The connection is gone (@conn.reason): flush at once. No report is expected. */
	USIW_EVENT_ABORT		= 3,
	/* Send the peer a keepalive probe now (comes when a REQ came for a live 4-tuple). */
	USIW_EVENT_PROBE	= 4,
	/* @link holds the new state of the netdev. */
	USIW_EVENT_LINK		= 5,
	/* The device is being removed; the fd is at its end. */
	USIW_EVENT_DEVICE_GONE	= 6,
	/*
	 * The path of the connection has changed: @conn.local_mac, @conn.remote_mac, @conn.mtu (from
	 * USIW_MIN_MTU up to that of CONNECT), and with USIW_CAP_PORT_MOVE also USIW_CONN_F_PACKET
	 * in @conn.flags, which is set while raw packets are permitted and get there, and
	 * @conn.not_packet, which says why not; the MACs count with the flag only. It is the newest
	 * state: several changes may come as one record, and one may be as CONNECT or the one before.
	 */
	USIW_EVENT_PATH		= 7,
};

/*
 * How a live connection moves (USIW_CAP_PORT_MOVE). The provider keeps @data_fd for the life of the
 * connection and says by USIW_REPORT_PORT which port it sends by: before READY or with it, and
 * after each move. From a report of another port than PACKET on it sends no frame of its own.
 *
 * If IPsec, an encapsulation or a policy begins to forbid raw packets on a connection that uses
 * them, the kernel queues PATH. The provider then has USIW_MOVE_MS to report another port.
 * Otherwise the connection ends (ABORT), and it ends at once if the provider has closed @data_fd.
 *
 * It receives by both ports all the time. While it has reported PACKET, @data_fd gives what a raw
 * port cannot have seen or used: what came by another interface or through IPsec, or was put together
 * of fragments or of several datagrams. Else it gives all. Also then a datagram may come twice.
 * (usiw-run leaves that to the provider, whose socket it is: provider/port/beside_filter.h.)
 */
#define USIW_MOVE_MS		2000

#define USIW_CONN_F_INITIATOR	0x1	/* this end sent the REQ */
#define USIW_CONN_F_LOCAL	0x2	/* the route is RTN_LOCAL: data goes over lo */
#define USIW_CONN_F_IPV6	0x4
#define USIW_CONN_F_SOCKET	0x8	/* CONNECT: @data_fd is a data socket, or -errno */
#define USIW_CONN_F_PACKET	0x10	/* CONNECT with SOCKET, PATH: raw packets get there as well, and
					 * the provider chooses. Without SOCKET there is nothing else */

/* Parameters of a connection. Addresses are 16 bytes; IPv4 is mapped (::ffff:a.b.c.d). */
struct usiw_conn_info {
	__u8 local_addr[16];
	__u8 remote_addr[16];
	__be16 local_port;
	__be16 remote_port;
	__u8 local_mac[6];		/* of the device; with LOCAL of lo (zeros as a rule) */
	__u8 remote_mac[6];		/* next hop */
	__u32 flags;			/* USIW_CONN_F_* */
	__u32 snd_psn;			/* first PSN this end sends */
	__u32 rcv_psn;			/* first PSN expected from the peer */
	__u32 snd_window;		/* datagrams the peer accepts at first */
	__u16 ird;			/* final, >= what this end must serve */
	__u16 ord;			/* final */
	__u16 mtu;			/* IP MTU of the connection, bytes */
	__u8 hop_limit;			/* IPv4 TTL or IPv6 hop limit */
	__u8 tos;
	__u32 features;			/* as agreed */
	__u32 reason;			/* ABORT: enum usiw_abort_reason */
	/*
	 * With USIW_CONN_F_SOCKET a UDP socket for the connection's data datagrams; handshakes
	 * stay with the control path. The descriptor is made for the process
	 * that reads the record, which owns it from then on; -errno if it could not be made. 0
	 * without the flag. usiw-run's socket is as the id was bound, and all connections of that
	 * address (or of all) and port get the same one; the module's is connected to the peer.
	 */
	__s32 data_fd;
	__u32 not_packet;		/* CONNECT and PATH without PACKET: enum usiw_not_packet */
	__u32 scope;			/* interface of link-local addresses; 0: they are none */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_conn_info) == 92, "usiw_conn_info");

/* Why a connection's frames are not the engine's to send. */
enum usiw_not_packet {
	USIW_NOT_PACKET_NONE		= 0,
	USIW_NOT_PACKET_NETDEV		= 1,	/* the route leaves by another interface */
	USIW_NOT_PACKET_IPSEC		= 2,	/* a policy orders IPsec for this 4-tuple */
	USIW_NOT_PACKET_ENCAP		= 3,	/* the route adds headers */
	USIW_NOT_PACKET_OWN		= 4,	/* this end is without: USIW_CAP_SOCKETS_ONLY, or it has told
						 * the peer so (USIW_FEATURE_MERGED) */
	USIW_NOT_PACKET_PEER		= 5,	/* the peer, on this host, is without */
};

enum usiw_abort_reason {
	USIW_ABORT_LOCAL		= 0,	/* this host: QP to ERROR, time-out of a hand-shake step */
	USIW_ABORT_PEER_RESET	= 1,	/* the peer's kernel sent a RESET that verified */
	USIW_ABORT_NO_CONFIRM	= 2,
	USIW_ABORT_ADDRESS	= 3,	/* local address or device went away */
};

struct usiw_event {
	__u32 type;			/* enum usiw_event_type */
	__u32 qpn;			/* 0 for LINK and DEVICE_GONE */
	__u32 conn_id;			/* never 0; names this connection of the QP */
	__u32 reserved;
	union {
		struct usiw_conn_info conn;
		struct usiw_link_info link;
		__u8 pad[112];		/* room: a record has 128 bytes for good */
	};
};
USIW_STATIC_ASSERT(sizeof(struct usiw_event) == 128, "usiw_event");

/* ---- Custom uverbs methods, provider to kernel --------------------------- */

/*
 * An object of its own, methods on it and on UVERBS_OBJECT_CQ, UVERBS_OBJECT_SRQ and
 * UVERBS_OBJECT_QP, and their attributes. Numbers start in the driver's name space (UVERBS_ID_NS_SHIFT = 12).
 */
enum usiw_objects {
	USIW_OBJECT_EVENT_FILE = (1u << 12),
};

/*
 * Opens the context's event stream: read(2) gives whole struct usiw_event, poll(2) works,
 * close-on-exec. Once for each context, before its first QP; EBUSY from then on, also when
 * the descriptor has been closed, which ends the stream.
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
	USIW_ATTR_QP_REPORT_DATA,			/* struct usiw_qp_report, or longer with zeros */
};

enum usiw_report_kind {
	USIW_REPORT_READY	= 1,	/* CONNECT is installed in the engine */
	USIW_REPORT_REFUSED	= 2,	/* CONNECT could not be installed; @error says why */
	USIW_REPORT_PEER_CLOSED	= 3,	/* the peer's SHUTDOWN has arrived; the QP is flushed */
	USIW_REPORT_CLOSED	= 4,	/* own SHUTDOWN acknowledged; the QP is flushed */
	USIW_REPORT_FAILED	= 5,	/* the QP went to ERROR by itself; @error says why */
	USIW_REPORT_ASYNC	= 6,	/* raise async event @async_event for the QP, nothing else */
	USIW_REPORT_PORT	= 7,	/* the connection sends by @port; with USIW_CAP_PORT_TELL only */
};

struct usiw_qp_report {
	__u32 kind;			/* enum usiw_report_kind */
	__u32 conn_id;			/* as in the event; a stale one is ignored (returns 0) */
	__s32 error;			/* 0 or -errno: ETIMEDOUT retries exhausted, ECONNRESET
					 * stray RESET verified, EREMOTEIO Terminate received,
					 * EPROTO Terminate sent, ENOMEM ... */
	__u32 async_event;		/* enum ib_event_type, 0 for none: raised with the report. Up to
					 * SQ_DRAINED, or QP_LAST_WQE_REACHED */
	/* Of PORT only. A report is not shorter than up to here. */
	__u32 port;			/* enum usiw_port_kind */
	__u32 port_why;			/* enum usiw_port_why */
};
USIW_STATIC_ASSERT(sizeof(struct usiw_qp_report) == 24, "usiw_qp_report");

/* ---- Counters pages -------------------------------------------------------- */

/*
 * A page per context and a page per QP, written by the process that owns them and only
 * read by the kernel. An event that belongs to a QP is counted in the QP's page, any other
 * in a context's, which is one array of counters. `rdma statistic show` adds them all up,
 * `rdma resource show qp -dd` shows the page of a QP. What stands in a page is the process's
 * word: the kernel passes it on and decides nothing by it.
 *
 * New counters are added before USIW_CNT_MAX, which stays below USIW_COUNTERS_ROOM; their
 * names stand in usiw_names.h. A module that does not know a counter does not show it.
 */
enum usiw_counter {
	USIW_CNT_TX_PKTS,
	USIW_CNT_TX_BYTES,		/* UDP payload */
	USIW_CNT_RX_PKTS,
	USIW_CNT_RX_BYTES,
	USIW_CNT_TX_SACKS,
	USIW_CNT_RX_SACKS,
	USIW_CNT_RETRANS_FAST,		/* sent again: later ones have arrived */
	USIW_CNT_RETRANS_RTO,		/* ... nothing was acknowledged for an RTO */
	USIW_CNT_RETRANS_RNR,		/* ... the peer had no receive posted */
	USIW_CNT_RETRANS_UNSENT,	/* ... the port had not taken it */
	USIW_CNT_SPURIOUS,		/* acknowledgements by which resending was needless */
	USIW_CNT_RTO,			/* time-outs */
	USIW_CNT_PROBES,		/* keepalive probes sent */
	USIW_CNT_RX_DUP,		/* datagrams that had arrived before */
	USIW_CNT_RX_OOO,		/* ... ahead of their turn */
	USIW_CNT_RX_HELD,		/* ... kept until everything before them was placed */
	USIW_CNT_NOT_READY_TX,		/* told the peer: no receive posted */
	USIW_CNT_NOT_READY_RX,
	USIW_CNT_DROP_MALFORMED,	/* too short, bad version, bad lengths */
	USIW_CNT_DROP_CHECKSUM,
	USIW_CNT_DROP_NO_CONN,		/* no connection with this 4-tuple */
	USIW_CNT_DROP_WINDOW,		/* PSN outside of the window */
	USIW_CNT_DROP_RESET,		/* RESET that did not verify */
	USIW_CNT_DROP_STATE,		/* not expected in the QP's state */
	USIW_CNT_DROP_NO_BUFFER,	/* no room to keep it */
	USIW_CNT_DROP_EARLY,		/* ahead of its turn, and cannot be placed: comes again */
	USIW_CNT_TX_FULL,		/* the port took fewer datagrams than offered */
	USIW_CNT_TERM_TX,
	USIW_CNT_TERM_RX,
	USIW_CNT_COMP_OK,
	USIW_CNT_COMP_FLUSH,
	USIW_CNT_COMP_LOC_LEN,		/* by enum ibv_wc_status from here on */
	USIW_CNT_COMP_LOC_OP,
	USIW_CNT_COMP_LOC_PROT,
	USIW_CNT_COMP_REM_INV,
	USIW_CNT_COMP_REM_ACCESS,
	USIW_CNT_COMP_REM_OP,
	USIW_CNT_COMP_RETRY,
	USIW_CNT_COMP_RNR,
	USIW_CNT_COMP_ERR,		/* any other status */
	USIW_CNT_CQ_OVERRUN,
	USIW_CNT_RX_CE,			/* datagrams that a router had marked: congestion (RFC 3168) */
	USIW_CNT_TX_CE,			/* datagrams sent that the peer told to be marked, roughly */
	USIW_CNT_MAX,
};

/* State of a QP's connection, as of its last timer (an RTO ago at most while it sends). */
enum usiw_gauge {
	USIW_GAUGE_SRTT_NS,		/* smoothed RTT; 0: not measured yet */
	USIW_GAUGE_MIN_RTT_NS,
	USIW_GAUGE_RTO_NS,		/* time-out, back-off included */
	USIW_GAUGE_CWND,		/* congestion window, datagrams */
	USIW_GAUGE_CREDIT,		/* receive window that the peer grants, datagrams */
	USIW_GAUGE_INFLIGHT,		/* sent, neither acknowledged nor lost */
	USIW_GAUGE_LOST,		/* to be sent again */
	USIW_GAUGE_HELD,		/* datagrams that have arrived ahead of a gap */
	USIW_GAUGE_READS_OUT,		/* own READs on the wire */
	USIW_GAUGE_SQ_BUSY,		/* send work requests begun and not complete */
	USIW_GAUGE_PORT,		/* the connection's port: 1 + enum usiw_port_kind; 0: none */
	USIW_GAUGE_PORT_WHY,		/* enum usiw_port_why */
	USIW_GAUGE_MAX,
};

/* Why a connection goes by the port it goes by. */
enum usiw_port_why {
	USIW_PORT_WHY_NONE	= 0,
	USIW_PORT_WHY_WISH	= 1,	/* USIW_PORT says so */
	USIW_PORT_WHY_FASTEST	= 2,	/* raw packets are permitted, and get there */
	USIW_PORT_WHY_SAME_HOST	= 3,	/* the peer is on this host */
	USIW_PORT_WHY_RIGHTS	= 4,	/* the process has no CAP_NET_RAW */
	USIW_PORT_WHY_NETDEV	= 5,	/* the route leaves by another interface */
	USIW_PORT_WHY_IPSEC	= 6,	/* IPsec is ordered */
	USIW_PORT_WHY_ENCAP	= 7,	/* the route adds headers */
	USIW_PORT_WHY_BROKEN	= 8,	/* the raw port could not be made */
	USIW_PORT_WHY_ONLY	= 9,	/* nothing else was offered */
	USIW_PORT_WHY_NO_SOCKET	= 10,	/* there is no data socket */
	USIW_PORT_WHY_DOWN	= 11,	/* the interface is down */
	USIW_PORT_WHY_MTU	= 12,	/* what is outstanding is longer than the path's MTU */
	USIW_PORT_WHY_SILENT	= 13,	/* nothing came through by the other port */
	USIW_PORT_WHY_LONG	= 14,	/* its messages are long, and the kernel moves many datagrams at once */
	USIW_PORT_WHY_MAX,
};

#define USIW_COUNTERS_ROOM	256
#define USIW_GAUGES_ROOM	64
#define USIW_COUNTERS_SIZE	4096	/* of either page */

/* A QP's page; a context's has the counters only. */
struct usiw_qp_stats {
	__aligned_u64 counters[USIW_COUNTERS_ROOM];	/* by enum usiw_counter */
	__aligned_u64 gauges[USIW_GAUGES_ROOM];		/* by enum usiw_gauge */
	/*
	 * Not 0: the QP has been given to rdma_accept(). Set by the kernel before the call returns: sends may be posted
	 * from then on, and go out once the connection is established. The provider clears it when the QP is reset.
	 */
	__aligned_u64 accepted;
	__aligned_u64 reserved[191];
};
USIW_STATIC_ASSERT(sizeof(struct usiw_qp_stats) == USIW_COUNTERS_SIZE, "usiw_qp_stats");

#endif /* USIW_ABI_H */
