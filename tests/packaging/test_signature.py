# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A kernel that refuses an unsigned module: who installs or attaches reads one line that says so. The refusal itself is
tested in a guest (in_guest)."""

import os
import pathlib
import subprocess

import pytest

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"


def with_programs(folder, **programs):
    """The environment in which each program is this shell text."""
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def refusal(folder, error):
    """Standard error of packaging/attach if modprobe fails with this error."""
    if os.path.exists("/sys/module/usiw"):
        pytest.skip("the module is loaded on this machine")
    said = f"modprobe: ERROR: could not insert 'usiw': {error}"
    env = with_programs(folder, modprobe=f'echo "{said}" >&2; exit 1')
    done = subprocess.run([PACKAGING / "attach", "lo"], env=env, capture_output=True, text=True, timeout=30,
                          check=False)
    assert done.returncode == 1
    return said, done.stderr


@pytest.mark.parametrize("error", ["Key was rejected by service", "Required key not available"])
def test_attach_names_secure_boot(tmp_path, error):
    _, stderr = refusal(tmp_path, error)
    assert stderr.count("\n") == 1 and "Secure Boot" in stderr and "mokutil --import" in stderr


def test_attach_shows_any_other_error(tmp_path):
    said, stderr = refusal(tmp_path, "Exec format error")
    assert said in stderr and "package usiw-dkms, or make install" in stderr and "Secure Boot" not in stderr


@pytest.mark.parametrize("enforce, lockdown, signer, noted", [
    ("Y", "[none] integrity confidentiality", "", True),
    ("N", "none [integrity] confidentiality", "", True),
    ("Y", "[none] integrity confidentiality", "DKMS module signing key", False),
    ("N", "[none] integrity confidentiality", "", False)])
def test_install_notes_a_missing_signature(tmp_path, enforce, lockdown, signer, noted):
    for name, text in {"module/module/parameters/sig_enforce": enforce, "kernel/security/lockdown": lockdown}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    env = with_programs(tmp_path, modinfo=f'echo "{signer}"')
    done = subprocess.run([PACKAGING / "signature-note", "6.1.0"], env={**env, "USIW_SYS": str(tmp_path)},
                          capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == ""
    assert done.stderr.count("\n") == int(noted)
    assert ("Secure Boot" in done.stderr) == noted


def test_no_note_without_these_files(tmp_path):
    """A kernel without lockdown, or a container without /sys/kernel/security."""
    done = subprocess.run([PACKAGING / "signature-note", "6.1.0"], env={**os.environ, "USIW_SYS": str(tmp_path)},
                          capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
