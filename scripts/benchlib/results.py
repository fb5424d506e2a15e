# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What each round gave, and its statistics as CSV and Markdown."""

import csv
import math
import statistics
from typing import NamedTuple

OK, FAILED, MISSING = "ok", "failed", "missing"
UNITS = {"us": "us, median", "p99_us": "us, 99 %", "avg_us": "us, average", "mb_s": "MB/s",
         "slowest": "the slowest client, % of an equal share", "processor_s_per_gb": "processor s of both ends per GB",
         "client_idle": "processor ms per s of the client", "server_idle": "processor ms per s of the server",
         "kib_per_qp": "KiB per QP of the client", "server_kib": "KiB per QP of the server"}
METRICS = tuple(UNITS)
PARTS = {"us": "lat", "p99_us": "lat", "avg_us": "lat", "mb_s": "bw", "slowest": "bw"}


class Cell(NamedTuple):
    """What is measured once a round. `table` is where it is shown, `row` and `column` its place there; two programs may
    measure `part`s of one place, "lat" and "bw"."""
    table: str
    row: str
    column: str
    size: int
    part: str = ""


class Result(NamedTuple):
    """One cell of one round."""
    round: int
    cell: Cell
    state: str
    figures: dict
    detail: str


def quantile(values, share):
    """The smallest value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Summary(NamedTuple):
    """A metric of a cell over all rounds: the median, the least and the greatest value, how many rounds failed."""
    median: float
    least: float
    greatest: float
    rounds: int
    failed: int


def summaries(results):
    """{cell: {metric: Summary}} in the order of the first round; a cell without a figure has an empty dictionary."""
    grouped = {}
    for result in results:
        grouped.setdefault(result.cell, []).append(result)
    out = {}
    for cell, these in grouped.items():
        out[cell] = {}
        failed = sum(r.state != OK for r in these)
        for metric in METRICS:
            values = [r.figures[metric] for r in these if metric in r.figures]
            if values:
                out[cell][metric] = Summary(statistics.median(values), min(values), max(values), len(these), failed)
    return out


def write_csv(path, results):
    """One line for each cell of each round, failed and missing ones included."""
    with open(path, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(["round", "table", "row", "column", "bytes", "part", "state", *METRICS, "detail"])
        for r in results:
            out.writerow([r.round, *r.cell, r.state, *(r.figures.get(m, "") for m in METRICS), r.detail])


def number(value):
    """Three figures."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def shown(summary):
    """A summary as it stands in a table."""
    text = number(summary.median)
    if summary.least != summary.greatest:
        text += f" ({number(summary.least)} to {number(summary.greatest)})"
    if summary.failed:
        text += f", {summary.failed} of {summary.rounds} failed"
    return text


def markdown(results, conditions):
    """The report: a table for each metric of each of the tables, then what failed or is missing and why."""
    found = summaries(results)
    why = {r.cell: r.state for r in results if r.state != OK}
    lines = ["# usiw beside its peers", "", *(f"- {line}" for line in conditions), "",
             "Medians of the rounds, in brackets the least and the greatest. us: one way, half of a round trip (READ: "
             "a whole one). A tool that tells no percentiles stands in the tables of averages only."]
    for table in dict.fromkeys(cell.table for cell in found):
        cells = {cell: found[cell] for cell in found if cell.table == table}
        columns = list(dict.fromkeys(cell.column for cell in cells))
        rows = list(dict.fromkeys(cell.row for cell in cells))
        for metric in METRICS:
            if not any(metric in figures for figures in cells.values()):
                continue
            used = [c for c in columns if any(metric in f for cell, f in cells.items() if cell.column == c)]
            lines += ["", f"## {table}: {UNITS[metric]}", "", "| | " + " | ".join(used) + " |",
                      "|---" * (len(used) + 1) + "|"]
            for row in rows:
                words = []
                for column in used:
                    parts = (PARTS.get(metric, ""), "")
                    here = [c for c in cells if c.row == row and c.column == column and c.part in parts]
                    figures = next((cells[c] for c in here if metric in cells[c]), {})
                    words.append(shown(figures[metric]) if metric in figures else
                                 next((why[c] for c in here if c in why), "-"))
                if set(words) != {"-"}:
                    lines.append(f"| {row} | " + " | ".join(words) + " |")
    reasons = dict.fromkeys((r.state, r.cell.table, r.cell.row, r.cell.column if r.state == FAILED else "", r.detail)
                            for r in results if r.state != OK)
    if reasons:
        lines += ["", "## Without a figure", ""]
        lines += [f"- {state}: {', '.join(w for w in (table, row, column) if w)}: {detail}"
                  for state, table, row, column, detail in reasons]
    return "\n".join(lines) + "\n"
