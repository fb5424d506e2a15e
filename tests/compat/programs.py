# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The programs of docs/compatibility.md: how each is started, and which output shows that it has done its work.

The table lists no outcomes. A reason in it is printed only beside an error that matches the reason's pattern, so a
program that starts to work is reported as working.
"""

import glob
import shlex
from typing import NamedTuple

#: Where a program is tried: on both faces of usiw-run, and with the module.
RUN, MODULE = ("run", "roce"), ("module",)
BOTH = RUN + MODULE


class Program(NamedTuple):
    """One row. Commands are formatted with {server} and {client} (addresses), {server_dev} and {client_dev} (devices),
    {port}, {dir} (an empty folder that both ends see) and {scripts}, and are split like a shell's words. A command that
    begins with {scripts} gets all these as environment variables in capitals, and RUN (usiw-run, or nothing)."""
    name: str
    packages: tuple       # of Debian; the row shows the version of the first one
    client: str
    server: str = ""
    shows: str = ""       # pattern: the client prints it when its work is done
    worlds: tuple = RUN
    ready: str = "port"   # the server can be used when it listens on {port}, or when it prints this pattern
    stays: bool = False   # the server serves until it is ended
    moves: int = 1        # least number of bytes that one end receives by RDMA; 0: the program moves no data
    env: dict = {}
    seconds: int = 60     # for the client
    reasons: tuple = ()   # (pattern, sentence): why it does not work, if it prints this


#: Preloaded before the library of usiw-run: makes rsockets of a program's sockets. The document shows the name only.
RSOCKETS = {"LD_PRELOAD": "librspreload.so"}

NO_CM = "It connects its QPs by itself, and an iWARP device connects by rdma_cm."
NO_UD = "It needs UD QPs, which usiw does not have."
NO_MULTICAST = "It needs multicast and UD QPs, which usiw does not have."
NO_EPOLL = "librspreload does not intercept epoll, so it watches no socket."
NO_MAD = "It sends management datagrams, which usiw's device does not have."
NO_KERNEL_USERS = "The module offers its device to user space only."


def perftest(tool, *options, worlds=RUN, **kwargs):
    """A row for one of perftest's programs."""
    words = " ".join((tool, "-F", *options, "-p {port}"))
    name = tool + "".join(f" {option}" for option in options if option.startswith(("-R", "-c")))
    return Program(name, ("perftest",), f"{words} -d {{client_dev}} {{server}}", f"{words} -d {{server_dev}}",
                   r"^ *\d+ +\d+ ", worlds, **kwargs)


def dapl(tool, server, client, shows, **kwargs):
    """A row for one of uDAPL's programs."""
    return Program(tool, ("dapl2-utils", "libdapl2"), "{scripts}/dapl client " + client,
                   "{scripts}/dapl server " + server, shows, **kwargs)


PROGRAMS = [
    # ---- rdma_cm's own ----
    Program("rping", ("rdmacm-utils",), "rping -c -a {server} -p {port} -C 10 -v -V",
            "rping -s -a {server} -p {port} -C 10", r"ping data: rdma-ping-9", BOTH),
    Program("ucmatose", ("rdmacm-utils",), "ucmatose -s {server} -p {port} -C 100 -S 4096",
            "ucmatose -p {port} -C 100 -S 4096", r"data transfers complete", BOTH),
    Program("cmtime", ("rdmacm-utils",), "cmtime -s {server} -p {port} -c 20", "cmtime -p {port} -c 20",
            r"disconnect", moves=0, stays=True),
    Program("rdma_client", ("rdmacm-utils",), "rdma_client -s {server} -p {port}", "rdma_server -s {server} -p {port}",
            r"rdma_client: end 0"),
    Program("rdma_xclient", ("rdmacm-utils",), "rdma_xclient -s {server} -p {port} -c r",
            "rdma_xserver -p {port} -c r", r"rdma_xclient: end 0|end 0"),
    Program("rcopy", ("rdmacm-utils",), "{scripts}/rcopy client", "{scripts}/rcopy server", r"^the same file$", BOTH,
            stays=True, moves=1000000),
    Program("rstream", ("rdmacm-utils",), "rstream -s {server} -p {port} -S 4096 -C 1000",
            "rstream -p {port} -S 4096 -C 1000", r"^custom +4k ", BOTH, moves=100000),
    Program("riostream", ("rdmacm-utils",), "riostream -s {server} -p {port} -S 4096 -C 1000",
            "riostream -p {port} -S 4096 -C 1000", r"^custom +4k ", moves=100000),
    Program("udaddy", ("rdmacm-utils",), "udaddy -s {server} -p {port}", "udaddy -p {port}",
            r"data transfers complete", reasons=((r"listen request failed|unable to create QP", NO_UD),), seconds=20),
    Program("udpong", ("rdmacm-utils",), "udpong -s {server} -p {port} -C 100 -S 64", "udpong -p {port}", r"^64",
            stays=True, reasons=((r"rconnect: .*|rbind: .*|rsocket: .*", NO_UD),), seconds=20),
    Program("mckey", ("rdmacm-utils",), "mckey -m 239.1.1.1 -b {client}", "mckey -m 239.1.1.1 -b {server} -s",
            r"data transfers complete", ready="", reasons=((r"unable to create QP", NO_MULTICAST),), seconds=20),
    # ---- perftest ----
    perftest("ib_send_lat", "-R", "-n 1000", worlds=BOTH),
    perftest("ib_write_bw", "-R", "-n 1000", worlds=BOTH),
    perftest("ib_read_bw", "-R", "-n 1000"),
    perftest("ib_atomic_lat", "-R", "-n 1000"),
    *(perftest(tool, "-n 1000", reasons=((r"Failed to modify QP", NO_CM),), seconds=20)
      for tool in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat",
                   "ib_atomic_bw", "ib_atomic_lat")),
    perftest("ib_send_lat", "-R", "-c UD", "-n 100", reasons=((r"Couldn't create rdma", NO_UD),), seconds=20),
    # ---- libibverbs' own ----
    Program("ibv_devinfo", ("ibverbs-utils",), "ibv_devinfo -d {client_dev}", "", r"PORT_ACTIVE", BOTH, moves=0),
    Program("ibv_rc_pingpong", ("ibverbs-utils",), "ibv_rc_pingpong -p {port} -g 0 {server}",
            "ibv_rc_pingpong -p {port} -g 0", r"iters in", reasons=((r"Failed to modify QP", NO_CM),), seconds=20),
    Program("ibv_srq_pingpong", ("ibverbs-utils",), "ibv_srq_pingpong -p {port} -g 0 {server}",
            "ibv_srq_pingpong -p {port} -g 0", r"iters in", reasons=((r"Failed to modify QP", NO_CM),), seconds=20),
    Program("ibv_uc_pingpong", ("ibverbs-utils",), "ibv_uc_pingpong -p {port} -g 0 {server}",
            "ibv_uc_pingpong -p {port} -g 0", r"iters in", seconds=20,
            reasons=((r"Couldn't create QP", "It needs UC QPs, which usiw does not have."),)),
    Program("ibv_ud_pingpong", ("ibverbs-utils",), "ibv_ud_pingpong -p {port} -g 0 {server}",
            "ibv_ud_pingpong -p {port} -g 0", r"iters in", reasons=((r"Couldn't create QP", NO_UD),), seconds=20),
    Program("pyverbs", ("python3-pyverbs",), "/usr/bin/python3 {scripts}/cmid.py client {server} {port}",
            "/usr/bin/python3 {scripts}/cmid.py server {server} {port}", r"^got hello from the server", BOTH),
    Program("ibstatus", ("infiniband-diags",), "ibstatus {client_dev}", "", r"phys state:.*LinkUp", moves=0),
    Program("ibstat", ("infiniband-diags",), "ibstat {client_dev}", "", r"State: Active", moves=0,
            reasons=((r"IB device can't be found", "It lists InfiniBand devices only."),)),
    Program("perfquery", ("infiniband-diags",), "perfquery -C {client_dev}", "", r"PortXmitData", moves=0,
            reasons=((r"(?i)umad|open .*port|device", NO_MAD),)),
    # ---- measuring ----
    Program("qperf", ("qperf",), "qperf {server} -lp {port} -cm 1 -t 1 rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_bw",
            "qperf -lp {port}", r"rc_rdma_write_bw:\s+bw *= *[1-9]", BOTH, stays=True),
    Program("fio", ("fio",),
            "fio --name=job --ioengine=rdma --hostname={server} --port={port} --verb=write --rw=write --bs=64k "
            "--size=16m --iodepth=8",
            "fio --name=job --ioengine=rdma --port={port} --rw=read --bs=64k --size=16m --iodepth=8",
            r"WRITE: bw=", BOTH, moves=1000000),
    Program("NetPIPE over Open MPI", ("netpipe-openmpi", "openmpi-bin"),
            "{scripts}/mpi NPopenmpi -u 10000 -o {dir}/np.out", "", r"^ *\d+: +\d+ bytes +\d+ times --> +[\d.]+ Mbps",
            moves=1000, seconds=120),
    # ---- libfabric, MPI, UCX ----
    Program("libfabric: fi_pingpong, verbs, msg", ("libfabric-bin",),
            "fi_pingpong -p verbs -e msg -I 100 -S 65536 -P {port} {server}",
            "fi_pingpong -p verbs -e msg -I 100 -S 65536 -B {port}", r"^64k +100", BOTH),
    Program("libfabric: fi_pingpong, verbs;ofi_rxm, rdm", ("libfabric-bin",),
            "fi_pingpong -p 'verbs;ofi_rxm' -e rdm -I 100 -S 65536 -P {port} {server}",
            "fi_pingpong -p 'verbs;ofi_rxm' -e rdm -I 100 -S 65536 -B {port}", r"^64k +100", BOTH),
    Program("libfabric: fi_pingpong, verbs;ofi_rxd, rdm", ("libfabric-bin",),
            "fi_pingpong -p 'verbs;ofi_rxd' -e rdm -I 100 -S 4096 -P {port} {server}",
            "fi_pingpong -p 'verbs;ofi_rxd' -e rdm -I 100 -S 4096 -B {port}", r"^4k +100",
            reasons=((r"fi_getinfo.*No data available", NO_UD),), seconds=20),
    Program("Open MPI, mtl ofi", ("openmpi-bin", "libopenmpi-dev"), "{scripts}/mpi allreduce", "",
            r"^2 ranks, 0 errors", BOTH, moves=100000, seconds=120),
    Program("Open MPI, btl openib", ("openmpi-bin", "libopenmpi-dev"), "{scripts}/mpi --openib allreduce", "",
            r"^2 ranks, 0 errors", moves=100000, seconds=120,
            reasons=((r"Invalid name: +rdmacm", "Debian builds openib without its connection manager rdmacm, and udcm "
                      "needs UD QPs."),)),
    Program("HPC Challenge over Open MPI", ("hpcc", "openmpi-bin"), "{scripts}/mpi hpcc", "",
            r"^Success=1", moves=100000, seconds=200),
    Program("mpi4py over Open MPI", ("python3-mpi4py", "openmpi-bin"),
            "{scripts}/mpi /usr/bin/python3 -m mpi4py.bench ringtest -n 100000 -l 20", "", r"time for 20 loops",
            moves=100000, seconds=120),
    Program("MPICH", ("mpich", "libmpich-dev"), "{scripts}/mpich", "", r"^2 ranks, 0 errors", seconds=60,
            reasons=((r"no active messages transport|not available",
                      "Debian's MPICH uses UCX, which refuses iWARP devices, and needs UD on others."),)),
    Program("UCX: ucx_perftest", ("ucx-utils",), "ucx_perftest -p {port} -t tag_lat -n 1000 {server}",
            "ucx_perftest -p {port}", r"^Final: +1000", env={"UCX_TLS": "rc_verbs,rdmacm", "UCX_LOG_LEVEL": "info"},
            seconds=30, reasons=((r"no usable transports",
                                  "UCX refuses iWARP devices, because it connects its QPs by itself."),
                                 (r"no auxiliary transport", "UCX exchanges QP numbers by UD QPs."))),
    Program("gloo", ("libgloo-dev", "libibverbs-dev"), "{scripts}/gloo 1", "{scripts}/gloo 0", r"^2 ranks, all right",
            ready="", seconds=60, reasons=((r"pair.cc", NO_CM),)),
    Program("librpma", ("librpma-dev",), "{scripts}/rpma client", "{scripts}/rpma server", r"^read back: right",
            BOTH),
    # ---- uDAPL ----
    dapl("dtest", "dtest -P usiw -b 65536", "dtest -P usiw -b 65536 -h {server}", r"DAPL Test Complete. PASSED",
         worlds=BOTH, ready=r"(?i)waiting|listen"),
    dapl("dtestsrq", "dtestsrq -P usiw", "dtestsrq -P usiw -h {server}", r"SRQ Test Complete", ready="Accepting"),
    dapl("dapltest", "dapltest -T S -D usiw",
         "dapltest -T T -s {server} -D usiw -i 100 -t 1 -w 1 client SR 4096 server SR 4096", r"(?i)Total Time",
         stays=True, ready=r"(?i)service point|Ready"),
    # ---- storage and machines ----
    Program("tgt and libiscsi: iSER, iscsi-inq", ("tgt", "libiscsi-bin"),
            "iscsi-inq -i iqn.2026-01.example:host iser://{server}:3260/iqn.2026-01.example:disk/1", "{scripts}/tgt",
            r"Product Identification:|Product:", BOTH, ready="^ready$", stays=True),
    Program("tgt and libiscsi: iSER, iscsi-perf", ("libiscsi-bin", "tgt"),
            "iscsi-perf -i iqn.2026-01.example:host -b 64 -t 2 iser://{server}:3260/iqn.2026-01.example:disk/1",
            "{scripts}/tgt", r"iops average [1-9]", ready="^ready$", stays=True, moves=100000),
    Program("tgt and QEMU: a disk by iSER", ("qemu-block-extra", "qemu-utils", "tgt"),
            "qemu-io -f raw -c 'write -P 0x5a 0 256k' -c 'read -P 0x5a 0 256k' "
            "iser://{server}:3260/iqn.2026-01.example:disk/1", "{scripts}/tgt",
            r"read 262144/262144", ready="^ready$", stays=True, moves=200000),
    Program("QEMU: live migration", ("qemu-system-x86",), "{scripts}/migration client", "{scripts}/migration server",
            r"^Migration status: completed", BOTH, ready="ready$", stays=True, moves=10000, seconds=90),
    Program("Ceph: messenger of ceph-mon and ceph", ("ceph-mon", "ceph-common"), "{scripts}/ceph client",
            "{scripts}/ceph server", r"mon: 1 daemons", stays=True, moves=1000, seconds=120),
    Program("Ceph: the same without rdma_cm", ("ceph-mon", "ceph-common"), "{scripts}/ceph client ib",
            "{scripts}/ceph server ib", r"mon: 1 daemons", ("roce",), stays=True, moves=1000, seconds=120),
    # ---- sockets by librspreload ----
    Program("iperf over rsockets", ("iperf",), "iperf -c {server} -p {port} -n 20M", "iperf -s -p {port}",
            r"bits/sec", BOTH, stays=True, moves=1000000, env=RSOCKETS),
    Program("iperf3 over rsockets", ("iperf3",), "iperf3 -c {server} -p {port} -n 20M", "iperf3 -s -p {port}",
            r"bits/sec", stays=True, moves=1000000, env=RSOCKETS, seconds=30,
            reasons=((r"getsockopt - Operation not supported", "rsockets lack a socket option that it asks for."),)),
    Program("NetPIPE over rsockets", ("netpipe-tcp",), "NPtcp -h {server} -P {port} -u 100000 -o {dir}/np.out",
            "NPtcp -P {port} -u 100000 -o {dir}/np.server", r"^ *\d+: +\d+ bytes +\d+ times --> +[\d.]+ Mbps",
            moves=100000, env=RSOCKETS, seconds=90),
    Program("netcat over rsockets", ("netcat-traditional",), "{scripts}/netcat client nc.traditional -q 1",
            "{scripts}/netcat server nc.traditional -l -p", r"^the same bytes", moves=10000, env=RSOCKETS, stays=True,
            seconds=30),
    Program("netcat (OpenBSD's) over rsockets", ("netcat-openbsd",), "{scripts}/netcat client nc.openbsd -N",
            "{scripts}/netcat server nc.openbsd -l", r"^the same bytes", ready="", moves=10000, env=RSOCKETS,
            stays=True, seconds=30, reasons=((r"set SO_REUSEPORT", "rsockets lack this socket option."),)),
    Program("socat over rsockets", ("socat",), "{scripts}/socat client", "{scripts}/socat server",
            r"^the same bytes", moves=10000, env=RSOCKETS, stays=True, seconds=30,
            reasons=((r"crashes without usiw", "The fault is librspreload's or socat's."),)),
    Program("sockperf over rsockets", ("sockperf",), "sockperf ping-pong --tcp -i {server} -p {port} -t 1",
            "sockperf server --tcp -i {server} -p {port}", r"avg-latency=", env=RSOCKETS, stays=True, seconds=30,
            reasons=((r"errno=106", "rsockets take no address on a stream."),)),
    Program("Redis over rsockets", ("redis-server", "redis-tools"), "redis-cli -h {server} -p {port} ping",
            "redis-server --port {port} --bind {server} --protected-mode no --save ''", r"^PONG", env=RSOCKETS,
            stays=True, seconds=20, reasons=((r"accept handler", NO_EPOLL),)),
    # ---- what is not for iWARP, or for no user program ----
    Program("ibsrpdm", ("srptools",), "ibsrpdm -d /dev/infiniband/umad0", "", r"id_ext", moves=0, seconds=20,
            reasons=((r"umad", NO_MAD),)),
    Program("iproute2: rdma link", ("iproute2",), "rdma link show", "", r"link \S+/1 state ACTIVE", BOTH,
            moves=0, reasons=((r"NETLINK_RDMA", "usiw-run does not answer NETLINK_RDMA."),)),
    Program("NVMe over RDMA", ("nvme-cli",), "{scripts}/nvme", "", r"^read$", MODULE, moves=0, seconds=60,
            reasons=((r"no client data found|Operation not supported", NO_KERNEL_USERS),)),
]


def environment(program):
    """What to add to the environment of its two ends, with preloaded libraries by their paths."""
    return {key: glob.glob(f"/usr/lib/*/rsocket/{value}")[0] if key == "LD_PRELOAD" else value
            for key, value in program.env.items()}


def commands(name, **words):
    """(server's argv, client's argv, additions to their environment) of a program that is no script."""
    program = next(program for program in PROGRAMS if program.name == name)
    return (*(shlex.split(text.format(**words)) for text in (program.server, program.client)), environment(program))
