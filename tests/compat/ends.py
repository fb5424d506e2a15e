# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Runs programs between two ends and prints for each a line of JSON with what happened.

    ends.py run NAME        under usiw-run, between two network namespaces; run starts it in namespaces of its own
    ends.py roce NAME       the same on the RoCE face (docs/face.md)
    ends.py module NAME...  in a guest of scripts/vm

A program works if three things hold: it ended with status 0, it printed its pattern, and the traces of usiw show that
one end received as many bytes by RDMA as the program must at least have moved. Only the last one tells a program that
used RDMA from one that fell back to TCP. USIW_TRACE makes each process with a QP leave such a trace, in both worlds.
"""

import contextlib
import datetime
import glob
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build"
sys.path[:0] = [str(HERE), str(HERE.parent / "vm"), str(HERE.parent / "kernel-less")]

import hosts  # noqa: E402
from programs import PROGRAMS, environment  # noqa: E402
from report import file_name  # noqa: E402
from support import mpi, net, procs  # noqa: E402
from support.pairs import next_port  # noqa: E402
from support.procs import Proc  # noqa: E402

#: Events that a trace keeps; 128 bytes each.
EVENTS = 16384

#: Lines that say what went wrong.
ERROR = re.compile(r"error|fail|unable|could ?n[o']t|can ?not|can't|not supported|unsupported|no such|refused|invalid"
                   r"|unreachable|not found|no .*devices?\b|no space|timed out|abort|incompatible", re.I)
#: Lines that look like errors and are none.
NO_ERROR = re.compile(r"^#|^\S+=\S*$|0 errors|errors? *[:=] *0\b|can't adjust")


class End(NamedTuple):
    """One of the two hosts."""
    where: str   # stands before a command that runs there
    address: str
    device: str


class World(NamedTuple):
    """Where programs run."""
    name: str
    server: End
    client: End
    prefix: list  # stands before a program
    factor: float = 1  # how many times as long everything may take


@contextlib.contextmanager
def usiw_run(name, *options):
    """Two network namespaces and usiw-run. The files that services keep in /run are those of this run."""
    procs.run("mount", "-t", "tmpfs", "tmpfs", "/run")
    procs.run("ip", "link", "set", "lo", "up")
    with hosts.other_host() as where:
        hosts.wait_for_link_local(where)
        yield World(name, End(where, hosts.B4, "usiw0"), End("", hosts.A4, "usiw0"),
                    [str(BUILD / "run" / "usiw-run"), *options])


@contextlib.contextmanager
def module():
    """The ends that scripts/vm has made."""
    yield World("module", End(net.B.where, net.B.ip, net.B.dev), End(net.A.where, net.A.ip, net.A.dev), [], 3)


def received(folder):
    """(most bytes that a process received by RDMA, names of the operations) as the traces in a folder show."""
    most, operations = 0, set()
    for path in glob.glob(f"{folder}/usiw-trace.*"):
        shown = subprocess.run([BUILD / "tools" / "usiw", "trace", path], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, errors="replace", check=False, timeout=60).stdout
        segments = re.findall(r" RX DATA.*\| (\w+) .*\blen=(\d+)", shown)
        data = [(name, int(length)) for name, length in segments if not re.search("_REQ|TERMINATE", name)]
        most = max(most, sum(length for _, length in data))
        operations |= {name.split("_")[0] for name, length in data if length}
    return most, sorted(operations)


def error_in(*outputs):
    """The line that tells best what went wrong."""
    lines = [line.strip() for output in outputs for line in output.splitlines()]
    lines = [line for line in lines if re.search(r"\w", line)]
    for line in lines:
        if ERROR.search(line) and not NO_ERROR.search(line):
            return line
    return lines[-1] if lines else "It prints nothing."


class Trial:  # pylint: disable=too-few-public-methods
    """One program in a world."""

    def __init__(self, world, program, folder):
        self._world, self._program, self._folder = world, program, pathlib.Path(folder)
        (self._folder / "traces").mkdir()
        (self._folder / "work").mkdir()
        self._words = {"server": world.server.address, "client": world.client.address,
                       "server_dev": world.server.device, "client_dev": world.client.device,
                       "port": next_port(), "dir": str(self._folder / "work"), "scripts": str(HERE / "scripts")}
        self._server = self._client = None

    def _start(self, command, end):
        """Starts a command of the table at an end."""
        argv = shlex.split(command.format(**self._words))
        added = {"USIW_TRACE": f"{self._folder}/traces,events={EVENTS}", "USIW_PEER_TIMEOUT": 40,
                 **environment(self._program)}
        if command.startswith("{scripts}"):
            added |= {name.upper(): value for name, value in self._words.items()}
            added |= {"RUN": " ".join(self._world.prefix), "PRELOAD": added.pop("LD_PRELOAD", ""), "ROOT": ROOT,
                      "SERVER_EXEC": self._world.server.where, "BY_VERBS": " ".join(mpi.BY_VERBS)}
        else:
            argv = [*self._world.prefix, *argv]
        return Proc(argv, where=end.where, env=added, cwd=self._folder / "work")

    def _run(self):
        """Runs both ends; returns the reason why it failed, or an empty text."""
        program, factor = self._program, self._world.factor
        if program.server:
            self._server = self._start(program.server, self._world.server)
            if program.ready == "port":
                self._listens(20 * factor)
            elif program.ready:
                self._server.wait_for(program.ready, 60 * factor)
            else:
                time.sleep(0.5 * factor)
        self._client = self._start(program.client, self._world.client)
        deadline = time.monotonic() + program.seconds * factor
        while self._client.status is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._client.status is None:
            return f"did not end within {program.seconds * factor:.0f} s"
        if self._client.status != 0:
            return f"exit status {self._client.status}"
        if not re.search(program.shows, self._client.output, re.M):
            return "ended without the result"
        return self._server_ended(20 * factor) if self._server and not program.stays else ""

    def _listens(self, seconds):
        """Waits until a socket of the server's host is bound to the port, whether or not the server sleeps."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._server.status is None:
            if procs.sockets_bound(self._words["port"], self._server.pid):
                time.sleep(0.3 * self._world.factor)
                return
            time.sleep(0.05)

    def _server_ended(self, seconds):
        """Waits for the server's end; the reason why that failed, or an empty text."""
        deadline = time.monotonic() + seconds
        while self._server.status is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._server.status is None:
            return "the server did not end"
        return f"the server's exit status is {self._server.status}" if self._server.status else ""

    def _reason(self, outputs):
        """(line that tells the reason, reason) if the table knows why it does not work, or two empty texts."""
        for pattern, sentence in self._program.reasons:
            for line in "\n".join(outputs).splitlines():
                if re.search(pattern, line):
                    return line.strip(), sentence
        return "", ""

    def _without_places(self, error):
        """An error without the folder, addresses and port of this run."""
        for text, name in ((str(self._folder), "DIR"), (f"{ROOT}/", ""), (self._words["server"], "SERVER"),
                           (self._words["client"], "CLIENT"), (str(self._words["port"]), "PORT")):
            error = error.replace(text, name)
        return error

    def outcome(self):
        """Runs it and returns what happened."""
        start = time.monotonic()
        try:
            failure = self._run()
        except procs.Failed as error:
            failure = str(error).splitlines()[0].rpartition(": ")[2]
        seconds = time.monotonic() - start
        outputs = [proc.output if proc else "" for proc in (self._client, self._server)]
        procs.kill_all()
        count, operations = received(self._folder / "traces")
        if not failure and count < self._program.moves:
            failure = f"{count} bytes moved by RDMA where at least {self._program.moves} were expected"
        error, reason = self._reason(outputs) if failure else ("", "")
        if failure and not error:
            error = error_in(*outputs)
        self._log(outputs, failure)
        return {"name": self._program.name, "world": self._world.name, "works": not failure, "failure": failure,
                "error": self._without_places(error), "reason": reason,
                "bytes": count, "operations": operations, "seconds": round(seconds, 1),
                "version": version(self._program), "date": datetime.date.today().isoformat()}

    def _log(self, outputs, failure):
        """Leaves what both ends printed in build/compat/log."""
        log = BUILD / "compat" / "log"
        log.mkdir(parents=True, exist_ok=True)
        (log / f"{self._world.name}-{file_name(self._program.name)}.log").write_text(
            f"{failure or 'works'}\n--- client\n{outputs[0]}\n--- server\n{outputs[1]}\n", encoding="utf-8")


def version(program):
    """The version of its first package."""
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", program.packages[0]], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout


def main(world_name, *names):
    """Runs the programs one after the other."""
    by_name = {program.name: program for program in PROGRAMS}
    worlds = {"run": lambda: usiw_run("run"), "roce": lambda: usiw_run("roce", "--face", "roce"), "module": module}
    with worlds[world_name]() as world:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="usiw-compat-") as folder:
                print(json.dumps(Trial(world, by_name[name], folder).outcome()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
