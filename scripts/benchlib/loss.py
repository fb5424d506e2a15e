#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Random loss at a veth pair, for packet sockets, UDP and TCP alike.

    loss.py DEVICE PERCENT      loses that share of what arrives at the device until standard input ends

An XDP program of six instructions in the driver's own receive path: it needs neither a compiler nor a kernel module,
and since such a veth pair carries no merged packets, each packet of the wire is lost by itself. netem, which loses what
the sender merged as a whole (up to 64 KiB), serves where the kernel takes no such program.
"""

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import sys

SYS_BPF = 321  # x86-64
PROG_LOAD, LINK_CREATE = 5, 28
TYPE_XDP, ATTACH_XDP, DRIVER_MODE = 6, 37, 4
DROP, PASS = 1, 2
GET_PRANDOM_U32 = 7
READY = "ready"


class Unable(Exception):
    """This machine cannot lose packets; the text says why."""


def program(percent):
    """The instructions: drops if a random number of 32 bits is below the share."""
    share = min(0xffffffff, round(percent / 100 * 2 ** 32))
    return b"".join(struct.pack("<BBhI", *words) for words in (
        (0x85, 0, 0, GET_PRANDOM_U32),  # call
        (0x36, 0, 2, share),            # if w0 >= share goto the last two
        (0xb7, 0, 0, DROP), (0x95, 0, 0, 0),
        (0xb7, 0, 0, PASS), (0x95, 0, 0, 0)))


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_BPF, command, buffer, len(buffer))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def attach(device, percent):
    """The loss lasts as long as the descriptor that this returns. OSError if the kernel refuses."""
    code = ctypes.create_string_buffer(program(percent))
    licence = ctypes.create_string_buffer(b"Dual BSD/GPL")
    loaded = _bpf(PROG_LOAD, struct.pack("<IIQQIIQII16sII", TYPE_XDP, len(program(percent)) // 8,
                                         ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0, b"loss", 0,
                                         ATTACH_XDP))
    try:
        return _bpf(LINK_CREATE, struct.pack("<IIII", loaded, socket.if_nametoindex(device), ATTACH_XDP, DRIVER_MODE))
    finally:
        os.close(loaded)


def _netem(sides, percent, stack):
    for at, device in sides:
        done = subprocess.run([*at, "tc", "qdisc", "add", "dev", device, "root", "netem", "limit", "100000",
                               "loss", f"{percent}%"], check=False, capture_output=True, text=True)
        if done.returncode:
            raise Unable(f"netem: {' '.join(done.stderr.split())}")
        stack.callback(subprocess.run, [*at, "tc", "qdisc", "del", "dev", device, "root"], check=False,
                       capture_output=True)


def _xdp(sides, percent, stack):
    for at, device in sides:
        holder = stack.enter_context(subprocess.Popen([*at, sys.executable, __file__, device, str(percent)], text=True,
                                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                      stderr=subprocess.PIPE))   # Leaving the context ends its input.
        if holder.stdout.readline().strip() != READY:
            raise Unable(f"XDP: {' '.join(holder.stderr.read().split())}")


@contextlib.contextmanager
def at_both(sides, percent):
    """While it lasts each of the sides, (words before a command, device), loses so many per cent of what arrives.
    Unable with both reasons if neither way is there."""
    with contextlib.ExitStack() as stack:
        reasons = []
        for way in (_xdp, _netem):
            with contextlib.ExitStack() as attempt:
                try:
                    way(sides, percent, attempt)
                except (Unable, OSError) as error:
                    reasons.append(str(error))
                    continue
                stack.push(attempt.pop_all())
                break
        else:
            raise Unable(", ".join(reasons))
        yield


def main():
    """Holds the loss at one device."""
    try:
        attach(sys.argv[1], float(sys.argv[2]))
    except OSError as error:
        sys.exit(str(error))
    print(READY, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
