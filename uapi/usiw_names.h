/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Names of the counters and gauges of usiw_abi.h, as rdma(8) and `usiw stat` show them, and names
 * of the values of those two gauges that hold an enum. The module needs the names for rdma(8).
 * `usiw stat` needs them because it reads the pages of programs under usiw-run by itself.
 */
#ifndef USIW_NAMES_H
#define USIW_NAMES_H

#define USIW_COUNTER_NAMES(NAME) \
	NAME(TX_PKTS, "tx_pkts") \
	NAME(TX_BYTES, "tx_bytes") \
	NAME(RX_PKTS, "rx_pkts") \
	NAME(RX_BYTES, "rx_bytes") \
	NAME(TX_SACKS, "tx_sacks") \
	NAME(RX_SACKS, "rx_sacks") \
	NAME(RETRANS_FAST, "retrans_fast") \
	NAME(RETRANS_RTO, "retrans_rto") \
	NAME(RETRANS_RNR, "retrans_rnr") \
	NAME(RETRANS_UNSENT, "retrans_unsent") \
	NAME(SPURIOUS, "spurious") \
	NAME(RTO, "rto") \
	NAME(PROBES, "probes") \
	NAME(RX_DUP, "rx_dup") \
	NAME(RX_OOO, "rx_ooo") \
	NAME(RX_HELD, "rx_held") \
	NAME(NOT_READY_TX, "not_ready_tx") \
	NAME(NOT_READY_RX, "not_ready_rx") \
	NAME(DROP_MALFORMED, "drop_malformed") \
	NAME(DROP_CHECKSUM, "drop_checksum") \
	NAME(DROP_NO_CONN, "drop_no_conn") \
	NAME(DROP_WINDOW, "drop_window") \
	NAME(DROP_RESET, "drop_reset") \
	NAME(DROP_STATE, "drop_state") \
	NAME(DROP_NO_BUFFER, "drop_no_buffer") \
	NAME(DROP_EARLY, "drop_early") \
	NAME(TX_FULL, "tx_full") \
	NAME(TERM_TX, "term_tx") \
	NAME(TERM_RX, "term_rx") \
	NAME(COMP_OK, "comp_ok") \
	NAME(COMP_FLUSH, "comp_flush") \
	NAME(COMP_LOC_LEN, "comp_loc_len") \
	NAME(COMP_LOC_OP, "comp_loc_op") \
	NAME(COMP_LOC_PROT, "comp_loc_prot") \
	NAME(COMP_REM_INV, "comp_rem_inv") \
	NAME(COMP_REM_ACCESS, "comp_rem_access") \
	NAME(COMP_REM_OP, "comp_rem_op") \
	NAME(COMP_RETRY, "comp_retry") \
	NAME(COMP_RNR, "comp_rnr") \
	NAME(COMP_ERR, "comp_err") \
	NAME(CQ_OVERRUN, "cq_overrun") \
	NAME(RX_CE, "rx_ce") \
	NAME(TX_CE, "tx_ce")

#define USIW_GAUGE_NAMES(NAME) \
	NAME(SRTT_NS, "srtt_ns") \
	NAME(MIN_RTT_NS, "min_rtt_ns") \
	NAME(RTO_NS, "rto_ns") \
	NAME(CWND, "cwnd") \
	NAME(CREDIT, "credit") \
	NAME(INFLIGHT, "inflight") \
	NAME(LOST, "lost") \
	NAME(HELD, "held") \
	NAME(READS_OUT, "reads_out") \
	NAME(SQ_BUSY, "sq_busy") \
	NAME(PORT, "data_port") \
	NAME(PORT_WHY, "data_port_why")

/*
 * Names of enum usiw_port_kind. USIW_GAUGE_PORT holds the kind plus 1. If the gauge is 0, the name
 * is USIW_PORT_NAME_NONE.
 */
#define USIW_PORT_NAMES(NAME) \
	NAME(PACKET, "packet") \
	NAME(SOCKET, "socket") \
	NAME(SHM, "shm")
#define USIW_PORT_NAME_NONE	"none"

#define USIW_PORT_WHY_NAMES(NAME) \
	NAME(NONE, "none") \
	NAME(WISH, "wish") \
	NAME(FASTEST, "fastest") \
	NAME(SAME_HOST, "same-host") \
	NAME(RIGHTS, "rights") \
	NAME(NETDEV, "netdev") \
	NAME(IPSEC, "ipsec") \
	NAME(ENCAP, "encap") \
	NAME(BROKEN, "broken") \
	NAME(ONLY, "only") \
	NAME(NO_SOCKET, "no-socket") \
	NAME(DOWN, "down") \
	NAME(MTU, "mtu") \
	NAME(SILENT, "silent") \
	NAME(LONG, "long")

#endif /* USIW_NAMES_H */
