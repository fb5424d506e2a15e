# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What must not happen beside a test: kernel messages, and objects and sockets left behind."""

import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))
from vmlib import judge  # noqa: E402

from . import nldev, there  # noqa: E402
from .net import HOSTS, WORLD  # noqa: E402


#: Of the kernel's packet socket, about what was under way in it when the netdev's MTU fell.
TOO_LONG = r"^af_packet: packet size is too long"
#: Of a container whose memory is used up.
OUT_OF_MEMORY = [r" invoked oom-killer: ", r"^Memory cgroup out of memory: Killed process"]


class Kmsg:
    """Kernel messages since the last look."""

    def __init__(self):
        self._fd = -1
        if WORLD != "module":
            return
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)

    def take(self):
        """New records as judge.Record."""
        records = []
        while self._fd >= 0:
            try:
                records.append(judge.parse_record(os.read(self._fd, 8192)))
            except BlockingIOError:
                return records
            except BrokenPipeError:  # the ring went over records; reading goes on behind them
                continue
        return records

    def warnings(self, expected=()):
        """Texts of new records at warning level or worse that are neither harmless nor expected."""
        return [f"<{r.level}> {r.text}" for r in judge.suspicious(self.take(), expected)]


def rdma_resources(host=""):
    """{device: {object: count}} of `rdma resource show`, without objects of the kernel's own."""
    if host:
        text = there.ask(["rdma", "-j", "resource", "show"], host)
        found = {entry["ifname"]: entry for entry in json.loads(text or "[]")}
    else:
        found = nldev.resources()
    return {device: {key: value for key, value in counts.items() if key in ("pd", "cq", "qp", "cm_id", "mr", "ctx")}
            for device, counts in found.items()}


def sockets(host=""):
    """UDP, packet and raw sockets of this network namespace, as a sorted list of what tells them apart."""
    found = []
    for name, fields in (("udp", (1, 2)), ("udp6", (1, 2)), ("packet", (3, 4)), ("raw", (1, 2))):
        for text in there.read(f"/proc/net/{name}", host).values():
            for line in text.splitlines()[1:]:
                words = line.split()
                found.append(" ".join([name] + [words[i] for i in fields]))
    return sorted(found)


def slabs(host=""):
    """{cache: objects in use} of the module's own slab caches."""
    if host:
        text = there.ask(["grep", "^usiw", "/proc/slabinfo"], host)
    else:
        with open("/proc/slabinfo", encoding="ascii") as f:
            text = f.read()
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if line.startswith("usiw")}


def meminfo_kb(key):
    """A line of /proc/meminfo."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(re.search(rf"^{key}:\s+(\d+)", f.read(), re.M)[1])


#: The debug kernel keeps freed memory for a while, up to 1/32 of all, and remembers who allocated it.
KEPT_KB = meminfo_kb("MemTotal") // 16 if os.path.exists("/sys/kernel/debug/kmemleak") else 0


def kernel_memory_kb():
    """(slab, all that is not free), without what the kernel can give back."""
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("3")
    return meminfo_kb("SUnreclaim"), meminfo_kb("MemTotal") - meminfo_kb("MemAvailable")


def state():
    """All that has to be again as it was."""
    if WORLD != "module":
        return {"sockets": sockets()}
    state_of = {}
    for number, host in enumerate(HOSTS):
        of = " of guest B" if number else ""
        state_of |= {f"rdma resource show{of}": rdma_resources(host), f"sockets{of}": sockets(host),
                     f"slabs{of}": slabs(host)}
    return state_of
