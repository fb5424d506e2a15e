# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""`usiw report` under usiw-run: every part, nothing private, and parts that fail."""

import pathlib
import re
import shutil
import subprocess

from stats import USIW
from support.pairs import next_port

PARTS = ["versions", "environment", "files", "module", "devices", "counters (usiw stat)", "usiw-run --check",
         "kernel log"]


def report(program=USIW, **env):
    """{part: its lines}, and all of it, on a host with a name that must not be in it."""
    script = 'hostname private-host-77 && exec "$0" report'
    done = subprocess.run(["unshare", "--uts", "sh", "-c", script, program], capture_output=True, text=True,
                          timeout=120, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} | env, check=True)
    assert done.stderr == ""
    pieces = re.split(r"^== (.*)\n", done.stdout, flags=re.M)
    assert pieces[1::2] == PARTS
    return dict(zip(pieces[1::2], (piece.strip().split("\n") for piece in pieces[2::2]))), done.stdout


def test_report_has_every_part_and_nothing_private(usiw_run):
    port = next_port()
    server = usiw_run(["rping", "-s", "-a", "127.0.0.3", "-p", port], ["--device", "shown0"]).wait_listening(port)
    parts, out = report(USIW_PORT="socket", USIW_NEW="a\tb", SECRET="token-4711")
    assert "addresses" in out.partition("==")[0]
    assert "link shown0/1 by usiw-run" in parts["counters (usiw stat)"]
    assert re.fullmatch(r"usiw +\d+\.\d+\.\d+ \(ABI \d+\)", parts["versions"][0])
    assert sorted(parts["environment"]) == ["USIW_NEW=a?b", "USIW_PORT=socket"]
    assert any(re.fullmatch(r"provider .*/libusiw-provider\.so", line) for line in parts["files"])
    assert any(re.search(r"/libibverbs\.so\.1[\d.]+$", line) for line in parts["files"])
    assert any("by --port or USIW_PORT" in line for line in parts["usiw-run --check"])
    assert parts["usiw-run --check"][-1].startswith("result ")
    server.kill()
    assert "private-host-77" not in out and "token-4711" not in out and "SECRET" not in out


def test_parts_that_fail(tmp_path):
    """A tool without anything beside it, then with a usiw-run that fails."""
    alone = pathlib.Path(shutil.copy(USIW, tmp_path / "usiw"))
    parts, _ = report(alone)
    assert parts["usiw-run --check"] == ["usiw-run is not beside usiw"]
    run = tmp_path / "usiw-run"
    run.write_text("#!/bin/sh\necho problem: \"$@\"\nexit 3\n")
    run.chmod(0o755)
    parts, _ = report(alone)
    assert parts["usiw-run --check"] == ["problem: --check", "(this part failed: exit status 3)"]
    assert parts["kernel log"]
