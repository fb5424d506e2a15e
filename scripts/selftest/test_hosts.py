# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Two guests, as far as no guest is needed: commands run by the agent, and how the end of one guest ends the other."""

import os
import signal
import socket
import struct
import subprocess
import time

import pytest

from vmlib import cli, hosts, kernels, session
from vmlib.paths import REMOTE


@pytest.fixture(scope="module", name="remote")
def agent():
    """The stub as a list of words, with an agent that serves it on this machine."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored for `make check &`
    program = str(kernels.build_program("remote", REMOTE))
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        where = f"127.0.0.1:{chosen.getsockname()[1]}"
    server = subprocess.Popen([program, "serve", where], stdin=subprocess.DEVNULL)
    subprocess.run([program, "wait", where, "10"], check=True)
    yield [program, "run", where]
    subprocess.run([program, "stop", where, "10"], check=True)
    assert server.wait(10) == 0
    assert subprocess.run([program, "wait", where, "0"], check=False, stderr=subprocess.DEVNULL).returncode == 1


def run(remote, *words, data=b"", **options):
    """Runs a command by the stub, for at most 20 s."""
    return subprocess.run([*remote, *words], input=data, capture_output=True, timeout=20, check=False, **options)


def gone(pid):
    """Waits until a process of this machine has ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def pid_of(stub):
    """The process that a stub stands for."""
    path = f"/run/remote/{stub.pid}"
    deadline = time.monotonic() + 10
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    with open(path, encoding="ascii") as f:
        return int(f.read())


def test_output_status_folder_and_environment(remote, tmp_path):
    done = run(remote, "sh", "-c", "echo out; echo err >&2; pwd; echo $ODD; exit 7", cwd=tmp_path,
               env={**os.environ, "ODD": "two  words\nand a line"})
    assert done.stdout.decode() == f"out\n{tmp_path}\ntwo words and a line\n"
    assert (done.stderr, done.returncode) == (b"err\n", 7)


def test_a_signal_that_ends_the_command_ends_the_stub(remote):
    assert run(remote, "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV
    assert run(remote, "/no/such/program").returncode == 127


def test_much_goes_both_ways(remote):
    data = os.urandom(3_000_000)
    assert run(remote, "cat", data=data).stdout == data
    assert run(remote, "true", data=data).returncode == 0


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGINT))
def test_a_signal_reaches_the_process_group(remote, number):
    stub = subprocess.Popen([*remote, "sh", "-c", "sleep 1000 & echo $!; wait"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE)
    child = int(stub.stdout.readline())
    stub.send_signal(number)
    assert stub.wait(10) == -number or number == signal.SIGINT
    assert gone(child)


def test_a_killed_stub_takes_the_process_group_with_it(remote):
    stub = subprocess.Popen([*remote, "sh", "-c", "trap '' TERM INT HUP; sleep 1000 & echo $!; wait; sleep 1000"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child, shell = int(stub.stdout.readline()), pid_of(stub)
    stub.stdin.write(b"x" * 65536)  # which nobody reads
    stub.stdin.flush()
    stub.kill()
    assert gone(child) and gone(shell)


def test_an_orphan_ends_with_its_command(remote):
    done = run(remote, "sh", "-c", "sleep 1000 & echo $!")
    assert done.returncode == 0 and gone(int(done.stdout))


def test_no_agent():
    program = str(kernels.build_program("remote", REMOTE))
    assert run([program, "run", "127.0.0.1:1"], "true").returncode == 255


class Machine:
    """A guest that says what a test writes into its pipe."""

    def __init__(self):
        self.frames, self.write_end = os.pipe()
        self.console, self.console_end = os.pipe()
        self.ended = 0

    def says(self, *texts):
        """Status lines of the guest."""
        for text in texts:
            os.write(self.write_end, struct.pack("<cI", b"S", len(text)) + text.encode())

    def end(self):
        """Counts how often it is stopped."""
        self.ended += 1

    def errors(self):
        """QEMU itself says nothing here."""
        return ""

    def inject_nmi(self):
        """No guest that hangs here."""


@pytest.fixture(name="two")
def two_sessions(tmp_path):
    """(machine, session) of A and of B, both of which are at work."""
    options = cli.build_parser().parse_args(["run", "--topology", "hosts", "--quiet", "--", "true"])
    with open(tmp_path / "a", "wb") as log_a, open(tmp_path / "b", "wb") as log_b:
        both = []
        for side, log in zip(hosts.sides(options, ["true"]), (log_a, log_b)):
            machine = Machine()
            both.append((machine, session.Session(machine, log, side.options, second=bool(both))))
            machine.says("root 1", "ready 2")
        yield both
        for machine, _ in both:
            for fd in (machine.frames, machine.write_end, machine.console, machine.console_end):
                os.close(fd)


def test_both_guests_end_in_order(two):
    (a, session_a), (b, session_b) = two
    a.says("command exit 3", "done")
    b.says("command exit 0", "done")
    session.follow(session_a, session_b)
    assert (a.ended, b.ended) == (1, 1)
    assert [session_a.outcome.exit_status, session_b.outcome.exit_status] == [3, 0]


def test_a_guest_that_dies_takes_the_other_with_it(two):
    (a, session_a), (b, session_b) = two
    os.close(b.write_end)
    os.close(b.console_end)
    b.write_end, b.console_end = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    session.follow(session_a, session_b)
    assert (a.ended, b.ended) == (1, 1)
    assert session.verdict(session_b.outcome, session_b.options)[0] == 97


def test_a_second_guest_that_cannot_start_ends_the_first(two):
    (a, session_a), (b, session_b) = two
    b.says("fail the topology could not be made", "done")
    session.follow(session_a, session_b)
    assert (a.ended, b.ended) == (1, 1)


def test_the_second_guest_is_not_bounded_by_the_commands_time(two):
    (_, session_a), (_, session_b) = two
    for one in (session_a, session_b):
        one.read(one.machine.frames)
    assert session_a.deadline is not None and session_b.deadline is None
    session_b.other_ended(in_order=True)
    assert session_b.deadline is not None


@pytest.mark.parametrize("first, second, together",
                         ((0, 0, 0), (3, 0, 3), (0, 97, 97), (3, 97, 97), (97, 96, 97), (1, 96, 96), (124, 97, 97),
                          (0, 98, 98), (98, 0, 98), (5, 98, 5)))
def test_the_status_of_both(first, second, together):
    assert hosts.graver(first, second) == together


def test_each_side_has_its_own_kernel_and_processors():
    options = cli.build_parser().parse_args(["run", "--topology", "hosts", "--kernel-b", "6.12", "--smp", "1",
                                             "--smp-b", "3", "--", "rping", "-s"])
    a, b = hosts.sides(options, options.command)
    assert (a.options.kernel, a.options.smp, a.options.topology) == ("6.1", 1, "hosts-a")
    assert (b.options.kernel, b.options.smp, b.options.topology) == ("6.12", 3, "hosts-b")
    assert a.command == ["rping", "-s"] and b.command[1] == "serve"


def test_the_guest_that_died_is_the_one_that_is_named(two, capfd):
    (a, session_a), (b, session_b) = two
    b.says("fail the module is missing", "done")
    session.follow(session_a, session_b)
    assert session.judge_sessions([session_a, session_b]) == 97   # the command was under way
    said = capfd.readouterr().err
    assert "guest A: ended because the other guest had\n" in said and "guest B: the module is missing\n" in said
    assert (a.ended, b.ended) == (1, 1)
