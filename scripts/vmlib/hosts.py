# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Two guests on one wire: what the topology "hosts" is made of.

Guest A runs the command. Guest B has the same root, loads the same module, brings its end up, and runs the agent of
remote/ until A has it end; B_EXEC is its stub. A wire of its own carries what agent and stub say to each other, so that
nothing that is done to the wire of the data disturbs it.
"""

import argparse
from typing import NamedTuple

from . import kernels, qemu
from .guest import NICS
from .paths import REMOTE

#: Where the agent listens, on the wire of control; scripts/topology gives the guests their addresses there.
AGENT = "169.254.9.2:9"

#: Statuses of scripts/vm in the order of their weight: one guest's goes before the other's (and the command's own).
GRAVE = (97, 99, 96, 124)


class Side(NamedTuple):
    """One guest: its options, and the command that it runs."""
    options: argparse.Namespace
    command: list


def sides(options, command):
    """(A, B) for the options of scripts/vm."""
    remote = str(kernels.build_program("remote", REMOTE))
    for_a = argparse.Namespace(**{**vars(options), "topology": "hosts-a", "env": [f"REMOTE={remote}", *options.env]})
    for_b = argparse.Namespace(**{**vars(options), "topology": "hosts-b", "kernel": options.kernel_b or options.kernel,
                                  "smp": options.smp_b or options.smp, "timeout": 0})
    return Side(for_a, command), Side(for_b, [remote, "serve", AGENT])


def wires(device, stack):
    """[NICs of A, NICs of B]: a wire for the data with this device at its ends, and one of control.

    `stack` closes what this process has of them.
    """
    assert device in NICS
    nics = [[], []]
    for number, name in ((1, device), (2, "virtio-net-pci")):
        macs = [f"{name},mac=52:54:00:00:{number:02}:0{end}" for end in "ab"]
        for side, (nic, end) in enumerate(qemu.wire(*macs)):
            nics[side].append(nic)
            stack.callback(end.close)
    return nics


def graver(first, second):
    """The status of both guests together."""
    return next((status for status in GRAVE if status in (first, second)), first or second)
