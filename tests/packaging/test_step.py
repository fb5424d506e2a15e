# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Long steps of `make demo` show that they go on: scripts/step, and its counterpart of the guests' harness."""

import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = [ROOT / "scripts/step"]
#: The same through vmlib: a step that runs the command.
IN_PYTHON = [sys.executable, "-B", "-c", """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from vmlib import paths
with paths.step(sys.argv[2]):
    subprocess.run(sys.argv[3:], check=True)
""", ROOT / "scripts"]


def on_a_terminal(command):
    """(exit status, what a terminal gets on stderr)."""
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave) as process:
        os.close(slave)
        out = b""
        while True:
            try:
                out += os.read(master, 4096)
            except OSError:  # nobody has the other end any more
                break
    os.close(master)
    return process.returncode, out.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", [[*STEP, "-q", "the step"], [*STEP, "the step"]], ids=["quiet", "noisy"])
def test_one_line_at_the_start_and_one_at_the_end(command):
    done = subprocess.run([*command, "sh", "-c", "echo out; exit 3"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert re.fullmatch(r"the step \.\.\.\nthe step: failed after \d+ s\n", done.stderr)
    done = subprocess.run([*command, "true"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"the step \.\.\.\nthe step: done in \d+ s\n", done.stderr)


def test_a_wrong_command_line():
    assert subprocess.run([*STEP, "-q", "name"], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize("command, prefix", [([*STEP, "-q"], ""), (IN_PYTHON, "vm: ")], ids=["shell", "python"])
def test_a_terminal_sees_the_seconds(command, prefix):
    status, out = on_a_terminal([*command, "the step", "sleep", "2.5"])
    assert status == 0
    pattern = r"(E?)P?the step \.\.\.\n(EP?the step: [12] s\r){1,2}E*P?the step: done in [23] s\n"
    assert re.fullmatch(pattern.replace("E", "(?:\x1b\\[K)").replace("P?", prefix), out), repr(out)


def test_no_ticks_without_a_terminal():
    done = subprocess.run([*IN_PYTHON, "the step", "sleep", "1.5"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"vm: the step \.\.\.\nvm: the step: done in [12] s\n", done.stderr)
