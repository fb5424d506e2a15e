# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Processes under test: each in a session of its own, output in a file, ended for certain."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time

from . import there

#: Factor for every time-out here: a guest under emulation on a busy host is slow.
PATIENCE = float(os.environ.get("VM_PATIENCE", "1"))

#: For the programs under test. Many tests wait until a peer counts as gone, 40 s by default.
PEER_TIMEOUT = str(round(4 * PATIENCE))

#: rping may close its event channel under its own thread, which then ends the process with 255: main() and the thread
#: race when they have disconnected. All data has been verified by then; a client that has nothing to say but this has
#: done all its rounds.
RPING_ENDS = {
    "-s": re.compile(r"^server DISCONNECT EVENT\.\.\.$(.*\n)*^rdma_get_cm_event: Bad file descriptor\n*\Z", re.M),
    "-c": re.compile(r"\Aclient DISCONNECT EVENT\.\.\.\nrdma_get_cm_event: Bad file descriptor\n*\Z"),
}

_alive = []


class Failed(AssertionError):
    """A process did not do what it should; the message has its output."""


class Proc:
    """A program that runs. `where` is the text to put before the command (A_EXEC), or nothing."""

    started_total = 0  # of all processes that were ever started here

    def __init__(self, argv, where="", env=None, cwd=None, stdin=subprocess.DEVNULL):
        Proc.started_total += 1
        self.where = where
        self.argv = shlex.split(where) + [str(word) for word in argv]
        self._file = tempfile.TemporaryFile()
        self.started = time.monotonic()
        self._proc = subprocess.Popen(self.argv, stdin=stdin, stdout=self._file, stderr=subprocess.STDOUT,
                                      start_new_session=True, cwd=cwd,
                                      env={"USIW_PEER_TIMEOUT": PEER_TIMEOUT, **os.environ,
                                           **{k: str(v) for k, v in (env or {}).items()}})
        self.pid = self._proc.pid
        _alive.append(self)

    @property
    def pid_there(self):
        """Its process id on the host where it runs, which may be the other guest; None while it has none."""
        return there.pid_of(self.pid) if there.is_remote(self.where) else self.pid

    @property
    def output(self):
        """All that it has written so far."""
        return os.pread(self._file.fileno(), 1 << 22, 0).decode(errors="replace")

    @property
    def status(self):
        """Exit status, -N for signal N, or None while it runs."""
        return self._proc.poll()

    def fail(self, reason):
        """Raises Failed with the output."""
        raise Failed(f"{' '.join(self.argv)}: {reason}\n{self.output[-4000:]}")

    def tell(self, text):
        """Gives it `text` on its standard input (stdin=subprocess.PIPE), and then the end."""
        with contextlib.suppress(BrokenPipeError), self._proc.stdin as stdin:
            stdin.write(text.encode())

    def line(self):
        """Gives it an empty line on its standard input, which stays open."""
        self._proc.stdin.write(b"\n")
        self._proc.stdin.flush()

    def wait(self, timeout=60):
        """Its exit status; Failed when it does not end in `timeout` seconds."""
        try:
            return self._proc.wait(timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            stack = self.kernel_stack()
            self.kill()
            self.fail(f"did not end within {timeout * PATIENCE:.0f} s {stack}")

    def expect(self, status=0, timeout=60):
        """Waits and returns the output; Failed if the exit status is another. If that is 0, rping may also
        end as RPING_ENDS shows."""
        got = self.wait(timeout)
        if got != status and not (status == 0 and got == 255 and self._is_rping_in_race()):
            self.fail(f"exit status {got}, not {status}")
        return self.output

    def _is_rping_in_race(self):
        role = "".join(self.argv[self.argv.index("rping") + 1:][:1]) if "rping" in self.argv else None
        return role in RPING_ENDS and RPING_ENDS[role].search(self.output) is not None

    def wait_for(self, pattern, timeout=20):
        """Waits for a match of `pattern` in the output and returns it; also when it has ended meanwhile."""
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            ended = self.status is not None
            match = re.search(pattern, self.output, re.M)
            if match:
                return match
            if ended:
                self.fail(f"ended with status {self.status} before it printed {pattern!r}")
            if time.monotonic() > deadline:
                self.fail(f"did not print {pattern!r} in {timeout} s")
            time.sleep(0.02)

    def wait_listening(self, port, timeout=20, spins=False):
        """Waits until it listens on `port`: sockets of its network namespace are bound to it (UDP, or TCP for siw), no
        more of them appear (a listener on 0.0.0.0 gets one per device, one after another), and it sleeps, unless it is
        a program that `spins` while it waits for a connection."""
        deadline = time.monotonic() + timeout * PATIENCE
        quiet, before = 0, 0
        while quiet < 4:
            if self.status is not None:
                self.fail(f"ended with status {self.status} before it listened on port {port}")
            if time.monotonic() > deadline:
                self.fail(f"does not listen on port {port}")
            time.sleep(0.03)
            bound = sockets_bound(port, self.pid_there, self.where)
            quiet = quiet + 1 if bound and bound == before and (spins or self.sleeps()) else 0
            before = bound
        return self

    def sleeps(self):
        """True when none of its threads runs."""
        return not any(text.rpartition(")")[2].split()[0] in "RD"
                       for _, text in there.threads(self.pid_there, "stat", self.where) if text)

    def kernel_stack(self):
        """Where its threads sleep in the kernel."""
        return "; ".join(f"thread {tid}: " + " < ".join(re.findall(r"\] (\S+?)\+", text)[:8])
                         for tid, text in there.threads(self.pid_there, "stack", self.where))

    def signal(self, number):
        """Sends a signal to the process itself."""
        if there.is_remote(self.where):
            until(lambda: self.pid_there or self.status is not None, "the process of guest B being known")
            if pid := self.pid_there:
                there.ask(["kill", f"-{int(number)}", str(pid)], self.where)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @contextlib.contextmanager
    def stopped(self):
        """The process stands still (SIGSTOP), and goes on afterwards."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def kill(self):
        """Ends its whole session now. Failed when it does not go away in 15 s."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self._proc.wait(15 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.fail(f"cannot be killed: {self.kernel_stack()}")
        finally:
            if self in _alive:
                _alive.remove(self)

    def cpu_seconds(self):
        """CPU time of all its threads, children not included."""
        (text,) = there.read(f"/proc/{self.pid_there}/stat", self.where).values()
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sockets_bound(port, pid="self", where=""):
    """Number of sockets in the network namespace of `pid`, a process at the end `where`, that are bound to the port."""
    wanted = f":{port:04X}"
    return sum(line.split()[1].endswith(wanted) for name in ("udp", "udp6", "tcp", "tcp6")
               for text in there.read(f"/proc/{pid}/net/{name}", where).values() for line in text.splitlines())


def run(*argv, timeout=60, status=0, where="", env=None):
    """Runs a command to its end and returns its output (both streams)."""
    proc = Proc(argv, where=where, env=env)
    try:
        return proc.expect(status, timeout)
    finally:
        proc.kill()


def kill_all():
    """Ends every process that a test has left; returns how many there were."""
    left = list(_alive)
    running = [proc for proc in left if proc.status is None]
    for proc in left:
        proc.kill()
    return len(running)


def until(condition, what, timeout=15, every=0.05):
    """Waits until `condition()` is true and returns its value."""
    deadline = time.monotonic() + timeout * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"not within {timeout} s: {what}")
        time.sleep(every)
