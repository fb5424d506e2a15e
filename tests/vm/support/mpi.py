# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Open MPI over libfabric over verbs: how it is built and started."""

import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "kernel-less" / "programs" / "allreduce.c"

#: It may be root's, in a namespace of its own.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}
#: Verbs or nothing: neither TCP nor shared memory of its own.
BY_VERBS = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm",
            "--mca", "btl", "^openib,vader,tcp"]


def build(directory):
    """Path of the program."""
    program = directory / "allreduce"
    subprocess.run(["mpicc", "-O1", "-o", program, SOURCE], check=True)
    return program


def agent(directory, where):
    """Path of what mpirun starts in place of ssh: a command at the other end."""
    script = directory / "agent"
    script.write_text(f'#!/bin/sh\nshift\nexec {where} sh -c "$*"\n')
    script.chmod(0o755)
    return script


def expected(ranks):
    """What it prints."""
    return f"{ranks} ranks, 0 errors"
