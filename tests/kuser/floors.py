#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The floors of kmod/: each file uses only files below it, by what the linker sees (docs/architecture.md).

    floors.py OBJECT...    exit status 0, or 1 with a line for each use of what is above
"""

import pathlib
import subprocess
import sys

#: From the ground up. Files of one floor do not use each other, but for those that are one room.
FLOORS = [["device", "addr", "mr", "unread", "user", "charge"], ["route", "stats", "conn", "sock"], ["gate", "data", "ports"], ["event"],
          ["follow", "process", "verbs"], ["conn_run"], ["qp + iwcm_quirks", "cq", "srq"], ["conn_act"],
          ["restrack", "uapi", "iwcm", "listen", "netdev"], ["rx"], ["link"], ["main"]]


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
    table = {
        pathlib.Path(path).name.removesuffix(".o").removesuffix(".c").removeprefix("usiw_"): symbols(path)
        for path in paths
    }
    return {user: {owner: names & defined for owner, (defined, _) in table.items() if owner != user and names & defined}
            for user, (_, names) in table.items()}


def main(paths):
    """The exit status."""
    floor = {name: level for level, rooms in enumerate(FLOORS) for room in rooms for name in room.split(" + ")}
    room = {name: room for rooms in FLOORS for room in rooms for name in room.split(" + ")}
    table = uses(path for path in paths if pathlib.Path(path).parent.name == "kmod")
    wrong = [f"{name}: on no floor of {__file__}" for name in table if name not in floor]
    wrong += [f"on a floor, but not in kmod/: {name}" for name in floor if name not in table]
    for user, owners in table.items():
        wrong += [
            f"usiw_{user}.c uses usiw_{owner}.c, which is not below it: {', '.join(sorted(names))}"
            for owner, names in owners.items()
            if room.get(owner) != room.get(user) and floor.get(owner, -1) >= floor.get(user, -1)
        ]
    print("\n".join(wrong) if wrong else f"{len(table)} files on {len(FLOORS)} floors")
    return 1 if wrong or not table else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
