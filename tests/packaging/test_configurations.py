# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Each way to configure the user half links: `make check-unit` builds one of them only.

A configuration for a sanitizer or the fuzzers takes some of the folders. What it links and does not build, CMake takes
for a library of the system (-lusiw_base), and only the linker says so, minutes later.
"""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

CONFIGURATIONS = {
    "plain": [],
    "ASan": ["-DUSIW_SANITIZE=ON"],
    "TSan": ["-DUSIW_SANITIZE=thread"],
    "fuzzers": ["-DUSIW_FUZZ=ON", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++"],
}


@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_what_a_configuration_links_it_builds(options, tmp_path):
    if "-DUSIW_FUZZ=ON" in options:
        assert shutil.which("clang++"), "Clang is one of the packages of scripts/setup check"
    configured = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, *options], capture_output=True,
                                text=True, check=False)
    assert configured.returncode == 0, configured.stderr
    missing = set(re.findall(r"-l(usiw_\w+)", (tmp_path / "build.ninja").read_text()))
    assert not missing, f"linked and not built: {sorted(missing)}"
