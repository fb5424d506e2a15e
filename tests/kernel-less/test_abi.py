# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The raw ABIs, without libibverbs, librdmacm and the provider: the cases of tests/kmod/uapi_test that need no netdev of the
module's get the same answers, errors included, from usiw-run."""

import errno
import os
import pathlib
import re

import pytest

PROGRAMS = pathlib.Path(os.environ["USIW_RUN"]).resolve().parents[1] / "tests" / "kmod"
PROGRAM = str(PROGRAMS / "uapi_test")


@pytest.mark.parametrize("case", ["queues", "qp_states", "mr", "methods", "abi", "any_ioctl", "connect", "reject",
                                  "refused_by_engine", "destroy_qp_first", "abrupt", "wildcard", "many"])
def test_case(usiw_run, case):
    usiw_run([PROGRAM, case]).expect(0, 90)


def test_provider_of_another_version_says_so_in_one_line(usiw_run):
    out = usiw_run(["env", f"RDMAV_DRIVERS={PROGRAMS}/libother", str(PROGRAMS / "open_device"), "usiw0"]).expect(0)
    said = [line for line in out.splitlines() if "usiw:" in line]
    assert len(said) == 1 and re.match(r"usiw: module speaks ABI \d+\.\.\d+, this provider 4000: ", said[0]), out
    assert out.count(f"open: {errno.EPROTONOSUPPORT}") == 2, out
