# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The programs that are measured on this machine: how each is called, and which cells it has."""

import shutil
from typing import Callable, NamedTuple

from . import loss, parse
from .ends import Missing, both
from .results import Cell

FI_PORT = 47592  # where fi_pingpong listens
BYTES_OF_A_STREAM = 256 << 20
BYTES_FOR_PROCESSOR = 1 << 30
MOST_LATENCIES, MOST_MESSAGES = 5000, 20000
LEAST = 20
FABRIC_DIVISOR = 4  # fi_pingpong sends both ways, and by some providers slowly


class Job(NamedTuple):
    """A cell, the program it needs, the ends, and the function that measures it (ends -> figures)."""
    cell: Cell
    program: str
    ends: object
    measure: Callable


def rounds_of(metric, size, quick):
    """Messages of a run: enough for a median and 99 %, no more bytes than a stream should have."""
    most = MOST_LATENCIES if metric == "lat" else MOST_MESSAGES
    return max(LEAST, min(most // (5 if quick else 1), BYTES_OF_A_STREAM // (4 if quick else 1) // size))


def size_name(size):
    """A size as people write it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


class Perftest(NamedTuple):
    """perftest under usiw-run, by one kind of port. It connects by rdma_cm, or by itself on the RoCE face."""
    run: str
    kind: str
    row: str
    by_itself: bool = False

    def program(self, operation, metric):
        """What has to be installed."""
        return f"ib_{operation.lower()}_{metric}"

    def measure(self, where, operation, metric, size, count, extra=()):
        """Runs both ends."""
        face, connect = (("--face", "roce"), ()) if self.by_itself else ((), ("-R",))
        if self.by_itself and not where.server:
            # The GIDs of the interface that has the address, so that both ways use the same one.
            face += ("--address", where.address)
        command = [self.run, *face, "--port", self.kind, self.program(operation, metric), *connect, "-F", "-s",
                   str(size), "-n", str(count), "-p", "19001", *extra]
        return both(where, command, [*command, where.address], 19001)

    def figures(self, text, metric, size):
        """What the client printed."""
        return getattr(parse, f"perftest_{metric}")(text, size)


class Fabric(NamedTuple):
    """fi_pingpong: latency, and the rate of a ping-pong, which its row says."""
    provider: str
    row: str

    def program(self, _operation, _metric):
        """What has to be installed."""
        return "fi_pingpong"

    def measure(self, where, _operation, _metric, size, count):
        """Runs both ends."""
        base = ["fi_pingpong", "-p", self.provider, "-e", "msg" if self.provider == "tcp" else "rdm", "-I", str(count),
                "-S", str(size)]
        return both(where, base, [*base, where.address], FI_PORT)

    def figures(self, text, _metric, _size):
        """What the client printed."""
        return parse.fi_pingpong(text)


class Ucx(NamedTuple):
    """ucx_perftest by tags or puts."""
    transports: str
    row: str

    def program(self, _operation, _metric):
        """What has to be installed."""
        return "ucx_perftest"

    def measure(self, where, operation, metric, size, count, rank="50"):
        """Runs both ends; the percentile of that rank is printed."""
        base = ["ucx_perftest", "-f", "-t", f"{'ucp_put' if operation == 'WRITE' else 'tag'}_{metric}", "-s", str(size),
                "-n", str(count), "-w", str(count // 10 + 1), "-R", rank, "-p", "19003"]
        return both(where, base, [*base, where.address], 19003, env={"UCX_TLS": self.transports})

    def figures(self, text, metric, _size):
        """What the client printed."""
        return parse.ucx_perftest(text, metric)


class Bare(NamedTuple):
    """tests/bench/bare: kernel TCP, or the raw limit of a port. Its streams have seconds, not messages."""
    path: str
    kind: str
    row: str

    def program(self, _operation, _metric):
        """What has to be there."""
        return self.path

    def measure(self, where, _operation, metric, size, count):
        """Runs both ends."""
        amount = count if metric == "lat" else seconds_of(count, size)
        base = [self.path, self.kind, metric, str(size), str(amount), "19005"]
        if self.kind == "shm":
            return both(where, None, base, 0)
        return both(where, [*base, "server"], [*base, "client", where.address], 19005)

    def figures(self, text, _metric, _size):
        """What the client printed."""
        return parse.own(text)


def seconds_of(count, size):
    """A short stream for few bytes."""
    return 1 if count * size > BYTES_OF_A_STREAM // 8 else 0.5


def job(tool, ends, operation, metric, size, quick, table=None, column=None):
    """One cell of a tool. fi_pingpong has one for both metrics."""
    count = rounds_of(metric, size, quick)

    def measure(where):
        figures = tool.figures(tool.measure(where, operation, metric, size, count).text, metric, size)
        if isinstance(tool, Ucx) and metric == "lat":
            high = tool.figures(tool.measure(where, operation, metric, size, count, rank="99").text, metric, size)
            figures["p99_us"] = high["us"]
        return figures
    part = "" if isinstance(tool, Fabric) else metric
    return Job(Cell(table or f"{ends.name}, {operation}", tool.row, column or size_name(size), size, part),
               tool.program(operation, metric), ends, measure)


def both_ways_to_connect(port, ends, quick):
    """perftest connected by rdma_cm, and by itself. READ differs anyway: without -R the program that serves it waits in
    TCP, where it runs nothing of usiw."""
    ways = (port._replace(row=f"{port.row}, by rdma_cm"), port._replace(row=f"{port.row}, by itself", by_itself=True))
    return [job(tool, ends, operation, metric, size, quick, f"{ends.name}, two ways to connect",
                f"{operation} {size_name(size)}")
            for operation in ("SEND", "WRITE", "READ") for metric, size in (("lat", 64), ("bw", 65536))
            for tool in ways]


def events(tool, ends, quick):
    """SEND of 64 B by a program that blocks in ibv_get_cq_event."""
    count = rounds_of("lat", 64, quick)

    def measure(where):
        return tool.figures(tool.measure(where, "SEND", "lat", 64, count, extra=["-e"]).text, "lat", 64)
    return Job(Cell(f"{ends.name}, SEND, blocking", tool.row, "64 B", 64, "lat"), tool.program("SEND", "lat"), ends,
               measure)


def processor(tool, ends, size, quick):
    """Processor time of both ends per GB, start and end of the programs included. Polling is work, too."""
    count = BYTES_FOR_PROCESSOR // (8 if quick else 1) // (FABRIC_DIVISOR if isinstance(tool, Fabric) else 1) // size

    def measure(where):
        out = tool.measure(where, "SEND", "bw", size, count)
        sent = parse.own(out.text)["bytes"] if isinstance(tool, Bare) else count * size
        return {"processor_s_per_gb": out.processor_seconds * 1e9 / sent / (2 if isinstance(tool, Fabric) else 1)}
    return Job(Cell(f"{ends.name}, processor time", tool.row, size_name(size), size), tool.program("SEND", "bw"), ends,
               measure)


def under_loss(cell_job, percent):
    """The same while the wire loses packets."""
    def measure(where):
        try:
            with loss.at_both(where.sides, percent):
                return {"mb_s": cell_job.measure(where)["mb_s"]}
        except loss.Unable as error:
            raise Missing(f"nothing here loses packets: {error}") from error
    cell = cell_job.cell._replace(table=f"{cell_job.cell.table}, loss", column=f"{percent} %", size=0)
    return cell_job._replace(cell=cell, measure=measure)


def is_there(program):
    """Whether the program is installed, or built."""
    return shutil.which(program) is not None
