#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The include rules of uapi/, cm/, provider/ and tools/run/, checked on the #include lines of the sources.

    floors.py [ROOT]    exit status 0, or 1 with a line FILE:LINE for each include that breaks a rule

The folders of a part are on floors. A file includes files of its own folder and of lower floors, and no others: not
those of another folder on its floor, and nothing of other parts except what the table names. So a folder can be read,
tested and replaced without the ones above it.
"""

import pathlib
import re
import sys

#: {part: (folders of other parts that all of its folders may include, its floors from the ground up)}. "." is a part
#: without folders. Folders in a folder belong to it.
PARTS = {
    "uapi": ([], [["."]]),
    "cm": (["uapi"], [["."]]),
    "provider": (["uapi"], [["base"], ["engine"], ["port", "progress"], ["runtime"], ["verbs", "rdma_core"]]),
    "tools/run": (["uapi", "cm", "provider/base"],
                  [["host"], ["libc", "launcher"], ["conn"], ["face"], ["uverbs", "ucm"], ["entry"]]),
}

#: (folder, header, why it may include that header all the same)
EXCEPTIONS = [
    ("provider/verbs", "cm/object/usiw_limits.h", "provider and kernel check the same limits"),
    ("tools/run/host", "provider/port/choice.h", "--port and USIW_PORT have the same values"),
    ("tools/run/launcher", "provider/port/choice.h", "--check tries each kind of port"),
    ("tools/run/launcher", "provider/port/permitted.h", "--check shows whether the provider may use raw packets"),
    ("tools/run/conn", "provider/port/permitted.h", "a handshake depends on whether the provider may use raw packets"),
    ("tools/run/launcher", "tools/arguments.h", "usiw parses its command line in the same way"),
    ("tools/run/launcher", "tools/run/conn/stat_page.h", "--check reads memory that the library writes"),
    ("tools/run/launcher", "tools/run/conn/watch_table.h", "the watcher reads memory that the library writes"),
]

#: (headers of the system, the only folders that may include them)
SYSTEM = [
    (r"rte_.*", ["provider/port"]),
    (r"(infiniband|rdma)/.*", ["provider/runtime", "provider/verbs", "provider/rdma_core", "tools/run/libc",
                               "tools/run/conn", "tools/run/face", "tools/run/uverbs", "tools/run/ucm", "tools/run/launcher"]),
]

#: (folder, all headers of the system that it may include). The kernel and processes compile cm/, which has no I/O,
#: allocation, clock or lock. It has stdio.h and stdlib.h for a process that breaks an invariant: it prints a line and
#: aborts.
SYSTEM_OF = [
    ("cm", r"linux/(bug|errno|kernel|stddef|string|types)\.h|(errno|stddef|string|stdio|stdlib)\.h"),
    ("uapi", r"linux/types\.h|cstddef|cstdint"),
]

INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def folder_of(path):
    """The folder of the table that a file (relative to the root) is in; None: it is in none."""
    for part, (_, floors) in PARTS.items():
        if path.startswith(part + "/"):
            inside = path[len(part) + 1:].split("/")
            if floors == [["."]]:
                return part
            return f"{part}/{inside[0]}" if len(inside) > 1 and any(inside[0] in floor for floor in floors) else None
    return None


def may_include():
    """{folder: folders that it may include}"""
    table = {}
    for part, (outside, floors) in PARTS.items():
        below = []
        for floor in floors:
            names = [part if name == "." else f"{part}/{name}" for name in floor]
            for name in names:
                table[name] = {name, *below, *outside}
            below += names
    return table


def find(root, path, name):
    """The file (relative to the root) that `#include "name"` means in the file at path; None: there is none."""
    for start in (path.parent, root, root / "provider"):
        if (start / name).is_file():
            return (start / name).resolve().relative_to(root).as_posix()
    return None


class Rules:
    """The rules, and which exceptions were needed."""

    def __init__(self, root):
        self.root = root
        self.allowed = may_include()
        self.needed = set()

    def of_own(self, path, folder, name):
        """The rule that `#include "name"` breaks; None: none."""
        target = find(self.root, path, name)
        if target is None:
            return f"{name}: there is no such file"
        other = folder_of(target)
        if other in self.allowed[folder]:
            return None
        if (folder, target) in {exception[:2] for exception in EXCEPTIONS}:
            self.needed.add((folder, target))
            return None
        return f"{target}: {folder} must not use {other or 'this folder'}"

    @staticmethod
    def of_system(folder, name):
        """The rule that `#include <name>` breaks; None: none."""
        for pattern, folders in SYSTEM:
            if re.fullmatch(pattern, name) and folder not in folders:
                return f"{name}: only for {', '.join(folders)}"
        for only, pattern in SYSTEM_OF:
            if folder == only and not re.fullmatch(pattern, name):
                return f"{name}: not for {folder}"
        return None


def check(root):
    """(lines about broken rules, number of includes)"""
    rules, wrong, number, seen = Rules(root), [], 0, set()
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.suffix not in (".h", ".c", ".cc"):
                continue
            name = path.relative_to(root).as_posix()
            folder = folder_of(name)
            if folder is None:
                wrong.append(f"{name}:1: this folder is on no floor of {pathlib.Path(__file__).name}")
                continue
            seen.add(folder)
            for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if include := INCLUDE.match(text):
                    number += 1
                    fault = (rules.of_own(path, folder, include[2]) if include[1] == '"' else
                             rules.of_system(folder, include[2]))
                    if fault:
                        wrong.append(f"{name}:{line}: {fault}")
    wrong += [f"{folder}: on a floor, but without files" for folder in rules.allowed if folder not in seen]
    wrong += [f"{folder}: includes no {header}, and needs no exception" for folder, header, _ in EXCEPTIONS
              if (folder, header) not in rules.needed]
    return wrong, number


def main(arguments):
    """The exit status."""
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parents[3]).resolve()
    wrong, number = check(root)
    print("\n".join(wrong) if wrong else f"{number} includes, {len(may_include())} folders")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
