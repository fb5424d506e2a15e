# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdma-core's own Python tests on the RoCE face, unmodified. There a QP connects by itself, so all that the table
rdma_core_expected.tsv (tests/vm) calls `connects` passes here or has another reason.

Three of the tests need huge pages of the machine, so this file sets some aside while it runs."""

import os

import pytest

import huge_pages
from hosts import B4
from stats import devices
from support import rdma_core
from support.pairs import next_port
from support.procs import Proc, until

REASONS, TESTS = rdma_core.table()
#: These fail today, and the reason. A test that passes has to be taken out of this table.
FAILS = {
    # It skips on two adapters that it knows by their vendor only. No error of rdma_cm makes it skip.
    "test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic": "there are no UD QPs, though the device is a CA",
}
#: More than the tests use at a time.
PAGES = 16

REASON = {name: test.reason_on("roce") for name, test in TESTS.items() if name not in FAILS}
ON_PAGES = [name for name, reason in REASON.items() if reason == rdma_core.HUGE_PAGES]
PASSES = [name for name, reason in REASON.items() if not reason]
SKIPPED = {name: reason for name, reason in REASON.items() if reason and name not in ON_PAGES}


@pytest.fixture(scope="module")
def no_pages():
    """Sets huge pages aside for this file. Returns an empty text, or the reason why there are none."""
    with huge_pages.set_aside(PAGES) as reason:
        yield reason


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    front = [os.environ["USIW_RUN"], "--face", "roce"]
    return rdma_core.Suite(tmp_path_factory.mktemp("rdma-core"), lambda argv: Proc([*front, *argv]), "127.0.0.1",
                           ["--dev", "usiw0", "--gid", "1"])


@pytest.fixture(scope="module")
def outcomes(suite, no_pages):
    """{test: Outcome} of all of them."""
    return suite.run(sorted(TESTS))


def test_table_lists_every_test(suite, outcomes):
    assert set(suite.names) == set(TESTS) == set(outcomes)


@pytest.mark.parametrize("name", PASSES)
def test_passes(name, outcomes):
    assert outcomes[name].what == "passed", outcomes[name].text


@pytest.mark.parametrize("name", ON_PAGES)
def test_passes_on_huge_pages(name, outcomes, no_pages):
    if no_pages:
        pytest.skip(no_pages)
    assert outcomes[name].what == "passed", outcomes[name].text


@pytest.mark.parametrize("reason", sorted(set(SKIPPED.values())))
def test_skipped(reason, outcomes):
    """For the reason that the table gives, and no test of them fails."""
    those = {name: outcomes[name] for name, why in SKIPPED.items() if why == reason}
    assert those and not {name: how for name, how in those.items() if how.what != "skipped"}, REASONS[reason]


@pytest.mark.parametrize("name", FAILS)
def test_fails_today(name, outcomes):
    assert outcomes[name].what == "failed", f"{name} {outcomes[name].what}: take it out of FAILS"


def test_enough_pass():
    """A floor, which rises with what the face learns."""
    assert len(PASSES) + len(ON_PAGES) >= 90


def test_packets_beside_huge_pages(no_pages, usiw_run, other_host):
    """DPDK takes huge pages where it finds them, unless it is asked not to. usiw asks, so the pages stay free."""
    if no_pages:
        pytest.skip(no_pages)
    free, port = huge_pages.number("free"), next_port()
    argv = ["ib_write_lat", "-F", "-d", "usiw0", "-p", port, "-n", 100000000]
    options = ["--face", "roce", "--port", "packet"]
    server = Proc([usiw_run.path, *options, *argv], where=other_host).wait_listening(port)
    client = usiw_run([*argv, B4], options)

    def ports():
        return [q["gauges"]["data_port"] for d in devices().values() for q in d["qps"] if q["pid"] == client.pid]
    until(lambda: client.status is not None or "packet" in ports(), "the data goes by raw packets")
    assert client.status is None, client.output
    assert huge_pages.number("free") == free
    client.kill()
    server.kill()
