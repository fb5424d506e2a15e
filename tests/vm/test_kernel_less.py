# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A program under usiw-run (no module) and one that uses the module: the wire is the same, both ways."""

import pathlib

import pytest

from support.cases import PROGRAMS
from support.net import A, B
from support.pairs import next_port, pair

USIW_RUN = str(pathlib.Path(PROGRAMS).parents[1] / "run" / "usiw-run")

#: Which end runs without the module.
ENDS = pytest.mark.parametrize("without", ["server", "client"])


def ends(server, client, port, without, timeout=60):
    """Runs both, one of them under usiw-run; returns the client's output."""
    at = {"server": B, "client": A}[without]
    prefix = [USIW_RUN, "--address", at.ip]
    return pair(prefix + server if without == "server" else server,
                prefix + client if without == "client" else client, port, timeout=timeout)[1]


@pytest.mark.core
@pytest.mark.kernel
@ENDS
def test_rping(without):
    port = next_port()
    options = ["-p", str(port), "-C", "20", "-S", "20000", "-V"]
    ends(["rping", "-s", "-a", B.ip, *options], ["rping", "-c", "-a", B.ip, "-I", A.ip, *options], port, without)


@pytest.mark.kernel
@ENDS
def test_ucmatose(without):
    port = next_port()
    options = ["-p", str(port), "-c", "10", "-C", "10", "-S", "1000"]
    out = ends(["ucmatose", "-b", B.ip, *options], ["ucmatose", "-b", A.ip, "-s", B.ip, *options], port, without)
    assert "return status 0" in out


@pytest.mark.kernel
@ENDS
@pytest.mark.parametrize("tool", ["ib_send_bw", "ib_read_bw", "ib_write_bw"])
def test_perftest(tool, without):
    port = next_port()
    options = ["-R", "-F", "-p", str(port), "-s", "65536", "-n", "200"]
    server_device, client_device = ("usiw0" if without == end else site.dev
                                    for end, site in (("server", B), ("client", A)))
    ends([tool, "-d", server_device, *options], [tool, "-d", client_device, *options, B.ip], port, without)
