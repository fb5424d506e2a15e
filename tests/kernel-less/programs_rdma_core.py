# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdma-core's own Python tests on the RoCE face, unmodified. There a QP connects by itself, so all that the table
rdma_core_expected.tsv (tests/vm) calls `connects` passes here or has another reason."""

import os

import pytest

from support import rdma_core
from support.procs import Proc

REASONS, TESTS = rdma_core.table()
#: Only on this face there is an empty entry in the GID table.
PASSES_HERE = {"test_device.DeviceTest.test_query_gid_ex_bad_flow"}
#: Asks for no device of mlx5, though its file is for mlx5.
PASSES_HERE |= {"test_mlx5_timestamp.TimeStampTest.test_timestamp_real_time_rc_traffic"}
#: These fail today, and the reason. A test that passes has to be taken out of this table.
FAILS = {
    "test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic": "there are no UD QPs, though the device is a CA",
}


def reason_of(test):
    """Returns the reason why a test is skipped on this face, or an empty text if it passes."""
    if test.name in PASSES_HERE:
        return ""
    return test.by_cm if test.reason == rdma_core.CONNECTS else test.reason


PASSES = [name for name, test in TESTS.items() if not reason_of(test) and name not in FAILS]
SKIPPED = {name: reason_of(test) for name, test in TESTS.items() if reason_of(test) and name not in FAILS}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    front = [os.environ["USIW_RUN"], "--face", "roce"]
    return rdma_core.Suite(tmp_path_factory.mktemp("rdma-core"), lambda argv: Proc([*front, *argv]), "127.0.0.1",
                           ["--dev", "usiw0", "--gid", "1"])


@pytest.fixture(scope="module")
def outcomes(suite):
    """{test: Outcome} of all of them."""
    return suite.run(sorted(TESTS))


def test_table_lists_every_test(suite, outcomes):
    assert set(suite.names) == set(TESTS) == set(outcomes)


@pytest.mark.parametrize("name", PASSES)
def test_passes(name, outcomes):
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
    assert len(PASSES) >= 84
