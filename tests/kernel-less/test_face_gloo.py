# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""gloo's transport ibverbs on the RoCE face: sums and broadcasts of three ranks, which leave in any order."""

import pathlib
import subprocess

import pytest

from support.procs import Proc

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "compat" / "sources" / "gloo.cc"
RANKS = 3


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("gloo") / "gloo"
    subprocess.run(["g++", "-O1", "-o", path, SOURCE, "-lgloo", "-libverbs"], check=True)
    return path


@pytest.fixture(params=["this-host", "other-host"])
def ranks(request, usiw_run, program, tmp_path):
    """ranks(stdin, leaver): starts all of them. The last one runs on the other host."""
    where = request.getfixturevalue("other_host") if request.param == "other-host" else ""

    def start(stdin, leaver=RANKS):
        argv = [usiw_run.path, "--face", "roce", program]
        return [Proc([*argv, rank, RANKS, tmp_path, "usiw0", 1, leaver], where=where if rank == RANKS - 1 else "",
                     stdin=stdin) for rank in range(RANKS)]
    return start


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("leaver", range(RANKS))
def test_one_leaves_first(ranks, leaver, killed):
    """The others go on. They still have receives posted for the one that has left."""
    all_ranks = ranks(subprocess.PIPE, leaver)
    for rank in all_ranks:
        rank.wait_for(f"^{RANKS} ranks, all right")
    first = all_ranks.pop(leaver)
    if killed:
        first.kill()
    else:
        first.tell("")
        first.expect(0)
    for rank in all_ranks:
        rank.tell("")
    for rank in all_ranks:
        assert f"{RANKS - 1} ranks, all right" in rank.expect(0)


def test_each_leaves_when_it_is_done(ranks):
    """Without waiting for the others."""
    for rank in ranks(subprocess.DEVNULL):
        assert f"{RANKS} ranks, all right" in rank.expect(0)
