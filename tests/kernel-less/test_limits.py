# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs whose user or supervisor has limited them: RLIMIT_NOFILE. usiw-run's own descriptors are in the same process,
and count."""

import os

import pytest

RUN_CASES = os.path.join(os.environ["VM_PROGRAMS"], "run_cases")


@pytest.mark.parametrize("port", ["auto", "socket"])
def test_connections_that_linger_leave_descriptors_to_others(usiw_run, port):
    usiw_run([RUN_CASES, "limits/few-descriptors"], ["--port", port]).expect(0, 130)
