# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Where two programs run, and how a server and its client are run there within bounds of time."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time
from typing import NamedTuple

LISTEN_SECONDS = 5
SECONDS = 60   # for what takes some, so that a machine with other work gives a figure, too


class Failed(Exception):
    """A cell gave no figure; the text says why."""


class Missing(Failed):
    """This machine cannot give the figure, whatever is measured; the text says why."""


class Ends(NamedTuple):
    """What is put before the commands of both programs, the server's address, and the device of each end."""
    name: str
    server: list
    client: list
    address: str
    devices: tuple = ()

    @property
    def sides(self):
        """(words before a command, device) of each end."""
        return list(zip((self.client, self.server), self.devices))


LO = Ends("lo", [], [], "127.0.0.1")


class Outcome(NamedTuple):
    """What programs left: the output of each client and of the server, and the processor seconds of all."""
    texts: list
    server_text: str
    processor_seconds: float

    @property
    def text(self):
        """The output of the only client."""
        return self.texts[0]


@contextlib.contextmanager
def two_namespaces():
    """Ends in two new network namespaces with a veth pair between them. Each is held by a process that the kernel ends
    with this one, however that ends. Each has a sysfs of its own: UCX looks for netdevs there."""
    hold = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "sh", "-c",
            "mount -t sysfs sysfs /sys && exec sleep infinity"]
    with contextlib.ExitStack() as stack:
        where = []
        for _ in range(2):
            holder = stack.enter_context(subprocess.Popen(hold))
            stack.callback(holder.kill)
            while pathlib.Path(f"/proc/{holder.pid}/comm").read_text(encoding="ascii") != "sleep\n":
                if holder.poll() is not None:
                    raise OSError("a network namespace could not be made")
                time.sleep(0.01)
            where.append((str(holder.pid), ["nsenter", "--target", str(holder.pid), "--net", "--mount"]))
        (_, a), (b_pid, b) = where

        def ip(at, *words):
            subprocess.run([*at, "ip", *words], check=True)
        ip(a, "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", b_pid)
        for at, device, address in ((a, "va", "10.77.0.1"), (b, "vb", "10.77.0.2")):
            ip(at, "address", "add", f"{address}/24", "dev", device)
            ip(at, "link", "set", device, "up")
            ip(at, "link", "set", "lo", "up")
        # Until the carrier is noticed usiw-run would take lo for its device.
        for at, device in ((a, "va"), (b, "vb")):
            while b"state UP" not in subprocess.check_output([*at, "ip", "-o", "link", "show", "dev", device]):
                time.sleep(0.05)
        yield Ends("veth", b, a, "10.77.0.2", ("va", "vb"))


def listens(pid, port):
    """Whether anybody in the network namespace of the process has a socket bound to the port, UDP or listening."""
    tail = f":{port:04X}"
    for name, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as f:
                if any(line.split()[1].endswith(tail) and line.split()[3] == state for line in f):
                    return True
        except OSError:   # It has ended meanwhile.
            return False
    return False


class _Program:
    """A process in a session of its own, its output in a file."""

    def __init__(self, words, env):
        # It lives as long as the process does. pylint: disable=consider-using-with
        self._output = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(words, env=dict(os.environ, **env), stdin=subprocess.DEVNULL,
                                            stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            self._output.close()
            raise Failed(str(error)) from error
        self.status = None
        self.usage = None

    def ended(self):
        """Whether it has ended; keeps its status and what it used."""
        if self.status is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
                self.usage = usage
        return self.status is not None

    def wait(self, seconds):
        """Whether it ended by then."""
        deadline = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True

    def output(self):
        """What it has printed."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def end(self):
        """Ends it and its children."""
        if not self.ended():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.wait(5)
        self._output.close()


def both(ends, server, client, port, seconds=SECONDS, env=None):
    """Runs a server, unless it is None, and a client and returns their Outcome; Failed if one is not done in time."""
    return several(ends, server, [client], port, seconds, env)


def several(ends, server, clients, port, seconds=SECONDS, env=None):
    """The same with several clients at once."""
    started = []

    def start(before, words):
        started.append(_Program([*before, *words], env or {}))
        return started[-1]
    try:
        first = start(ends.server, server) if server else None
        if first:
            _until_it_listens(first, port)
        those = [start(ends.client, client) for client in clients]
        deadline = time.monotonic() + seconds
        for one in those:
            if not one.wait(deadline - time.monotonic()):
                raise Failed(f"not done after {seconds} s")
            if one.status:
                said = _last_line(one.output() or (first.output() if first else ""))
                raise Failed(f"the client ended with {one.status}: {said}")
        if first and not first.wait(5):   # fi_pingpong, ucx_perftest and others end with their client.
            raise Failed("the server goes on when its client has ended")
        processor = sum(p.usage.ru_utime + p.usage.ru_stime for p in started)
        return Outcome([one.output() for one in those], first.output() if first else "", processor)
    except OSError as error:
        raise Failed(str(error)) from error
    finally:
        for one in reversed(started):
            one.end()


def _until_it_listens(server, port):
    deadline = time.monotonic() + LISTEN_SECONDS
    while not server.ended() and not listens(server.process.pid, port):
        if time.monotonic() >= deadline:
            raise Failed("the server does not listen")
        time.sleep(0.02)
    if server.ended():
        raise Failed(f"the server ended with {server.status}: {_last_line(server.output())}")


def _last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
