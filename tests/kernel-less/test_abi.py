# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The raw ABIs, without libibverbs, librdmacm and the provider: the cases of tests/kmod/uapi_test that need no netdev of the
module's get the same answers, errors included, from usiw-run."""

import os
import pathlib

import pytest

PROGRAM = str(pathlib.Path(os.environ["USIW_RUN"]).resolve().parents[1] / "tests" / "kmod" / "uapi_test")


@pytest.mark.parametrize("case", ["queues", "qp_states", "mr", "methods", "abi", "any_ioctl", "connect", "reject",
                                  "refused_by_engine", "destroy_qp_first", "abrupt", "wildcard", "many"])
def test_case(usiw_run, case):
    usiw_run([PROGRAM, case]).expect(0, 90)
