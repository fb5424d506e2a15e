# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The host side of scripts/compare: rounds of guests, medians, and the table."""

import argparse
import json
import statistics

from . import bench, kernels, peers, session
from .paths import BUILD, OUT, PROJECT, HarnessError, say

#: Messages of the peers are not ours to judge.
PEER_MESSAGES = r"rxe|siw|infiniband|rdma|va:|vb:|speed is unknown"


def module_of(row, kernel):
    """What the guest has to load for a row of bench.py, DRIVER or DRIVER:HOW."""
    driver, _, how = row.partition(":")
    if how not in ("", "host") and (driver != "usiw" or how not in bench.USIW_PORTS):
        raise HarnessError(f"{row}: {driver} has no {how}")
    if driver == "usiw":
        module = BUILD / "kmod" / kernel.version / "usiw.ko"
        if not module.exists():
            raise HarnessError(f"{module.relative_to(PROJECT)} is missing: build it first (make module)")
        return module
    if driver == "siw":
        return peers.build_siw(kernel.version)
    if driver == "rxe":
        return "rdma_rxe"
    raise HarnessError(f"unknown driver {driver}")


def read_results(path):
    """{(driver, operation, kind, size): [values]} of a file of JSON lines; a line cut short is left out."""
    results = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            result = json.loads(line)
        except ValueError:
            continue
        key = (result["driver"], result["operation"], result["kind"], result["size"])
        results.setdefault(key, []).append(result["value"])
    return results


def summary(values):
    """Median of the figures, marked where some rounds gave none; a word where all gave none; None without rounds."""
    figures = [value for value in values if isinstance(value, (int, float))]
    if not figures:
        return values[0] if values else None
    text = bench.cell(statistics.median(figures))
    return text if len(figures) == len(values) else f"{text} ({len(values) - len(figures)} of {len(values)} failed)"


def table(results, drivers, cells=tuple(bench.COMPARE_CELLS)):
    """Markdown: a row for each operation and size, a column for each driver."""
    lines = []
    # The average tells of seldom long waits, which the typical latency leaves out.
    cells = [*cells, *(("avg", size, count) for kind, size, count in cells if kind == "lat" and
                       any(key[2] == "avg" for key in results))]
    for kind, title in (("lat", "latency, us"), ("avg", "average latency, us"), ("bw", "bandwidth, MiB/s")):
        sizes = [size for cell_kind, size, _ in cells if cell_kind == kind]
        if not sizes:
            continue
        lines += [f"| {title} | " + " | ".join(drivers) + " |", "|---|" + "---|" * len(drivers)]
        for operation in bench.OPERATIONS:
            for size in sizes:
                figures = [summary(results.get((driver, operation, kind, size), [])) or "-" for driver in drivers]
                lines.append(f"| {operation} {human(size)} | " + " | ".join(figures) + " |")
        lines.append("")
    return "\n".join(lines)


def human(size):
    """A message size as people write it."""
    for unit, factor in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def compare(options):
    """Runs the rounds and prints the table; exit status 0 if each guest ended well and usiw has every figure."""
    if options.topology == "hosts":
        return compare_hosts(options)
    drivers = options.drivers.split(",")
    kernel = kernels.find(options.kernel).prepare()
    results_file = OUT / "compare.jsonl"
    OUT.mkdir(parents=True, exist_ok=True)
    results_file.unlink(missing_ok=True)
    items = [f"{row}={module_of(row, kernel)}" for row in drivers]
    options.no_module, options.topology = True, "none"
    options.allow_dmesg.append(PEER_MESSAGES)
    status = 0
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        # Every driver once at each place in the order: a guest gets slower or faster as it ages.
        order = items[number % len(items):] + items[:number % len(items)]
        command = 'f=$1; shift; exec /usr/bin/python3 scripts/vmlib/bench.py compare "$@" >>"$f"'
        status = session.run_guest(options, ["sh", "-c", command, "sh", str(results_file), *order]) or status
    results = read_results(results_file) if results_file.exists() else {}
    print(f"Kernel {kernel.version}, veth in one guest, medians of {options.rounds}\n")
    print(table(results, drivers))
    return status or (1 if incomplete(results, drivers, options.rounds) else 0)


def compare_hosts(options):
    """The same between two guests: two new ones for each driver in each round."""
    drivers = options.drivers.split(",")
    kernel = kernels.find(options.kernel).prepare()
    results_file = OUT / "compare-hosts.jsonl"
    OUT.mkdir(parents=True, exist_ok=True)
    results_file.unlink(missing_ok=True)
    for row in drivers:
        if row.partition(":")[2] in bench.WITHIN_A_HOST:
            raise HarnessError(f"{row}: the ends are two hosts")
        module_of(row, kernel)
    options.allow_dmesg.append(PEER_MESSAGES)
    status = 0
    for number in range(options.rounds):
        for place in range(len(drivers)):   # each driver once at each place in the order
            row = drivers[(number + place) % len(drivers)]
            say(f"round {number + 1} of {options.rounds}: {row}")
            driver, _, port = row.partition(":")
            env = [*options.env, *([f"USIW_PORT={port}"] if port else [])]
            one = argparse.Namespace(**{**vars(options), "peer": None if driver == "usiw" else driver, "env": env})
            command = 'exec /usr/bin/python3 scripts/vmlib/bench.py between "$2" >>"$1"'
            ended = session.run_guest(one, ["sh", "-c", command, "sh", str(results_file), row])
            if driver == "usiw":
                status = ended or status
    results = read_results(results_file) if results_file.exists() else {}
    print(f"Kernel {kernel.version}, two guests with {options.smp} processors each on one wire ({options.nic}), "
          f"medians of {options.rounds}\n")
    print(table(results, drivers, bench.BETWEEN_CELLS))
    return status or (1 if incomplete(results, drivers, options.rounds, bench.BETWEEN_CELLS) else 0)


def incomplete(results, drivers, rounds, measured=tuple(bench.COMPARE_CELLS)):
    """The cells of usiw, by whichever port, that lack a figure in some round. The peers may fail."""
    cells = [(row, operation, kind, size) for row in drivers if row.partition(":")[0] == "usiw"
             for operation in bench.OPERATIONS for kind, size, _ in measured]
    return [cell for cell in cells
            if len([value for value in results.get(cell, []) if isinstance(value, (int, float))]) < rounds]
