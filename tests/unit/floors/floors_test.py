#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Tests of floors.py and circles.py: each forbidden include and each circle that a test makes is reported."""

import pathlib
import shutil
import tempfile
import unittest

import circles
import floors

ROOT = pathlib.Path(__file__).resolve().parents[3]


class InFolder(unittest.TestCase):
    """Each test has a folder of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name).resolve()


class Floors(InFolder):
    """The rules of includes, in a copy of the sources that each test changes."""

    def setUp(self):
        super().setUp()
        for part in [*floors.PARTS, "tools"]:
            shutil.copytree(ROOT / part, self.root / part, dirs_exist_ok=True)

    def include(self, path, text):
        """Begins a file of the copy with an include."""
        file = self.root / path
        file.write_text(f"#include {text}\n" + file.read_text(encoding="utf-8"), encoding="utf-8")

    def wrong(self):
        """The lines about the copy."""
        return floors.check(self.root)[0]

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
        self.include("tools/run/ucm/ucm_id.h", '"tools/run/uverbs/uverbs.h"')
        self.assertEqual(self.wrong(), ["tools/run/ucm/ucm_id.h:1: tools/run/uverbs/uverbs.h: "
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


class Circles(InFolder):
    """The circles of files that a test writes, with a document that names none."""

    def setUp(self):
        super().setUp()
        self.write(circles.DOCUMENT, "## Circles\n")

    def write(self, path, text):
        """Writes a file."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def wrong(self):
        """[what is wrong, the circle]"""
        return [line.split(": ", 1) for line in circles.check(self.root)[0]]

    def name(self, line):
        """Makes the document name a circle."""
        self.write(circles.DOCUMENT, f"## Circles\n\n{line}\n\n## Another section\n")

    def test_includes(self):
        self.write("cm/a.h", '#include "b.h"\n')
        self.write("cm/b.h", '#include "c.h"\n')
        self.write("cm/c.c", '#include "cm/a.h"  // a circle of stems, not of files\n')
        self.write("cm/c.h", "")
        self.assertEqual(self.wrong(), [[f"{circles.DOCUMENT} does not name this circle", "`cm/a`, `cm/b`, `cm/c`"]])
        self.name("- `cm/b`, `cm/a`,\n  `cm/c`: a reason")
        self.assertEqual(self.wrong(), [])

    def test_a_line_needs_a_circle_and_a_reason(self):
        self.name("- `cm/a`, `cm/b`: a reason")
        self.assertEqual(self.wrong(), [[f"{circles.DOCUMENT} names a circle that is none", "`cm/a`, `cm/b`"]])
        self.write("cm/a.h", '#include "b.h"\n')
        self.write("cm/b.h", '#include "a.h"\n')
        self.assertEqual(self.wrong(), [])
        self.name("- `cm/a`, `cm/b`:")
        self.assertEqual(self.wrong(), [[f"{circles.DOCUMENT} does not name this circle", "`cm/a`, `cm/b`"]])

    def circle_by(self, both, first, second):
        """True if both.h, first.cc and second.cc, which include it, are a circle with these texts."""
        self.write("tools/both.h", both)
        self.write("tools/first.cc", '#include "both.h"\n' + first)
        self.write("tools/second.cc", '#include "both.h"\n' + second)
        graph = circles.Graph(self.root).arrows
        return "tools/second" in graph["tools/first"] and "tools/first" in graph["tools/second"]

    def test_calls(self):
        both, first, second = "void f();\nvoid g(int);\n", "void f() { g(1); }\n", "void g(int) {\n  f();\n}\n"
        self.assertTrue(self.circle_by(both, first, second))
        self.assertFalse(self.circle_by(both, first, second.replace("f()", "x.f()")))
        self.assertFalse(self.circle_by(both, first, second.replace("f()", "// f()")))
        self.assertFalse(self.circle_by(both, first, second.replace("f()", 'say("f()")')))
        self.assertFalse(self.circle_by(both, "static " + first, second))
        self.assertFalse(self.circle_by(both, "namespace {\n" + first + "}\n", second))

    def test_pointers_and_variables(self):
        both = "struct S { void (*f)(); };\nvoid f();\nextern int number;\n"
        self.assertTrue(self.circle_by(both, "void f() { number = 1; }\n", "int number;\nconst S s = {.f = f};\n"))
        self.assertFalse(self.circle_by(both, "void f() { number = 1; }\n", "int number;\nconst S s = {.f = 0};\n"))

    def test_members(self):
        both = "class C {\n public:\n  int a() const;\n  int b();\n};\n"
        self.assertTrue(self.circle_by(both, "int C::a() const { return b(); }\n", "int C::b() { return a(); }\n"))
        self.assertTrue(self.circle_by(both, "int C::a() const { return b(); }\nint of(C& c) { return c.b(); }\n",
                                       "int C::b() { return 1; }\nint f(C* c) { return c->a(); }\n"))
        self.assertTrue(self.circle_by(both, "int C::a() const { return b(); }\n",
                                       "using D = C;\nint C::b() { return 0; }\nconst auto p = &D::a;\n"))
        self.assertFalse(self.circle_by(both, "int C::a() const { return b(); }\n", "int C::b() { return 1; }\n"))

    def test_objects_that_are_made(self):
        both = "struct C {\n  C();\n  int a();\n};\n"
        first = "int C::a() { return 0; }\nC* make() { return new C; }\n"
        self.assertTrue(self.circle_by(both, first, "C::C() { a(); }\n"))
        self.assertFalse(self.circle_by(both, first.replace("new C", "0"), "C::C() { a(); }\n"))

    def test_virtual_functions(self):
        self.write("tools/both.h", "struct C : B {\n  void f() override;\n};\n")
        self.write("tools/first.cc", '#include "tools/both.h"\nvoid C::f() {}\n')
        self.assertEqual([line[1] for line in self.wrong()], ["`tools/both`, `tools/first`"])

    def test_folders(self):
        self.write("tools/run/ucm/a.cc", '#include "tools/run/uverbs/b.h"\n')
        self.write("tools/run/ucm/a2.h", "")
        self.write("tools/run/uverbs/b.h", '#include "tools/run/ucm/a2.h"\n')
        self.assertEqual([line[1] for line in self.wrong()], ["`tools/run/ucm`, `tools/run/uverbs`"])


if __name__ == "__main__":
    unittest.main()
