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


#: Of the tests that boot guests those that `make check` runs; all others are marked `long` (make check-harness).
BOOTS_IN_SHORT = {"test_output_and_status[6.1]", "test_kernel_messages[warn-97-WARNING: -6.1]",
                  "test_kernel_messages[warning-98-faults: a message at warning level-6.12]",
                  "test_files_survive_and_the_host_is_safe", "test_command_times_out", "test_make_install",
                  "test_two_guests_on_one_wire[virtio-net-pci]"}


def pytest_configure(config):
    config.addinivalue_line("markers", "long: boots a guest, and is not in `make check`")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in ("test_guest", "test_guest_two", "test_installed") and item.name not in BOOTS_IN_SHORT:
            item.add_marker(pytest.mark.long)
    collected = {item.name for item in items}
    if {"test_output_and_status[6.12]", "test_two_guests_of_two_kernels", "test_make_install"} <= collected:
        assert collected >= BOOTS_IN_SHORT, f"no such tests: {BOOTS_IN_SHORT - collected}"
