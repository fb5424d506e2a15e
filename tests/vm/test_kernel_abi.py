# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The module without the provider: the cases of tests/kmod/uapi_test, over the raw uverbs and rdma_ucm ABIs."""

import errno
import pathlib
import re
import subprocess

import pytest

from support.net import PEER, A
from support.procs import Proc, run

PROGRAMS = pathlib.Path(__file__).parents[2] / "build" / "tests" / "kmod"
PROGRAM = PROGRAMS / "uapi_test"
CASES = subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True).stdout.split()

pytestmark = [pytest.mark.core, pytest.mark.skipif(bool(PEER), reason="usiw's own ABI")]


@pytest.mark.parametrize("name", CASES)
def test_kernel_abi(name, expected):
    if name == "moves":
        expected.messages.append("raw packets would go past IPsec")
    out = run(PROGRAM, name, timeout=120)
    assert f"\nok {name} (" in f"\n{out}", out


def test_what_a_datagram_costs_at_one_port(request, capsys):
    """Prints the median for 1, 1,000 and 4,000 connections, and judges none: other tests count the sockets of a port
    (many/1000-at-one-port) and the look-ups (tests/kuser). It takes a minute and more, so `make check` goes without."""
    if not request.config.getoption("--one-port"):
        pytest.skip("runs by --one-port only, as in `make check-long`")
    out = run(PROGRAMS / "one_port", timeout=600)
    with capsys.disabled():
        print("\n" + out, end="")
    assert re.findall(r"^connections (\d+): a datagram takes \d", out, re.M) == ["1", "1000", "4000"], out


@pytest.mark.parametrize("name, version, todo", [
    ("older", 1, "install usiw of the module's version, then restart the program"),
    ("newer", 4000, "install usiw-dkms of the provider's version, then")])
def test_provider_of_another_version_says_so_in_one_line(name, version, todo):
    """The device is there and does not open. Both versions and what to do are on stderr, once. The kernel logs nothing,
    or the guest's judge would fail this run."""
    proc = Proc([PROGRAMS / "open_device", A.dev], env={"RDMAV_DRIVERS": PROGRAMS / f"lib{name}"})
    assert proc.wait(20) == 0, proc.output
    said = [line for line in proc.output.splitlines() if "usiw:" in line]
    assert len(said) == 1 and re.match(
        rf"usiw: the loaded kernel module speaks ABI \d+ to \d+, this program's provider ABI {version}: {todo}",
        said[0]), proc.output
    assert proc.output.count(f"open: {errno.EPROTONOSUPPORT}") == 2, proc.output
