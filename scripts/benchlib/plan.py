# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Which cells a run on this machine has, and their execution in turns."""

from typing import NamedTuple

from . import many, results, tools
from .ends import LO, Failed, Missing
from .tools import Bare, Fabric, Perftest, Ucx

SIZES = (2, 8, 64, 512, 4096, 32768, 65536, 1 << 20, 8 << 20)
QUICK_SIZES = (64, 65536)
PROCESSOR_SIZES, QUICK_PROCESSOR_SIZES = (65536, 1 << 20), (65536,)
OPERATIONS = ("SEND", "WRITE", "READ")
QPS, QUICK_QPS = (1, 10, 100, 1000, 5000, 10000), (1, 100)
LOSSES, QUICK_LOSSES = (0.01, 0.1, 1, 5), (1,)
LARGE = 65536
POLLED_TCP, BLOCKING_TCP = "kernel TCP, polled", "kernel TCP, blocking"
LOSSY_PEERS = ("libfabric tcp (ping-pong)", BLOCKING_TCP)


class Programs(NamedTuple):
    """Paths of what this repository builds."""
    run: str
    bare: str
    many_qps: str


class Setting(NamedTuple):
    """What is measured between two ends."""
    ends: object
    ports: tuple
    peers: tuple
    limits: tuple


def settings(programs, veth):
    """lo, and the veth pair if there is one."""
    def fabrics(*providers):
        return tuple(Fabric(p, f"libfabric {p} (ping-pong)") for p in providers)
    tcp = (Bare(programs.bare, "tcp", POLLED_TCP), Bare(programs.bare, "tcp-blocking", BLOCKING_TCP))
    udp = tuple(Bare(programs.bare, kind, name) for kind, name in (("udp", "UDP"), ("udp-gso", "UDP with GSO and GRO")))
    ring = Bare(programs.bare, "shm", "a ring in shared memory")
    packets = Bare(programs.bare, "packet", "AF_PACKET")
    sockets = Perftest(programs.run, "socket", "usiw-run, UDP sockets")
    out = [Setting(LO, (Perftest(programs.run, "shm", "usiw-run, shared memory"), sockets),
                   (*fabrics("tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "shm"), Ucx("tcp,self", "UCX tcp"),
                    Ucx("posix,self", "UCX posix"), *tcp), (ring, *udp))]
    if veth:
        out.append(Setting(veth, (Perftest(programs.run, "packet", "usiw-run, packets and sockets"), sockets),
                           (*fabrics("tcp", "tcp;ofi_rxm", "udp;ofi_rxd"), Ucx("tcp,self", "UCX tcp"), *tcp),
                           (packets, *udp)))
    return out


def _of(setting, programs, quick):
    ends, sizes = setting.ends, QUICK_SIZES if quick else SIZES
    if quick:   # These take most of the time.
        setting = setting._replace(peers=tuple(peer for peer in setting.peers if "ofi_rx" not in peer.row))
    out = []
    for size in sizes:
        for operation in OPERATIONS:
            for tool in (*setting.ports, *setting.peers):
                if operation != "SEND" and not isinstance(tool, Perftest) and (operation, type(tool)) != ("WRITE", Ucx):
                    continue
                # fi_pingpong gives both figures at once. The streams of kernel TCP block.
                metrics = ("lat",) if isinstance(tool, Fabric) or tool.row == POLLED_TCP else ("lat", "bw")
                out += [tools.job(tool, ends, operation, metric, size, quick) for metric in metrics]
    out += [tools.events(port, ends, quick) for port in setting.ports]
    out += [cell for port in setting.ports for cell in tools.both_ways_to_connect(port, ends, quick)]
    out += [tools.job(tool, ends, "SEND", "lat", 64, quick, f"{ends.name}, SEND, blocking") for tool in setting.peers
            if tool.row == BLOCKING_TCP]
    for size in QUICK_PROCESSOR_SIZES if quick else PROCESSOR_SIZES:
        out += [tools.processor(tool, ends, size, quick) for tool in (*setting.ports, *setting.peers)
                if tool.row != POLLED_TCP]
    for tool in setting.limits:
        out += [tools.job(tool, ends, "SEND", metric, size, quick, f"{ends.name}, what the ports could do", column)
                for metric, size, column in (("lat", 64, "64 B"), ("bw", LARGE, "as much as goes"))]
    out += [many.queue_pairs(port, programs.many_qps, ends, number, quick) for port in setting.ports
            for number in (QUICK_QPS if quick else QPS)]
    out += [many.incast(port, programs.many_qps, ends, quick) for port in setting.ports]
    out += [many.incast(tool, programs.bare, ends, quick) for tool in setting.peers if tool.row == BLOCKING_TCP]
    return out


def jobs(programs, veth, quick):
    """Every cell; those of a veth pair only if there is one."""
    out = []
    for setting in settings(programs, veth):
        out += _of(setting, programs, quick)
        if setting.ends is not veth:
            continue
        for percent in QUICK_LOSSES if quick else LOSSES:
            for tool in (*setting.ports, *(peer for peer in setting.peers if peer.row in LOSSY_PEERS)):
                # Few messages always: many are lost.
                out.append(tools.under_loss(tools.job(tool, veth, "SEND", "bw", LARGE, True), percent))
    return out


def execute(all_jobs, rounds, tell):
    """Measures all cells in turns, as often as there are rounds, and yields each result; says what is missing or failed
    instead of ending."""
    for number in range(1, rounds + 1):
        for job in all_jobs:
            state, figures, detail = results.OK, {}, ""
            if not tools.is_there(job.program):
                state, detail = results.MISSING, f"{job.program} is not installed"
            else:
                try:
                    figures = job.measure(job.ends)
                except Missing as error:
                    state, detail = results.MISSING, str(error)
                except Failed as error:
                    state, detail = results.FAILED, str(error)
            said = " ".join(f"{name}={results.number(value)}" for name, value in figures.items()) or f"{state} {detail}"
            tell(f"{number}/{rounds} {job.cell.table}: {job.cell.row}, {job.cell.column}: {said}")
            yield results.Result(number, job.cell, state, figures, detail)
