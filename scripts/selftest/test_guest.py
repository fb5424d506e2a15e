# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The harness with real guests: what must end in which exit status. Takes about two minutes for each kernel."""

import pathlib
import subprocess
import time

import pytest

from guests import KERNELS, vm
from vmlib.paths import BUILD, PROJECT


@pytest.mark.parametrize("kernel", KERNELS)
def test_output_and_status(kernel):
    start = time.monotonic()
    done = vm("--no-module", "--", "sh", "-c", "echo out; echo err >&2; printf '%s' \"$A_IP>$B_IP\"; exit 7",
              kernel=kernel)
    print(f"boot and run took {time.monotonic() - start:.1f} s")
    assert done.stdout == "out\n10.9.0.1>10.9.0.2"
    assert "err\n" in done.stderr
    assert done.returncode == 7


def test_much_binary_output():
    command = f"{PROJECT}/scripts/vm run --no-wait --no-module --topology none --quiet -- head -c 5000000 /dev/zero | wc -c"
    assert subprocess.check_output(command, shell=True, text=True).strip() == "5000000"


def test_signal_and_missing_command():
    assert vm("--no-module", "--topology", "none", "--", "sh", "-c", "kill -SEGV $$").returncode == 128 + 11
    assert vm("--no-module", "--topology", "none", "--", "/no/such/program").returncode == 127


def test_files_survive_and_the_host_is_safe():
    out = BUILD / "vm" / "out" / "selftest"
    out.unlink(missing_ok=True)
    done = vm("--no-module", "--topology", "none", "--", "sh", "-c",
              "echo kept >$VM_OUT/selftest && echo gone >/etc/usiw-selftest && cat /etc/usiw-selftest")
    assert done.stdout == "gone\n"
    assert out.read_text() == "kept\n"
    assert not pathlib.Path("/etc/usiw-selftest").exists()


def test_orphans_do_not_hold_the_guest_up():
    start = time.monotonic()
    done = vm("--no-module", "--topology", "none", "--", "sh", "-c", "sleep 100 & setsid sleep 100 & echo here")
    assert (done.stdout, done.returncode) == ("here\n", 0)
    assert time.monotonic() - start < 90


def test_command_times_out():
    done = vm("--no-module", "--topology", "none", "--timeout", "2", "--", "sh", "-c", "echo first; sleep 1000")
    assert (done.stdout, done.returncode) == ("first\n", 124)
    assert "the command did not end within 2 s" in done.stderr


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind, status, text", (
    ("warn", 97, "WARNING: "), ("oops", 97, "BUG: "), ("warning", 98, "faults: a message at warning level"),
    ("info", 0, ""),
))
def test_kernel_messages(faults, kernel, kind, status, text):
    done = vm("--no-module", "--topology", "none", "--", "sh", "-c", f"insmod {faults(kernel)} kind={kind}; true",
              kernel=kernel)
    assert done.returncode == status
    assert text in done.stderr


def test_expected_kernel_message(faults):
    done = vm("--no-module", "--topology", "none", "--allow-dmesg", "at warning level", "--", "sh", "-c",
              f"insmod {faults('6.1')} kind=warning; true")
    assert done.returncode == 0


def test_unkillable_process(faults):
    done = vm("--no-module", "--topology", "none", "--", "sh", "-c",
              f"insmod {faults('6.1')} kind=unkillable & sleep 1")
    assert done.returncode == 97
    assert "insmod could not be killed" in done.stderr


@pytest.mark.parametrize("kernel", KERNELS)
def test_guest_hangs(faults, kernel, tmp_path):
    log = tmp_path / "log"
    done = vm("--log", log, "--no-module", "--topology", "none", "--timeout", "2", "--", "sh", "-c",
              f"insmod {faults(kernel)} kind=hang", kernel=kernel)
    assert done.returncode == 124
    assert "the guest hung" in done.stderr
    assert "spin_without_interrupts" in log.read_text(errors="replace")


@pytest.mark.parametrize("topology", ("veth", "netns"))
def test_peer_siw_crosses_the_wire(topology):
    script = ("$B_EXEC rping -s -a $B_IP -C 3 & sleep 1; $A_EXEC rping -c -a $B_IP -C 3 -V || exit 1; wait; "
              "$A_EXEC cat /sys/class/net/$A_NETDEV/statistics/tx_packets")
    done = vm("--peer", "siw", "--topology", topology, "--unload", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 10


@pytest.mark.parametrize("kernel", KERNELS)
def test_peer_rxe(kernel, tmp_path):
    """rxe crashes its kernel by itself, seldom: with rxe in the report's call trace, and only then, another guest
    tries."""
    script = "rping -s -a $B_IP -C 3 & sleep 1; rping -c -a $B_IP -C 3 -V && wait"
    log = tmp_path / "log"
    for _ in range(3):
        done = vm("--log", log, "--peer", "rxe", "--unload", "--", "sh", "-c", script, kernel=kernel)
        if done.returncode != 97 or "[rdma_rxe]" not in log.read_text(errors="replace"):
            break
    assert done.returncode == 0, done.stderr
