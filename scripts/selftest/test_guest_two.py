# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The harness with two guests on one wire."""

import pytest

from guests import vm


@pytest.mark.parametrize("nic", ("virtio-net-pci", "e1000e", "vmxnet3"))
def test_two_guests_on_one_wire(nic):
    # Whether siw and rping come to an end on a busy machine is not the harness's affair: the server is ended, the
    # client gets a second try.
    script = ("$B_EXEC rping -s -P -a $B_IP & sleep 2; ping='timeout 40 rping -c -a '$B_IP' -C 3 -V'; "
              "$ping || $ping || exit 1; $B_EXEC pkill -x rping; wait; "
              "$B_EXEC sh -c 'cat /sys/class/net/$B_NETDEV/statistics/rx_packets /proc/sys/kernel/random/boot_id; "
              "exit 7'; "
              "echo $?; cat /proc/sys/kernel/random/boot_id")
    done = vm("--peer", "siw", "--topology", "hosts", "--nic", nic, "--smp", "1", "--unload", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    packets, kernel_b, status, kernel_a = done.stdout.splitlines()[-4:]
    assert int(packets) > 10 and status == "7" and kernel_a != kernel_b


def test_two_guests_of_two_kernels():
    done = vm("--no-module", "--topology", "hosts", "--kernel-b", "6.12", "--",
              "sh", "-c", "uname -r; $B_EXEC uname -r")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("6.1.") and "\n6.12." in done.stdout


@pytest.mark.parametrize("kind, status, text",
                         (("warn", 97, "guest B: "), ("warning", 98, "guest B: "), ("info", 0, "")))
def test_kernel_messages_of_the_second_guest(faults, kind, status, text):
    done = vm("--no-module", "--topology", "hosts", "--",
              "sh", "-c", f"$B_EXEC insmod {faults('6.1')} kind={kind}; true")
    assert done.returncode == status, done.stderr
    assert text in done.stderr


def test_the_second_guest_hangs(faults, tmp_path):
    """One that spins without interrupts does not end in order; the stacks of all its tasks are in its log."""
    log = tmp_path / "log"
    done = vm("--log", log, "--no-module", "--topology", "hosts", "--smp-b", "1", "--timeout", "5", "--", "sh", "-c",
              f"$B_EXEC insmod {faults('6.1')} kind=hang")
    assert done.returncode in (97, 124), done.stderr
    assert "guest B: the guest hung" in done.stderr
    assert "spin_without_interrupts" in (tmp_path / "log.b").read_text(errors="replace")


def test_the_command_times_out_in_both_guests():
    done = vm("--no-module", "--topology", "hosts", "--timeout", "3", "--",
              "sh", "-c", "$B_EXEC sh -c 'echo first; sleep 1000'")
    assert (done.stdout, done.returncode) == ("first\n", 124)
