# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Which cells a run on this machine has, and their execution in turns."""

from . import results, tools
from .ends import LO, Failed
from .tools import Perftest

SIZES = tuple(2 << (2 * n) for n in range(12))          # 2 B to 8 MiB
QUICK_SIZES = (64, 65536)
OPERATIONS = ("send", "write", "read")
QPS, QUICK_QPS = (10, 100, 1000, 10000), (10,)
LOSSES, QUICK_LOSSES = (0.01, 0.1, 1, 5), (1,)


def _peers(ends, quick, sizes, fabrics, transports):
    table = f"{ends.name}, "
    out = []
    for size in sizes:
        for provider in fabrics:
            out.append(tools.libfabric(ends, provider, size, quick, table + "SEND"))
        for metric in ("lat", "bw"):
            out.append(tools.tcp(ends, metric, size, quick, table + "SEND"))
            for transport in transports:
                for operation in ("SEND", "WRITE"):
                    out.append(tools.ucx(ends, transport, metric, size, quick, table + operation, operation))
    return out


def jobs(run, veth, quick):
    """Every cell; those of a veth pair only if there is one."""
    sizes = QUICK_SIZES if quick else SIZES
    out = []
    settings = [(LO, (Perftest(run, "shm", "shared memory"), Perftest(run, "socket", "UDP sockets")),
                 ("tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "shm"), ("tcp,self", "posix,self"))]
    if veth:
        settings.append((veth, (Perftest(run, "packet", "raw packets"), Perftest(run, "socket", "UDP sockets")),
                         ("tcp", "tcp;ofi_rxm", "udp;ofi_rxd"), ("tcp,self",)))
    for ends, ports, fabrics, transports in settings:
        for port in ports:
            for operation in OPERATIONS:
                for metric in ("lat", "bw"):
                    out += [port.job(ends, operation, metric, size, quick) for size in sizes]
            out.append(port.job(ends, "send", "lat", 64, quick, f"{ends.name}, SEND, event mode", ["-e"]))
            out += [port.queue_pairs(ends, number) for number in (QUICK_QPS if quick else QPS)]
        out += _peers(ends, quick, sizes, fabrics, transports)
    if veth:
        for percent in QUICK_LOSSES if quick else LOSSES:
            table = f"veth, {percent} % loss, SEND"
            out += [port.job(veth, "send", "bw", 65536, quick, table, lossy=percent) for port in settings[1][1]]
            out.append(tools.libfabric(veth, "tcp", 65536, quick, table, lossy=percent))
    return out


def execute(all_jobs, rounds, tell):
    """Measures all cells in turns, as often as there are rounds; says what is missing or failed instead of ending."""
    out = []
    for number in range(1, rounds + 1):
        for job in all_jobs:
            state, figures, detail = results.OK, {}, ""
            if not tools.is_there(job.program):
                state, detail = results.MISSING, f"{job.program} is not installed"
            else:
                try:
                    figures = job.measure(job.ends)
                except Failed as error:
                    state, detail = results.FAILED, str(error)
            out.append(results.Result(number, job.cell, state, figures, detail))
            tell(f"{number}/{rounds} {job.cell.table}: {job.cell.row}, {job.cell.column}: "
                 + (" ".join(f"{name}={results.number(value)}" for name, value in figures.items()) or f"{state} {detail}"))
    return out
