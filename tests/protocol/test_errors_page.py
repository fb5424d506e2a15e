# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""docs/errors.md: each row of its tables names a test, and each test that it names is there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"


def rows():
    """The rows of the page's tables: lists of cells."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[-1] != "tests"]


def names(cell):
    """The tests in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def cases():
    """Names of the cases of the test programs."""
    found = set()
    for source in (ROOT / "tests" / "vm" / "programs").glob("*.cc"):
        found.update(re.findall(r'^CASE\(\w+, "([^"]+)"', source.read_text(), re.M))
    return found


def unit_tests():
    """Names of the unit tests, Suite.test."""
    found = set()
    for source in (ROOT / "tests" / "unit").rglob("*.cc"):
        for suite, test in re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", source.read_text(), re.M):
            found.add(f"{suite}.{test}")
    return found


def functions():
    """Names of the tests in Python of the end-to-end suite."""
    found = set()
    for source in (ROOT / "tests" / "vm").glob("test_*.py"):
        found.update(re.findall(r"^def (test_\w+)\(", source.read_text(), re.M))
    return found


def test_every_row_names_a_test():
    assert len(rows()) > 40
    for row in rows():
        assert names(row[-1]) or row[-1] == "-", f"no test: {row[0]}"
    assert sum(row[-1] == "-" for row in rows()) <= 1


def test_every_test_is_there():
    there = cases() | unit_tests() | functions()
    missing = [name for row in rows() for name in names(row[-1]) if name not in there]
    assert not missing
