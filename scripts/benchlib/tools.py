# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The programs that are measured on this machine: how each is called, and which cells it has."""

import shutil
from typing import Callable, NamedTuple

from . import parse
from .ends import Failed, both, loss
from .results import Cell

FI_PORT = 47592  # where fi_pingpong listens
BYTES_OF_A_STREAM = 256 << 20


class Job(NamedTuple):
    """A cell, the program it needs, the ends, and the function that measures it (ends -> figures)."""
    cell: Cell
    program: str
    ends: object
    measure: Callable


def rounds_of(kind, size, quick):
    """Messages of a run: enough for a median, no more bytes than a stream should have."""
    most = (1000 if quick else 5000) if kind == "lat" else (2000 if quick else 5000)
    return max(20, min(most, (BYTES_OF_A_STREAM // (8 if quick else 1)) // size))


def size_name(size):
    """A size as people write it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _with_processor(figures, outcome, sent):
    if "mb_s" in figures and outcome.processor_seconds > 0:
        figures["processor_s_per_gb"] = outcome.processor_seconds * 1e9 / sent
    return figures


class Perftest(NamedTuple):
    """perftest under usiw-run, by one kind of port."""
    run: str
    kind: str
    name: str

    def command(self, operation, metric, size, count, extra=()):
        """The server's command; the client's has the address behind it."""
        return [self.run, "--port", self.kind, f"ib_{operation}_{metric}", "-R", "-F", "-s", str(size),
                "-n", str(count), "-p", "19001", *extra]

    def job(self, ends, operation, metric, size, quick, table=None, extra=(), lossy=0):
        """One cell of an operation."""
        count = rounds_of(metric, size, quick)

        def measure(where):
            command = self.command(operation, metric, size, count, extra)
            if lossy:
                with loss(where, lossy):
                    out = both(where, command, [*command, where.address], 19001)
            else:
                out = both(where, command, [*command, where.address], 19001)
            figures = getattr(parse, f"perftest_{metric}")(out.text, size)
            return _with_processor(figures, out, size * count)
        cell = Cell(table or f"{ends.name}, {operation.upper()}", f"usiw-run, {self.name}", size_name(size), size, metric)
        return Job(cell, f"ib_{operation}_{metric}", ends, measure)

    def queue_pairs(self, ends, number):
        """Memory per QP: peak memory of a client with so many QPs less that of one with a single QP."""
        def memory(where, qps):
            command = self.command("send", "bw", 64, 20, ["-q", str(qps), "-t", "16", "-r", "16"])
            return both(where, command, [*command, where.address], 19001, seconds=60 + qps // 20).client_kib

        def measure(where):
            grown = memory(where, number) - memory(where, 1)
            if grown <= 0:   # The peak that the kernel tells is at least that of the process that forked, which is this one.
                raise Failed("the QPs are hidden behind the memory of the harness")
            return {"kib_per_qp": grown / (number - 1)}
        return Job(Cell(f"{ends.name}, QPs of one client", f"usiw-run, {self.name}", str(number), number),
                   "ib_send_bw", ends, measure)


def libfabric(ends, provider, size, quick, table, lossy=0):
    """fi_pingpong: latency, and the rate of a ping-pong."""
    count = rounds_of("lat", size, quick)

    def measure(where):
        base = ["fi_pingpong", "-p", provider, "-e", "msg" if provider == "tcp" else "rdm", "-I", str(count),
                "-S", str(size)]
        if lossy:
            with loss(where, lossy):
                out = both(where, base, [*base, where.address], FI_PORT)
        else:
            out = both(where, base, [*base, where.address], FI_PORT)
        return _with_processor(parse.fi_pingpong(out.text), out, 2 * count * size)
    return Job(Cell(table, f"libfabric {provider} (ping-pong)", size_name(size), size), "fi_pingpong", ends, measure)


UCX_TESTS = {"SEND": "tag", "WRITE": "ucp_put"}


def ucx(ends, transports, metric, size, quick, table, operation="SEND"):
    """ucx_perftest by tags or puts."""
    count = rounds_of(metric, size, quick)
    test = f"{UCX_TESTS[operation]}_{metric}"

    def measure(where):
        base = ["ucx_perftest", "-f", "-t", test, "-s", str(size), "-n", str(count), "-p", "19003"]
        out = both(where, base, [*base, where.address], 19003, env={"UCX_TLS": transports})
        return _with_processor(parse.ucx_perftest(out.text, metric), out, size * count)
    return Job(Cell(table, f"UCX {transports}", size_name(size), size, metric), "ucx_perftest", ends, measure)


def tcp(ends, metric, size, quick, table):
    """qperf: kernel TCP, blocking."""
    seconds = "1" if quick else "2"

    def measure(where):
        out = both(where, ["qperf", "-lp", "19005"],
                   ["qperf", "-lp", "19005", "-t", seconds, "-m", str(size), where.address,
                    f"tcp_{metric}", "quit"], 19005)
        return parse.qperf(out.text)
    return Job(Cell(table, "kernel TCP (qperf, blocking)", size_name(size), size, metric), "qperf", ends, measure)


def is_there(program):
    """Whether the program is installed."""
    return shutil.which(program) is not None
