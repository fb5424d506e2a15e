# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""usiw-run itself. Started by tests/kernel-less/run, in a network namespace with lo only."""

import os
import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("vm", "compat", "protocol")]
import hosts  # noqa: E402
from support import procs  # noqa: E402

USIW_RUN = os.environ["USIW_RUN"]


@pytest.fixture(autouse=True)
def nothing_left():
    """After each test no process of it runs."""
    yield
    assert procs.kill_all() == 0


@pytest.fixture
def usiw_run():
    """Starts a program under usiw-run: usiw_run(argv, options=[...])."""
    def start(argv, options=(), **kwargs):
        return procs.Proc([USIW_RUN, *options, *argv], **kwargs)
    start.path = USIW_RUN
    return start


@pytest.fixture(scope="module")
def other_host():
    """What to put before a command to run it on the other host (hosts.py)."""
    with hosts.other_host() as where:
        yield where
