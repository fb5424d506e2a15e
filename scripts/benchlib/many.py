# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Many connections at once, by tests/bench/many_qps and bare: memory, idle processors, incast."""

import itertools
import resource

from . import parse
from .ends import Missing, both, several
from .results import Cell
from .tools import Bare, Job, Perftest, size_name

# Of many connections: who tells the other end that a process has ended keeps the listener's port for a moment.
PORTS = itertools.cycle(range(19100, 19600))
FILES_PER_QP = 3
CLIENTS, INCAST_SIZE = 8, 65536


def queue_pairs(tool, program, ends, number, quick):
    """Connected QPs that stay idle: processor time of each end, and memory beyond that of a single one."""
    def idle(where, qps, seconds):
        port = next(PORTS)
        base = [tool.run, "--port", tool.kind, program, "idle", str(seconds), str(port)]
        out = both(where, [*base, "server", str(qps)], [*base, "client", where.address, str(qps)], port,
                   seconds=60 + qps // 20)
        return parse.own(out.server_text), parse.own(out.text)

    def measure(where):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if most != resource.RLIM_INFINITY and FILES_PER_QP * number + 100 > most:
            raise Missing(f"{FILES_PER_QP} files for each QP, and a process here may open {most}")
        server, client = idle(where, number, 1 if quick else 3)
        figures = {"server_idle": server["processor"] * 1000, "client_idle": client["processor"] * 1000}
        if number > 1:
            server_one, client_one = idle(where, 1, 0.5)
            for name, many, one in (("server_kib", server, server_one), ("kib_per_qp", client, client_one)):
                figures[name] = (many["peak_kib"] - one["peak_kib"]) / (number - 1)
        return figures
    column = "1 QP" if number == 1 else f"{number} QPs"
    return Job(Cell(f"{ends.name}, idle QPs", tool.row, column, number), program, ends, measure)


def incast(tool, program, ends, quick):
    """Clients that all send to one server: what they get together, and the slowest in per cent of an equal share."""
    assert isinstance(tool, (Perftest, Bare))
    seconds = str(1 if quick else 3)

    def measure(where):
        port = next(PORTS)
        if isinstance(tool, Perftest):
            base = [tool.run, "--port", tool.kind, program, "stream", seconds, str(port), str(INCAST_SIZE)]
        else:
            base = [program, tool.kind, "bw", str(INCAST_SIZE), seconds, str(port)]
        out = several(where, [*base, "server", str(CLIENTS)], [[*base, "client", where.address]] * CLIENTS, port)
        rates = [parse.own(text)["mb_s"] for text in out.texts]
        return {"mb_s": sum(rates), "slowest": 100 * min(rates) * CLIENTS / sum(rates)}
    return Job(Cell(f"{ends.name}, {CLIENTS} clients at once to one server, SEND of {size_name(INCAST_SIZE)}", tool.row,
                    "all", INCAST_SIZE, "bw"), program, ends, measure)
