#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Tests of floors.py: a copy of the sources gets one include more, and exactly that line is reported."""

import pathlib
import shutil
import tempfile
import unittest

import floors

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Floors(unittest.TestCase):
    """Each test changes a copy of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name).resolve()
        for part in [*floors.PARTS, "tools"]:
            shutil.copytree(ROOT / part, self.root / part, dirs_exist_ok=True)

    def wrong(self):
        """The lines about the copy."""
        return floors.check(self.root)[0]

    def include(self, path, text):
        """Begins a file of the copy with an include."""
        file = self.root / path
        file.write_text(f"#include {text}\n" + file.read_text(encoding="utf-8"), encoding="utf-8")

    def test_own_and_lower_folders(self):
        self.include("provider/verbs/qp.cc", '"engine/ring.h"')
        self.include("provider/engine/ring.h", '"uapi/usiw_wire.h"')
        self.include("tools/run/entry/sysfs.cc", '"tools/run/conn/qp.h"')
        self.assertEqual(self.wrong(), [])

    def test_higher_folder(self):
        self.include("provider/engine/ring.h", '"port/encap.h"')
        self.assertEqual(self.wrong(), ["provider/engine/ring.h:1: provider/port/encap.h: "
                                        "provider/engine must not use provider/port"])

    def test_neighbour_on_the_floor(self):
        self.include("tools/run/ucm/ucm.h", '"tools/run/uverbs/uverbs.h"')
        self.assertEqual(self.wrong(), ["tools/run/ucm/ucm.h:1: tools/run/uverbs/uverbs.h: "
                                        "tools/run/ucm must not use tools/run/uverbs"])

    def test_other_part(self):
        self.include("cm/usiw_cm.c", '"../provider/base/wire.h"')
        self.include("tools/run/host/host.cc", '"engine/psn.h"')
        self.assertEqual(self.wrong(), [
            "cm/usiw_cm.c:1: provider/base/wire.h: cm must not use provider/base",
            "tools/run/host/host.cc:1: provider/engine/psn.h: tools/run/host must not use provider/engine"])

    def test_exception_is_for_its_folder(self):
        self.include("provider/engine/ring.h", '"cm/object/usiw_limits.h"')
        self.assertEqual(self.wrong(), ["provider/engine/ring.h:1: cm/object/usiw_limits.h: provider/engine must not use cm"])

    def test_exception_without_use(self):
        path = self.root / "tools/run/launcher/options.cc"
        path.write_text(path.read_text(encoding="utf-8").replace('#include "tools/arguments.h"', ""), encoding="utf-8")
        self.assertEqual(self.wrong(), ["tools/run/launcher: includes no tools/arguments.h, and needs no exception"])

    def test_headers_of_the_system(self):
        self.include("provider/engine/ring.h", "<infiniband/verbs.h>")
        self.include("cm/usiw_cm.h", "<time.h>")
        first, second = self.wrong()
        self.assertEqual(first, "cm/usiw_cm.h:1: time.h: not for cm")
        self.assertTrue(second.startswith("provider/engine/ring.h:1: infiniband/verbs.h: only for provider/runtime,"))

    def test_folder_without_a_floor(self):
        (self.root / "provider/new").mkdir()
        (self.root / "provider/new/file.h").touch()
        (self.root / "tools/run/file.cc").touch()
        self.assertEqual(self.wrong(), ["provider/new/file.h:1: this folder is on no floor of floors.py",
                                        "tools/run/file.cc:1: this folder is on no floor of floors.py"])


if __name__ == "__main__":
    unittest.main()
