# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Decides from the kernel's messages whether a run was clean."""

import re
from typing import NamedTuple

WARNING_LEVEL = 4  # KERN_WARNING; smaller is worse

#: A line that matches one of these fails the run, whatever the command said.
FATAL = tuple(re.compile(pattern) for pattern in (
    r"Kernel panic",
    r"\bBUG: ",
    r"kernel BUG at ",
    r"\bOops: ",
    r": [0-9a-f]{4} \[#\d+\]",             # what Linux before 6.10 prints of an exception without the word Oops
    r"general protection fault",
    r"\bWARNING: ",                        # WARN(), and most reports of lockdep
    r"INFO: task .* blocked for more than",
    r"INFO: trying to register non-static key",
    r"INFO: possible recursive locking",
    r"rcu: INFO: .*(self-detected stall|detected stalls)",
    r"watchdog: .*(soft|hard) lockup|NMI watchdog: Watchdog detected hard LOCKUP",
    r"workqueue lockup",
    r"scheduling while atomic",
    r"sleeping function called from invalid context",
    r"refcount_t: ",
    r"UBSAN: ",
    r"list_(add|del) corruption",
    r"unregister_netdevice: waiting for",
    r"\bKASAN: ",
    r"\bODEBUG: ",
    r"DEBUG_LOCKS_WARN_ON|turning off the locking correctness validator",
    r"ref_tracker: .*(leaked|has)",
    r"Out of memory: Killed",
))

#: Lines at warning level that say nothing about the module. docs/testing-guest.md explains each.
HARMLESS = tuple(re.compile(pattern) for pattern in (
    r"^\w+: loading out-of-tree module taints kernel",
    r"^\w+: module verification failed: signature and/or required key missing",
    r"^sysrq: ",
    r"^hrtimer: interrupt took \d+ ns",
    r"^clocksource: ",
    r"^[\w.-]+ speed is unknown, defaulting to",  # ib_core, for lo
    r"^perf: interrupt took too long",
    r"^systemd-.*: ",
))


class Record(NamedTuple):
    """One record of /dev/kmsg."""
    level: int
    seconds: float
    text: str


def parse_record(raw):
    """A Record from the bytes of one /dev/kmsg read: "priority,sequence,microseconds,flags;text"."""
    head, _, text = raw.decode(errors="replace").partition(";")
    fields = head.split(",")
    message = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), text.split("\n")[0])
    return Record(int(fields[0]) & 7, int(fields[2]) / 1e6, message)


def fatal_line(text):
    """True for a message that means that the kernel is broken."""
    return any(pattern.search(text) for pattern in FATAL)


def is_breakpoint(text):
    """True for the first line of an oops by a breakpoint (int3) of which the kernel knows nothing."""
    return re.search(r"\bint3: [0-9a-f]{4} \[#1\]", text) is not None


def breakpoint_is_not_in_memory(text):
    """Of the line "Code: ..." that follows is_breakpoint(): True if the code has no int3 where one was executed.

    Such an oops is QEMU's. The kernel changes its code by way of an int3 (jump labels, at each first and last user of a
    facility); QEMU 7.2 can translate the int3 for one processor while another one takes it away, and executes it
    afterwards. The marked byte is the one after the int3.
    """
    before = re.search(r"([0-9a-f]{2}) <[0-9a-f]{2}>", text)
    return before is not None and before[1] != "cc"


def leak_of_usiw(report):
    """True for a report of kmemleak whose allocation came from usiw.

    usiw is the only module on the debug kernel. Once it is unloaded its addresses have no names any more.
    """
    return "[usiw]" in report or re.search(r"\] 0xffffffff[ac]", report) is not None


def allowed(text, patterns):
    """True for a message that the caller expects."""
    return any(re.search(pattern, text) for pattern in patterns)


def without_oom_tables(records):
    """The records; of a report of the OOM killer only its first line, and that of each process killed."""
    inside = False
    for record in records:
        killed = re.search(r"out of memory: Killed process", record.text, re.IGNORECASE) is not None
        if killed or not inside:
            yield record
        inside = not killed and (inside or " invoked oom-killer: " in record.text)


def suspicious(records, expected=()):
    """The records at warning level or worse that are neither harmless nor expected by the caller."""
    return [record for record in without_oom_tables(records) if record.level <= WARNING_LEVEL
            and not allowed(record.text, HARMLESS) and not allowed(record.text, expected)]
