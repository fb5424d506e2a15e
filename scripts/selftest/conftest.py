# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
import pathlib
import shutil
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from vmlib import kernels  # noqa: E402
from vmlib.paths import BUILD, locked, run  # noqa: E402


@pytest.fixture(scope="session", name="faults")
def build_faults():
    """Path of the module of faults for a short kernel name."""
    def build(short):
        version = kernels.find(short).version
        folder = BUILD / "vm" / f"faults-{version}"
        with locked(BUILD / "vm" / f".faults-{version}"):
            shutil.copytree(HERE / "faults", folder, dirs_exist_ok=True)
            run("make", "-C", f"/lib/modules/{version}/build", f"M={folder}", "modules")
        return str(folder / "faults.ko")
    return build
