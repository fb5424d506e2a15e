// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file usiw.cc
/// The program usiw: shows counters and traces, and collects what a bug report needs.
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "tools/arguments.h"
#include "tools/report.h"
#include "tools/stat.h"
#include "tools/trace.h"
#include "uapi/usiw_abi.h"
#include "uapi/usiw_version.h"

namespace {

constexpr char kHelp[] =
    R"(usiw - counters, traces and reports of usiw, the software RNIC

SYNOPSIS
    usiw stat  [DEV] [qp QPN] [-i SECONDS] [-c COUNT] [-j | --prometheus]
    usiw trace [show] PID|FILE [qp QPN] [-n EVENTS] [-w FILE.pcapng]
    usiw trace on|off PID|FILE
    usiw trace list
    usiw report
    usiw help [stat|trace|report]
    usiw --help | --version

    Devices are made and listed by rdma(8) ('rdma link'). How to read what this tool prints:
    docs/troubleshooting.md in the sources of usiw.

ENVIRONMENT of the programs that use RDMA; usiw(7) describes it
    USIW_PORT          how data travels: auto, shm, socket or packet
    USIW_FACE          what usiw-run shows a program: iwarp or roce
    USIW_PEER_TIMEOUT  seconds to wait for a silent peer
    USIW_RETRY_TIME    seconds to wait for a silent peer on the RoCE face
    USIW_PROGRESS      adaptive, or thread: the progress thread polls all the time
    USIW_TRACE         directory for a trace from the start ('usiw help trace')
    USIW_FAULTS        faults to test a program with; usiw-run sets it

EXIT STATUS
    0 success; 1 failure, with the reason on stderr; 2 bad arguments.
)";

constexpr char kStatHelp[] =
    R"(usiw stat - counters of devices and of their QPs

SYNOPSIS
    usiw stat [DEV] [qp QPN] [-i SECONDS] [-c COUNT] [-j | --prometheus]

DESCRIPTION
    Prints for each usiw device (or for DEV) its counters, which are those of
    'rdma statistic show link DEV/1', and for each of its QPs (or for QPN) the counters and the
    state of its connection, with the process that owns it. Text shows what is not 0.

    Programs under usiw-run are shown likewise ("by usiw-run"): those of the same user, or for
    root those of all users. Their device counters are the sums over running programs. Only the
    module has cm_* counters.

    The process that owns a QP writes the numbers of the QP, so they are only as honest as it is.

OPTIONS
    -i, --interval SECONDS   print the counts of each interval of SECONDS (fractions too), until
                             interrupted; gauges (rtt, windows) show their current value
    -c, --count COUNT        with -i: end after COUNT intervals
    -j, --json               JSON, everything; with -i one document per line
    --prometheus             the text form of Prometheus, everything since the beginning, once:
                             usiw_device_NAME_total, usiw_qp_NAME_total, usiw_qp_NAME (gauges)

COUNTERS
    tx_pkts tx_bytes rx_pkts rx_bytes   datagrams, and bytes of their UDP payload
    tx_sacks rx_sacks                   acknowledgements that are datagrams of their own
    retrans_fast                        resent because later ones had arrived
    retrans_rto                         ... because nothing was acknowledged for an RTO
    retrans_rnr                         ... because the peer had no receive posted
    retrans_unsent                      ... because the netdev had refused it
    spurious                            acknowledgements that show a needless retransmission
    rto probes                          time-outs; keepalive probes
    rx_dup rx_ooo                       arrived twice; arrived ahead of a gap
    rx_held                             ... and parked until all before them were placed
    not_ready_tx not_ready_rx           "no receive posted": sent to the peer; received from it
    drop_malformed drop_checksum drop_no_conn drop_window drop_reset drop_state
    drop_no_buffer drop_early           datagrams dropped, by reason
    tx_full                             the netdev accepted less than was offered
    term_tx term_rx                     Terminate messages
    comp_ok comp_flush comp_STATUS      completions by status (ibv_poll_cq(3)); comp_err: others
    cq_overrun                          CQs that were too small
    cm_*                                the kernel's connection manager (devices only)

GAUGES (of QPs)
    srtt_ns min_rtt_ns rto_ns           smoothed and smallest round trip, retransmission time-out
    cwnd credit inflight lost           datagrams: congestion window, receive window of the peer,
                                        on the wire, waiting to be resent
    held reads_out sq_busy              datagrams ahead of a gap, own READs on the wire, send
                                        work requests begun and not complete
    data_port data_port_why             the port in use: packet, socket or shm (shared memory beside a
                                        socket); and why (enum usiw_port_why in uapi/usiw_abi.h)
    A timer of the QP samples them: at most an RTO ago while the QP sends.

EXAMPLES
    usiw stat usiw0
    usiw stat usiw0 qp 17 -i 1
    usiw stat --prometheus >/var/lib/prometheus/node-exporter/usiw.prom.new &&
        mv /var/lib/prometheus/node-exporter/usiw.prom.new /var/lib/prometheus/node-exporter/usiw.prom
    usiw stat -j | jq '.[].qps[] | {pid, comm, retrans: .counters.retrans_rto}'
)";

constexpr char kTraceHelp[] =
    R"(usiw trace - the last events of a process's QPs

SYNOPSIS
    usiw trace [show] PID|FILE [qp QPN] [-n EVENTS] [-w FILE.pcapng]
    usiw trace on|off PID|FILE
    usiw trace list

DESCRIPTION
    A process that has a QP on a usiw device keeps its last events in a ring: datagrams (their
    headers), time-outs, retransmissions and their causes, datagrams dropped and why, placement
    holds, completions, Terminates, how connections ended. Recording is off by default.

    show   prints the events of PID, or those in FILE, oldest first; with -w writes them as a
           capture that Wireshark and tshark open, the events as comments of the datagrams
           (display filter: frame.comment). tools/wireshark/usiw.lua decodes the datagrams.
    on     starts recording in the running process PID; off stops it, and the events stay.
    list   lists the processes that have a ring.

    Only the owner of a process, or root, can read or switch its trace (as with ptrace(2)). The
    process itself writes its trace, so the trace is only as honest as the process.

OPTIONS
    qp QPN           only events of this QP
    -n, --last N     only the last N events
    -w, --write F    write a pcapng file ("-": standard output)

ENVIRONMENT of the traced process
    USIW_TRACE=DIR[,events=N][,stop-on-error]
        record from the start, into the file DIR/usiw-trace.DEVICE.PID, which stays when the
        process ends, by kill -9 too. N: number of events (a power of two, default 32768, 128
        bytes each). stop-on-error: recording ends when a QP fails, so that its cause stays.

EXAMPLES
    usiw trace on 4711; sleep 1; usiw trace 4711 qp 17 -n 50
    USIW_TRACE=/tmp,stop-on-error ./server; usiw trace /tmp/usiw-trace.usiw0.4711 -w out.pcapng
)";

constexpr char kReportHelp[] =
    R"(usiw report - what a bug report needs, on standard output

SYNOPSIS
    usiw report >report.txt

DESCRIPTION
    Prints the versions of usiw, the kernel and the distribution, the variables USIW_* of the
    environment, the files of the provider and of libibverbs, the module and its parameters, the
    devices, the counters ('usiw stat'), the output of 'usiw-run --check', and the lines of the
    kernel's log that name usiw (root, or a kernel with dmesg_restrict=0).

    Takes a few seconds. A part that fails, or does not end in time (30 s at most), leaves one line with
    the reason, and the next part follows.

    The report has addresses (IP, MAC), paths, and the names and IDs of processes that use RDMA.
    It has no host name. Read it before you publish it.
)";

struct Command {
  std::string_view name;
  const char* help;
  int (*run)(std::span<char*> arguments);
};

constexpr Command kCommands[] = {{"stat", kStatHelp, usiw::tools::stat_command},
                                 {"trace", kTraceHelp, usiw::tools::trace_command},
                                 {"report", kReportHelp, usiw::tools::report_command}};

/// Returns the command with this name, or nullptr.
const Command* find(std::string_view name) {
  const auto* found = std::ranges::find(kCommands, name, &Command::name);
  return found != std::end(kCommands) ? found : nullptr;
}

int refuse(const std::string& why) {
  std::fprintf(stderr, "usiw: %s\n", why.c_str());
  return 2;
}

/// Prints the help of the command that the first word of @p topic names, or the general help if there is no word.
int help(std::span<char*> topic) {
  const Command* command = topic.empty() ? nullptr : find(topic[0]);
  if (!topic.empty() && command == nullptr) return refuse(std::string("no help on '") + topic[0] + "'");
  std::fputs(command == nullptr ? kHelp : command->help, stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using usiw::tools::kLong;
  constexpr option kNames[] = {
      {"help", no_argument, nullptr, kLong + 'h'}, {"version", no_argument, nullptr, kLong + 'V'}, {}};
  std::string wrong;
  const int letter = usiw::tools::next_option(argc, argv, "+:h", kNames, wrong);
  const std::span<char*> words(argv + optind, static_cast<size_t>(argc - optind));
  if (letter == '?') return refuse(wrong + " ('usiw help')");
  if (letter == 'h') return help(words);
  if (letter == 'V') {
    std::printf("usiw %s (ABI %d)\n", USIW_VERSION, USIW_ABI_VERSION);
    return 0;
  }
  if (words.empty()) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  if (std::string_view(words[0]) == "help") return help(words.subspan(1));
  const Command* command = find(words[0]);
  if (command == nullptr) return refuse(std::string("unknown command '") + words[0] + "' (stat, trace, report, help)");
  const int status = command->run(words);
  return status == usiw::tools::kShowHelp ? help(words.first(1)) : status;
}
