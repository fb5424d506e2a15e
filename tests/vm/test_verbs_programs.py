# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Data, errors, connections, and what belongs to the program: one test per case of the test programs."""

import contextlib

import pytest

from support.net import A, B
from support.procs import run

SILENT_IP = "10.9.0.77"


def check(result):
    """Fails with the program's message."""
    if not result.passed:
        pytest.fail(result.text, pytrace=False)


@pytest.fixture(scope="module")
def silent_host():
    """An address that is routed to the wire and resolves to a MAC that nobody has. On lo a route is enough (and lo has
    one neighbour for all addresses)."""
    if A.netdev != "lo":
        run("ip", "neigh", "replace", SILENT_IP, "lladdr", "02:00:00:00:00:77", "dev", A.netdev, "nud", "permanent")
    run("ip", "route", "replace", SILENT_IP, "dev", A.netdev, "src", A.ip)
    yield SILENT_IP
    with contextlib.suppress(AssertionError):
        run("ip", "route", "del", SILENT_IP)
        if A.netdev != "lo":
            run("ip", "neigh", "del", SILENT_IP, "dev", A.netdev)


@pytest.mark.provider
def test_data(case, case_results):
    check(case_results(case))


@pytest.mark.provider
def test_errors(case, case_results):
    check(case_results(case))


@pytest.mark.provider
def test_states(case, case_results):
    check(case_results(case))


def test_connections(case, case_results, silent_host):
    check(case_results(case, {"SILENT_IP": silent_host}))


def test_bystander(case, case_results):
    check(case_results(case))


test_data.program = "verbs_data"
test_errors.program = "verbs_errors"
test_states.program = "verbs_states"
test_connections.program = "cm_cases"
test_bystander.program = "bystander"

assert A.dev and B.dev, "A_DEV and B_DEV are not set: run this by scripts/vm (see README.md)"
