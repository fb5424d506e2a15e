# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""usiw beside siw and rxe in guests, by scripts/compare: its tables go into the report."""

import subprocess
from typing import NamedTuple

from .results import FAILED, MISSING, OK

ROUNDS = 3
UNABLE = 96   # scripts/compare's exit status if a guest cannot be had
RUNS = (("In one guest", "compare", ()), ("Between two guests", "compare-hosts", ("--topology", "hosts")))


class Guests(NamedTuple):
    """What one run of scripts/compare gave."""
    title: str
    state: str
    table: str
    detail: str


def run(compare, folder, tell):
    """Runs scripts/compare for each topology, one after the other; keeps what it prints as Markdown in the folder."""
    out = []
    for title, name, options in RUNS:
        tell(f"guests: {title.lower()}")
        words = [str(compare), "--rounds", str(ROUNDS), *options]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            out.append(Guests(title, MISSING, "", str(error)))
            continue
        (folder / f"{name}.md").write_text(done.stdout, encoding="utf-8")
        (folder / f"{name}.log").write_text(done.stderr, encoding="utf-8")
        said = (done.stderr.strip().splitlines() or [""])[-1]
        state = {0: OK, UNABLE: MISSING}.get(done.returncode, FAILED)
        detail = "" if state == OK else f"status {done.returncode}: {said}"
        out.append(Guests(title, state, done.stdout.strip(), detail))
    return out


def markdown(all_guests):
    """Their tables, and in words what is missing or failed."""
    lines = []
    for one in all_guests:
        lines += ["", f"## {one.title}", ""]
        if one.detail:
            lines += [f"{one.state}: {one.detail}", ""]
        lines += [one.table] if one.table else []
    return "\n".join(lines) + "\n" if lines else ""
