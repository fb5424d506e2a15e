# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is written by hand in several places says the same everywhere."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def version():
    """Of uapi/usiw_version.h."""
    parts = re.findall(r"^#define USIW_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)$", text("uapi/usiw_version.h"), re.M)
    return ".".join(parts)


def test_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", version())
    assert re.search(r'^PACKAGE_VERSION="(.*)"$', text("dkms.conf"), re.M)[1] == version()
    assert re.match(r"usiw \((.*)\) ", text("packaging/debian/changelog"))[1] == version()
    assert re.search(r"^## (.*)$", text("CHANGELOG.md"), re.M)[1] == version()
    assert re.search(r"^Version: +(.*)$", text("packaging/rpm/usiw.spec"), re.M)[1] == "%{usiw_version}"
    assert set(re.findall(r"usiw(?:-dkms)?_(\d[\d.]*\d)_", text("README.md"))) == {version()}


def test_files_say_their_licence():
    """All that git knows, where a comment is possible."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
    names = listed.stdout.split("\n")
    sources = [name for name in names if re.search(r"\.(c|cc|h|py|sh|lua|txt)$|/CMakeLists\.txt$", name)
               and not re.match(r"LICENSES/|tests/(fuzz/corpus|sim/|bench/)|.*/(corpus|data)/", name)]
    missing = [name for name in sources if (ROOT / name).is_file() and "SPDX-License-Identifier" not in text(name)[:400]]
    assert not missing
    for licence in ("GPL-2.0", "Linux-OpenIB"):
        assert len(text(f"LICENSES/{licence}.txt")) > 900


def test_the_module_of_dkms_has_all_its_files():
    """What Kbuild names, and what its files include, is in what dkms-source copies."""
    kbuild = text("Kbuild")
    for name in re.findall(r"\b((?:kmod|cm)/\w+)\.o", kbuild):
        for include in re.findall(r'#include "(.*)"', text(f"{name}.c")):
            path = (ROOT / name).parent / include
            assert path.resolve().relative_to(ROOT).parts[0] in ("kmod", "cm", "uapi"), f"{name}.c: {include}"
