# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Huge pages of 2 MiB, which the whole machine shares."""

import contextlib
import pathlib

FOLDER = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


def number(which):
    """Returns the number of pages, `nr` or `free`. Returns 0 if the kernel has none of this size."""
    file = FOLDER / f"{which}_hugepages"
    return int(file.read_text(encoding="ascii")) if file.exists() else 0


@contextlib.contextmanager
def set_aside(pages):
    """Sets so many pages aside until the end. Yields an empty text, or the reason why that is not possible."""
    before = number("nr")
    try:
        (FOLDER / "nr_hugepages").write_text(str(before + pages), encoding="ascii")
    except OSError as error:  # no root, a read-only /sys, or another size of huge pages
        yield f"no huge pages: {error}"
        return
    try:
        yield "" if number("free") >= pages else f"no memory for {pages} huge pages"
    finally:
        (FOLDER / "nr_hugepages").write_text(str(before), encoding="ascii")
