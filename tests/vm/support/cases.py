# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Runs the programs that are lists of cases (programs/tap.h): many cases per process, a new process when one dies."""

import os
import pathlib
import subprocess
import time
from typing import NamedTuple

from . import procs

PROGRAMS = pathlib.Path(
    os.environ.get("VM_PROGRAMS") or pathlib.Path(__file__).resolve().parents[3] / "build" / "tests" / "vm")


class Case(NamedTuple):
    """One line of --list."""
    program: str
    name: str
    seconds: int
    core: bool


class Result(NamedTuple):
    """How a case ended."""
    passed: bool
    text: str
    seconds: float = 0


def path_of(program):
    """Path of a test program as built by CMake."""
    return str(PROGRAMS / program)


def list_cases(program):
    """The cases of a program."""
    lines = subprocess.run([path_of(program), "--list"], stdout=subprocess.PIPE, check=True, text=True).stdout
    fields = [line.split() for line in lines.splitlines()]
    return [Case(program, name, int(seconds), core == "core") for name, seconds, core in fields]


def run_cases(program, cases, env=None, front=()):
    """{name: Result} of the cases. A case that ends the process fails; the others run in a new one. `front` comes before
    the program's path."""
    left = list(cases)
    results = {}
    while left:
        proc = procs.Proc([*front, path_of(program)] + [case.name for case in left], env=env)
        try:
            _follow(proc, left)
            status = proc.status
            before = len(results)
            _collect(proc.output, status, results)
        finally:
            proc.kill()
        if len(results) == before:  # died before its first case: the same would happen again
            for case in left:
                results[case.name] = Result(False, f"the program ended with status {status}:\n{proc.output[-2000:]}")
        left = [case for case in left if case.name not in results]
    return results


def _follow(proc, cases):
    """Waits for the end of the process. Each case has an alarm of its own; this is the net below it."""
    deadline = time.monotonic() + sum(case.seconds for case in cases) + 60
    seen, quiet_since = "", time.monotonic()
    while proc.status is None:
        output = proc.output
        if output != seen:
            seen, quiet_since = output, time.monotonic()
        limit = max(case.seconds for case in cases) + 30
        if time.monotonic() > deadline or time.monotonic() - quiet_since > limit:
            proc.signal(9)
            proc.wait(20)
            return
        time.sleep(0.05)


def _collect(output, status, results):
    """Reads the lines of one run."""
    running, notes = None, []
    for line in output.splitlines():
        words = line.split(" ", 3)
        if line.startswith("run "):
            running, notes = words[1], []
        elif line.startswith("ok "):
            results[words[1]] = Result(True, line, int(words[2]) / 1000)
            running = None
        elif line.startswith("not ok "):
            took, _, text = words[3].partition(" ")
            results[words[2]] = Result(False, "\n".join([text] + notes), int(took) / 1000)
            running = None
        else:
            notes.append(line)
    if running:
        how = "ran out of time" if status in (-14, -9) else f"ended the process with status {status}"
        results[running] = Result(False, "\n".join([how] + notes[-20:]))
