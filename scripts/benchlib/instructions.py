# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Instructions per message of each case of engine_bench, by callgrind, beside those that the repository keeps.

A run of N and one of 2 N messages: the difference has no start-up in it. Clocks make runs differ by a little.
The C library copies by vectors only: of a "rep movsb" callgrind would count each byte as an instruction.
"""

import os
import pathlib
import subprocess

from . import parse
from .ends import Failed

MESSAGES = 2000
NOISE_PERCENT = 2.0
LARGE_DIVISOR = 20   # engine_bench sends that many times fewer, plus one, of messages above 10,000 bytes
CASES = ("pingpong_send_8_inline", "pingpong_100_qps", "pingpong_1000_qps", "send_64", "send_64k", "write_8_inline",
         "write_64", "write_4k", "write_64k", "write_64k_mtu9000", "read_64", "read_64k")
TUNABLES = ":".join(f"glibc.cpu.x86_rep_{what}_threshold=0x7fffffff" for what in ("movsb", "stosb"))
HEADER = """# Instructions per message, both ends together, of tests/bench/engine_bench under callgrind.
# `scripts/bench instructions` shows what has changed since, `scripts/bench instructions --update` writes this file.
"""


def _total(program, messages, case):
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program),
                           str(messages), case], capture_output=True, text=True, check=False, timeout=300,
                          env=dict(os.environ, GLIBC_TUNABLES=TUNABLES))
    if done.returncode:
        raise Failed(f"{case}: {done.stderr.strip()[-200:]}")
    return parse.callgrind_total(done.stderr)


def messages_of(case, messages):
    """How many messages engine_bench really sends in a case."""
    return messages // LARGE_DIVISOR + 1 if "64k" in case else messages


def count(program, case):
    """Instructions per message, rounded."""
    few, many = _total(program, MESSAGES, case), _total(program, 2 * MESSAGES, case)
    return round((many - few) / (messages_of(case, 2 * MESSAGES) - messages_of(case, MESSAGES)))


def read(path):
    """{case: instructions} of the kept file; empty if there is none."""
    if not path.exists():
        return {}
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines() if not line.startswith("#"))
    return {words[0]: int(words[1]) for words in lines if words}


def written(counts):
    """The text of the kept file."""
    return HEADER + "".join(f"{case:<26}{number:>8}\n" for case, number in counts.items())


def difference(kept, now):
    """Lines of (case, kept, now, per cent) as Markdown, and whether one is beyond the noise or in one list only."""
    lines, differs = ["| case | kept | now | change, % |", "|---|---|---|---|"], False
    for case in dict.fromkeys([*kept, *now]):
        old, new = kept.get(case), now.get(case)
        change = 100 * (new - old) / old if old and new is not None else None
        differs |= change is None or abs(change) > NOISE_PERCENT
        lines.append(f"| {case} | {'-' if old is None else old} | {'-' if new is None else new} | "
                     f"{'-' if change is None else f'{change:+.1f}'} |")
    return lines, differs


def run(program, path, update, tell):
    """Counts every case and shows the difference, or keeps it. Exit status 1 if something differs and is not kept."""
    if not pathlib.Path(program).exists():
        raise Failed(f"{program} is not built")
    now = {}
    for case in CASES:
        now[case] = count(program, case)
        tell(f"{case}: {now[case]}")
    lines, differs = difference(read(path), now)
    print("\n".join(lines))
    if update:
        path.write_text(written(now), encoding="ascii")
    return 1 if differs and not update else 0
