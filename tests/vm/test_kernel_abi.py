# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The module without the provider: the cases of tests/kmod/uapi_test, over the raw uverbs and rdma_ucm ABIs."""

import pathlib
import subprocess

import pytest

from support.net import PEER
from support.procs import run

PROGRAM = pathlib.Path(__file__).parents[2] / "build" / "tests" / "kmod" / "uapi_test"
CASES = subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True).stdout.split()

pytestmark = [pytest.mark.core, pytest.mark.skipif(bool(PEER), reason="usiw's own ABI")]


@pytest.mark.parametrize("name", CASES)
def test_kernel_abi(name):
    out = run(PROGRAM, name, timeout=120)
    assert f"\nok {name} (" in f"\n{out}", out
