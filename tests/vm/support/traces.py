# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Traces of QPs that programs keep in files, for what goes wrong in one run of many and cannot be had again."""

import os
import pathlib

from . import there

#: The command line tool.
USIW = str(pathlib.Path(
    os.environ.get("USIW_TOOL") or pathlib.Path(__file__).resolve().parents[3] / "build/tools/usiw"))


class Traces:
    """A directory on the host of a site, where one program after another keeps its trace."""

    def __init__(self, site, directory, *options):
        self.where, self.directory = site.host, directory
        self.options = ["events=8192", *options]

    def begin(self):
        """Removes the trace of the program before, and returns the environment of the next one."""
        there.ask(["sh", "-c", f"rm -rf {self.directory}; mkdir -p {self.directory}"], self.where)
        return {"USIW_TRACE": ",".join([self.directory, *self.options])}

    def text(self, events=60):
        """The last events of the present program; nothing if there is none."""
        show = f"for file in {self.directory}/*; do {USIW} trace $file -n {events} 2>&1; done; true"
        return there.ask(["sh", "-c", show], self.where)
