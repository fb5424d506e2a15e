# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What each tool prints, as figures: microseconds one way, and MB/s of 10^6 bytes whatever the tool's own unit is.

Each function returns a dictionary of the figures it finds ("us" is the median, "p99_us", "avg_us"; "mb_s") and raises
Failed where there is none.
"""

import re

from .ends import Failed

MIB = 1.048576  # MB in what perftest and ucx_perftest call MB


def _numbers(line):
    try:
        return [float(word) for word in line.split()]
    except ValueError:
        return []


def _positive(figures, text):
    if not figures or any(not value > 0 for value in figures.values()):
        raise Failed(f"no figure in: {text.strip()[-200:]}")
    return figures


def perftest_lat(text, size):
    """ib_*_lat: bytes, iterations, min, max, typical, average, deviation, 99 %, 99.9 %."""
    for line in text.splitlines():
        row = _numbers(line)
        if len(row) >= 8 and row[0] == size:
            return _positive({"us": row[4], "p99_us": row[7], "avg_us": row[5]}, text)
    raise Failed(f"no figure in: {text.strip()[-200:]}")


def perftest_bw(text, size):
    """ib_*_bw: bytes, iterations, peak, average, messages per microsecond."""
    for line in text.splitlines():
        row = _numbers(line)
        if len(row) == 5 and row[0] == size:
            return _positive({"mb_s": row[3] * MIB}, text)
    raise Failed(f"no figure in: {text.strip()[-200:]}")


def fi_pingpong(text):
    """bytes, #sent, #ack, total, time, MB/sec, usec/xfer, Mxfers/sec; there is one row. No percentiles."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 8 and words[0][0].isdigit() and words[4].endswith("s"):
            figures = {"avg_us": float(words[6]), "mb_s": float(words[5])}
            return _positive({k: v for k, v in figures.items() if v or k != "mb_s"}, text)   # 0.00 MB/s: few bytes
    raise Failed(f"no figure in: {text.strip()[-200:]}")


def ucx_perftest(text, kind):
    """The last row: iterations, a percentile, average of late and of all; of rates then MB/s, of late and of all."""
    rows = [line.replace("Final:", "") for line in text.splitlines() if re.match(r"^\s*(Final:)?\s*\d+\s", line)]
    row = _numbers(rows[-1]) if rows else []
    if len(row) < 6:
        raise Failed(f"no figure in: {text.strip()[-200:]}")
    return _positive({"us": row[1], "avg_us": row[3]} if kind == "lat" else {"mb_s": row[5] * MIB}, text)


def own(text):
    """The programs of tests/bench: NAME=NUMBER, some of them, in a line. A processor may have had nothing to do."""
    figures = {name: float(value) for name, value in re.findall(r"\b([a-z0-9_]+)=([0-9.]+)", text)}
    return dict(_positive({k: v for k, v in figures.items() if k != "processor"}, text), **figures)


def callgrind_total(text):
    """Instructions of a whole run, from what callgrind prints at its end."""
    found = re.search(r"Collected\s*:\s*(\d+)", text)
    if not found:
        raise Failed(f"callgrind counted nothing: {text.strip()[-200:]}")
    return int(found[1])
