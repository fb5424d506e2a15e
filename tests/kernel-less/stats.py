# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What `usiw stat` says of programs under usiw-run."""

import json
import os
import pathlib
import subprocess

USIW = str(pathlib.Path(os.environ["USIW_RUN"]).resolve().parents[1] / "tools" / "usiw")


def stat(*words, by=()):
    """Exit status and output; the text or the document that it prints."""
    done = subprocess.run([*by, USIW, "stat", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def devices():
    """By name, of usiw-run only."""
    status, out, err = stat("-j")
    assert status == 0 or "under usiw-run" in err, err
    return {d["device"]: d for d in json.loads(out or "[]") if d["by"] == "usiw-run"}


def counters_of(proc):
    """The counters of the one QP of a program."""
    (qp,) = [q for d in devices().values() for q in d["qps"] if q["pid"] == proc.pid]
    return qp["counters"]
