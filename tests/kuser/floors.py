#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The floors of kmod/: each file uses only files on floors below it (docs/architecture.md).

    floors.py OBJECT...    exit status 0, or 1 with a line for each use of a file that is not below

The symbols of the objects show which functions a file calls. The #include lines of kmod/*.[ch] show which structures
and inline functions it sees. Both are checked against the same table.
"""

import pathlib
import re
import subprocess
import sys

KMOD = pathlib.Path(__file__).resolve().parents[2] / "kmod"

#: From the ground up: names of .c files, each with the header of its name, and of headers that have no .c file. Files
#: of one floor do not use each other, so there is no circle.
FLOORS = [["compat", "unread"], ["device", "user"], ["addr", "mr"],
          ["route", "sock", "verbs_types"], ["conn"], ["qp_ref"], ["admission", "data", "iwcm_quirks", "stats"],
          ["event"], ["follow", "process", "verbs"], ["conn_act"], ["conn_run"], ["qp"],
          ["uapi", "iwcm", "listen", "netdev"], ["rx"], ["link"], ["main"]]
FLOOR = {name: level for level, names in enumerate(FLOORS) for name in names}


def may_use(user, owner):
    """True if the file @user may use the file @owner."""
    return owner == user or FLOOR.get(owner, len(FLOORS)) < FLOOR.get(user, -1)


def name_of(path):
    """The name in FLOORS of a file or an object of kmod/."""
    return pathlib.Path(path).name.split(".")[0].removeprefix("usiw_")


def symbols(path):
    """(defined, used) by an object: names of the module's own."""
    defined, used = set(), set()
    for line in subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines():
        kind, name = line.split()[-2:]
        if name.startswith("usiw_"):
            (used if kind == "U" else defined if kind.isupper() else set()).add(name)
    return defined, used


def uses(paths):
    """{file: {file: names that it uses of it}}"""
    table = {name_of(path): symbols(path) for path in paths}
    return {user: {owner: names & defined for owner, (defined, _) in table.items() if owner != user and names & defined}
            for user, (_, names) in table.items()}


def wrong_includes(path):
    """A line for each #include of @path that is wrong. Headers of cm/ and uapi/ are below all files of kmod/."""
    ours = re.findall(r'^#include "([^"]*)"', path.read_text(), re.MULTILINE)
    if path.suffix == ".c" and path.with_suffix(".h").exists() and ours[:1] != [path.with_suffix(".h").name]:
        yield f"{path.name} includes another header of ours ahead of its own"
    for header in ours:
        if not header.startswith("../") and not may_use(name_of(path), name_of(header)):
            yield f"{path.name} includes {header}, which is not below it"


def main(paths):
    """The exit status."""
    objects = [path for path in paths if pathlib.Path(path).parent.name == "kmod"]
    files = sorted(KMOD.glob("*.[ch]"))
    names = {name_of(path) for path in files}
    wrong = [f"on no floor of {__file__}: {name}" for name in sorted(names - FLOOR.keys())]
    wrong += [f"on a floor, but not in kmod/: {name}" for name in sorted(FLOOR.keys() - names)]
    sources = {name_of(path) for path in files if path.suffix == ".c"}
    wrong += [f"no object of usiw_{name}.c" for name in sorted(sources - {name_of(path) for path in objects})]
    wrong += [line for path in files for line in wrong_includes(path)]
    for user, owners in uses(objects).items():
        wrong += [
            f"usiw_{user}.c uses usiw_{owner}.c, which is not below it: {', '.join(sorted(names))}"
            for owner, names in owners.items()
            if not may_use(user, owner)
        ]
    print("\n".join(wrong) if wrong else f"{len(files)} files on {len(FLOORS)} floors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
