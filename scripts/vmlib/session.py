# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""One run of a guest: relays its output, watches its kernel, bounds its time, and judges how it went."""

import contextlib
import datetime
import os
import pathlib
import re
import select
import signal
import sys
import time

from . import guest, hosts, judge, kernels, peers, qemu
from .paths import LOGS, OUT, PROJECT, locked, say, ticking

STATUS_HARNESS = 96     # the guest did not come as far as the command
STATUS_KERNEL = 97      # panic, oops, WARN, hang ... of the guest's kernel
STATUS_DMESG = 98       # the command succeeded, but the kernel printed a warning
STATUS_EMULATOR = 99    # QEMU ran an instruction that is not in the guest's memory
STATUS_TIMEOUT = 124

BOOT_SECONDS = 120      # until the command starts, on a busy machine
REACTION_SECONDS = 40   # the guest's own time for ending what has timed out; longer than guest/ needs
NMI_SECONDS = 10        # for printing all stacks


class Outcome:
    """What has been seen of a run so far."""

    def __init__(self):
        self.boot_seconds = None    # host seconds from the start of QEMU to the start of the command
        self.done = False           # the guest has reported its end
        self.exit_status = None     # of the command
        self.end_text = None        # "exit 0", "signal 11", ...
        self.timed_out = False      # the command took too long
        self.guest_hung = False     # the guest did not react
        self.failure = None         # why the guest did not come to the command
        self.emulator = False       # the first problem is QEMU's own: judge.breakpoint_is_not_in_memory
        self.problems = []          # fatal lines, stuck processes, failed unloading
        self.records = []           # judged kernel messages: those after the module began to load


class Session:
    """Runs one guest. `second` is true for the one of two that only serves the other."""

    def __init__(self, machine, log, options, patience=1, second=False):
        self.machine = machine
        self.log = log
        self.options = options
        self.outcome = Outcome()
        self.start = time.monotonic()
        self.patience = patience
        self.deadline = self.start + BOOT_SECONDS * patience
        self.judging = False
        self._breakpoint = False    # the first problem is a breakpoint whose code has not been seen
        self.nmi_sent = False
        self.all_records = []
        self._console_line = b""
        self._reader = guest.FrameReader()
        self.sources = {machine.frames, machine.console}
        self.second = second
        self.ended = False
        self.stopped = False    # only because the other guest had ended out of order
        self._booted = (lambda: None) if options.quiet or second else ticking("booting")

    def read(self, source):
        """Takes what has come from one of the sources."""
        data = os.read(source, 65536)
        if not data:
            self.sources.discard(source)
        elif source == self.machine.console:
            self._console(data)
        else:
            for kind, payload in self._reader.feed(data):
                self._frame(kind, payload)
        if not self.sources or self.outcome.done:
            self.end()

    def check_time(self):
        """Called when nothing came: does what is due when the deadline has passed."""
        if self.deadline is not None and time.monotonic() >= self.deadline and not self._late():
            self.end()

    def other_ended(self, in_order):
        """The other guest has ended. In order: the second one has been told to end, too. Else nothing is waited for."""
        self._note("the other guest has ended")
        if not in_order:
            self.stopped = True
            self.end()
        elif self.second and not self.nmi_sent:
            self.deadline = time.monotonic() + REACTION_SECONDS * self.patience

    def end(self):
        """Stops the guest and completes its log."""
        if self.ended:
            return
        self.ended = True
        self._booted()
        self.machine.end()
        while select.select([self.machine.console], [], [], 0)[0]:
            data = os.read(self.machine.console, 65536)
            if not data:
                break
            self._console(data)
        self.log.write("\n==== the kernel's messages ====\n".encode())
        for record in self.all_records:
            self.log.write(f"<{record.level}>[{record.seconds:12.6f}] {record.text}\n".encode())

    def _late(self):
        """The deadline has passed. Returns False when there is nothing left to wait for."""
        if self.nmi_sent:
            return False
        self.outcome.guest_hung = True
        self._note("no reaction in time: injecting an NMI, all stacks follow")
        self.nmi_sent = True
        self.machine.inject_nmi()
        self.deadline = time.monotonic() + NMI_SECONDS
        return True

    def _note(self, text):
        self.log.write(f"\n[vm {time.monotonic() - self.start:.1f} s] {text}\n".encode())

    def _problem(self, text):
        if text not in self.outcome.problems and not self.nmi_sent:
            self.outcome.problems.append(text)

    def _judge(self, text):
        if judge.is_breakpoint(text) and not self.outcome.problems:
            self._breakpoint = True
        elif self._breakpoint and text.startswith("Code: "):
            self._breakpoint = False
            self.outcome.emulator = judge.breakpoint_is_not_in_memory(text)
        if judge.fatal_line(text) and not judge.allowed(text, self.options.allow_dmesg):
            self._problem(text)

    def _console(self, data):
        self.log.write(data)
        *lines, self._console_line = (self._console_line + data).split(b"\n")
        for line in lines:
            # Comes again as a record, unless the guest is too broken for that.
            self._judge(re.sub(r"^\[ *[\d.]+\] ", "", line.decode(errors="replace").strip()))

    def _frame(self, kind, payload):
        if kind in "OE":
            self.log.write(payload)
            if not self.second:
                write_all(1 if kind == "O" else 2, payload)
        elif kind == "K":
            record = judge.parse_record(payload)
            self.all_records.append(record)
            if self.judging:
                self.outcome.records.append(record)
            self._judge(record.text)
        elif kind == "L":
            report = payload.decode(errors="replace")
            self.log.write(payload + b"\n")
            if judge.leak_of_usiw(report):
                self._problem(f"kmemleak: {report}")
        elif kind == "D":
            self.log.write(payload + b"\n")
        elif kind == "S":
            self._status(payload.decode(errors="replace"))

    def _status(self, text):
        self._note(text)
        outcome = self.outcome
        word, _, rest = text.partition(" ")
        if word in ("command", "late", "leaks", "teardown"):  # the steps of the end, each of which takes its time
            self.deadline = time.monotonic() + (REACTION_SECONDS + 60) * self.patience
        if word == "root":
            self.judging = True
        elif word == "ready":
            self._booted()
            outcome.boot_seconds = time.monotonic() - self.start
            limit = 0 if self.second else self.options.timeout
            self.deadline = time.monotonic() + limit + REACTION_SECONDS * self.patience if limit else None
            if not self.options.quiet and not self.second:
                say(f"guest ready after {outcome.boot_seconds:.1f} s")
        elif word == "timeout":
            outcome.timed_out = True
            self.deadline = time.monotonic() + REACTION_SECONDS * self.patience
        elif word in ("command", "late"):
            outcome.end_text = rest
            kind, _, number = rest.partition(" ")
            outcome.exit_status = {"exit": 0, "signal": 128}.get(kind, 0) + int(number or STATUS_KERNEL)
            if kind == "unkillable":
                self._problem("the command could not be killed")
        elif word == "stuck":
            self._problem(f"process {rest} could not be killed")
        elif word in ("unload", "teardown") and rest != "exit 0":
            self._problem(f"{word}: {rest}")
        elif word == "fail":
            outcome.failure = rest
        elif word == "done":
            outcome.done = True


def follow(*sessions):
    """Reads from the guests until each has ended or was ended."""
    running = list(sessions)
    while running:
        owners = {source: session for session in running for source in session.sources}
        deadlines = [session.deadline for session in running if session.deadline is not None]
        left = max(0, min(deadlines) - time.monotonic()) if deadlines else None
        readable = select.select(list(owners), [], [], left)[0]
        for source in readable:
            if not owners[source].ended:
                owners[source].read(source)
        for session in running:
            if not session.ended and not session.sources.intersection(readable):
                session.check_time()
        for session in [session for session in running if session.ended]:
            for other in [other for other in running if not other.ended]:
                other.other_ended(session.outcome.done and not session.outcome.failure)
        running = [session for session in running if not session.ended]


def write_all(descriptor, data):
    """Writes everything to a descriptor of ours, blocking."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]


def verdict(outcome, options):
    """(exit status, list of lines that say why it is not the command's own)."""
    lines = []
    if outcome.problems:
        lines += [f"the guest's kernel is not well: {outcome.problems[0]}"]
        if len(outcome.problems) > 1:
            lines += [f"  and {len(outcome.problems) - 1} more such messages"]
    if outcome.guest_hung:
        lines.append("the guest hung (the stacks of all tasks are in the log)" if outcome.boot_seconds else
                     "the guest was not ready in time")
    elif outcome.timed_out:
        lines.append(f"the command did not end within {options.timeout} s (its stacks are in the log)")
    elif outcome.failure:
        lines.append(outcome.failure)
    elif not outcome.done and not outcome.problems:
        lines.append("the guest ended without a report")
    warnings = judge.suspicious(outcome.records, options.allow_dmesg)
    if warnings:
        lines.append("the kernel printed warnings:")
        lines += [f"  [{record.seconds:.6f}] {record.text}" for record in warnings[:20]]

    if outcome.emulator:
        lines.append("which is QEMU's fault: it ran a breakpoint that is not in memory (docs/testing-guest.md)")
        return STATUS_EMULATOR, lines
    if outcome.problems:
        return STATUS_KERNEL, lines
    if outcome.boot_seconds is None:
        return STATUS_HARNESS, lines
    if outcome.guest_hung or outcome.timed_out:
        return STATUS_TIMEOUT, lines
    if not outcome.done or outcome.exit_status is None:
        return STATUS_KERNEL, lines
    if outcome.exit_status == 0 and warnings:
        return STATUS_DMESG, lines
    return outcome.exit_status, lines


@contextlib.contextmanager
def open_log(options, command):
    """A new file in build/vm/log, also reachable as latest.log; --log makes it that file instead."""
    if options.log:
        path = pathlib.Path(options.log)
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        LOGS.mkdir(parents=True, exist_ok=True)
        words = [word for word in command if not word.startswith("-") and "python" not in word]
        name = options.name or (os.path.basename(words[0]) if words else "run")
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S.%f")[:-3]
        path = LOGS / f"{''.join(c if c.isalnum() or c in '._-' else '_' for c in name)[:40]}-{stamp}.log"
        latest = LOGS / "latest.log"
        temporary = LOGS / f".latest.{os.getpid()}"
        temporary.symlink_to(path.name)
        temporary.rename(latest)
    with open(path, "wb", buffering=0) as log:
        yield path, log


def one_at_a_time(options):
    """A lock of the machine, as guests that run beside each other cannot measure anything."""
    if options.no_wait:
        return contextlib.nullcontext()
    return locked(pathlib.Path("/tmp") / f"usiw-vm-{os.getuid()}.lock",
                  "waiting for another guest on this machine to end")


def run_guest(options, command, interactive=False):
    """Boots a guest, or two, and runs `command` in it (the first). Returns the exit status for the caller's process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    OUT.mkdir(parents=True, exist_ok=True)
    two = options.topology == "hosts"
    sides = hosts.sides(options, command) if two else [hosts.Side(options, command)]
    found = [kernels.find(side.options.kernel).prepare() for side in sides]
    accelerators = [options.accelerator or qemu.choose_accelerator(kernel) for kernel in found]
    if options.peer == "siw":
        for kernel in found:
            peers.build_siw(kernel.version)
    winsize = None
    if interactive and sys.stdin.isatty():
        size = os.get_terminal_size(sys.stdin.fileno())
        winsize = (size.lines, size.columns)
    patience = max(kernel.patience for kernel in found)
    with one_at_a_time(options), open_log(options, command) as (path, log), contextlib.ExitStack() as stack:
        logs = [log, stack.enter_context(open(second_log(path), "wb", buffering=0))] if two else [log]
        nics = hosts.wires(options.nic, stack) if two else [(qemu.NOWHERE,)]
        if not options.quiet:
            versions = " and ".join(dict.fromkeys(kernel.version for kernel in found))
            say(f"booting {versions} ({accelerators[0]}), log {relative(path)}")
        sessions = []
        # The second one first: the first one's command waits for it.
        for number, (side, kernel, accelerator) in reversed(list(enumerate(zip(sides, found, accelerators)))):
            logs[number].write(f"command: {side.command}\nkernel: {kernel.version}\naccelerator: {accelerator}\n"
                               f"topology: {side.options.topology}\npeer: {options.peer}\n".encode())
            tty = "/dev/hvc0" if interactive and number == 0 else None
            strings = guest.settings(kernel, side.options, side.command, tty, winsize, patience)
            machine = qemu.Machine(kernel, strings, accelerator, options.mem, side.options.smp, bool(tty), nics[number])
            stack.callback(machine.close)
            sessions.insert(0, Session(machine, logs[number], side.options, patience, second=number == 1))
        follow(*sessions)
        status = judge_sessions(sessions)
        if status:
            say(f"exit status {status}; the whole log: {relative(path)}")
        return status


def judge_sessions(sessions):
    """Says, here and in the logs, what was wrong with each guest; returns the exit status of all."""
    total = None
    for session in sessions:
        outcome = session.outcome
        status, lines = verdict(outcome, session.options)
        if session.stopped and not (outcome.problems or outcome.failure or outcome.guest_hung):
            lines = ["ended because the other guest had"]
            if session.second:
                status = 0
        if len(sessions) > 1:
            lines = [f"guest {'B' if session.second else 'A'}: {line}" for line in lines]
        errors = session.machine.errors().strip()
        if errors:
            lines.append(f"QEMU: {errors[-500:]}")
        for line in lines:
            session.log.write(f"\n[vm] {line}".encode())
            say(line)
        session.log.write(f"\n[vm] exit status {status}\n".encode())
        total = status if total is None else hosts.graver(total, status)
    return total


def second_log(path):
    """Where the log of the second guest goes: beside that of the first."""
    return path.with_name(f"{path.stem}.b{path.suffix}")


def relative(path):
    """A path as short as it can be shown."""
    path = pathlib.Path(path).resolve()
    return path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path
