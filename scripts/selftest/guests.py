# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Guests for the harness's own tests."""

import subprocess

from vmlib.paths import PROJECT

KERNELS = ("6.1", "6.12")


def vm(*words, kernel="6.1"):
    """Runs one to its end, also beside others: nothing is measured here."""
    return subprocess.run([PROJECT / "scripts" / "vm", "run", "--no-wait", "--kernel", kernel, *words],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
