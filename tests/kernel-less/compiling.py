# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs that a test compiles for itself."""

import pathlib
import subprocess

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
VERBS = ["-lrdmacm", "-libverbs"]


def compile_c(output, source, *options):
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-O1", "-o", output, source, *options], check=True)
    return output


def compiled(name, where):
    """The verbs program programs/`name`.c, made in the folder `where`."""
    return compile_c(where / name, PROGRAMS / f"{name}.c", *VERBS)
