# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The GIDs of the RoCE face, and a QP that is its own peer (docs/face.md)."""

import ipaddress
import pathlib

import pytest

from hosts import A4, A6

PROGRAMS = pathlib.Path(__file__).parent / "programs"
PYTHON = "/usr/bin/python3"  # the one that has Debian's pyverbs
FACE = ["--face", "roce"]


def full(address):
    """As pyverbs and sysfs print a GID. An IPv4 address is mapped."""
    ip = ipaddress.ip_address(address)
    return (ipaddress.ip_address(f"::ffff:{ip}") if ip.version == 4 else ip).exploded


EMPTY = full("::")


@pytest.mark.parametrize("gid", ["0", "1"])
@pytest.mark.parametrize("port", ["auto", "socket"])
def test_qp_is_its_own_peer(usiw_run, gid, port):
    usiw_run([PYTHON, PROGRAMS / "to_itself.py", gid], [*FACE, "--port", port]).expect(0)


def test_host_that_has_only_lo(usiw_run):
    """Index 0 is made up, so that programs which never ask for another one connect on this host."""
    program = usiw_run([PYTHON, PROGRAMS / "gids.py"], FACE)
    program.expect(0)
    made_up, own, *rest = program.output.split()
    assert ipaddress.ip_address(made_up).is_link_local
    assert own == full("127.0.0.1")
    assert rest == [full("::1"), EMPTY]


def test_addresses_come_and_go(usiw_run, other_host):
    """An address keeps its index while others go. A new one gets the first index that is free."""
    del other_host
    commands = [f"ip addr add {address} dev va" for address in ("10.78.0.1/24", "10.79.0.1/24")]
    commands += ["ip addr del 10.78.0.1/24 dev va", "ip addr add 10.80.0.1/24 dev va", "ip addr del 10.79.0.1/24 dev va",
                 "ip addr del 10.80.0.1/24 dev va"]
    program = usiw_run([PYTHON, PROGRAMS / "gids.py", *commands], [*FACE, "--address", A4])
    program.expect(0)
    first, *changed = [line.split() for line in program.output.splitlines()]
    assert ipaddress.ip_address(first[0]).is_link_local
    assert first[1:] == [full(A4), full(A6), EMPTY]
    fixed = first[:3]
    assert changed == [[*fixed, full("10.78.0.1")], [*fixed, full("10.78.0.1")], [*fixed, EMPTY],
                       [*fixed, full("10.80.0.1")], [*fixed, full("10.80.0.1")], [*fixed, EMPTY]]
