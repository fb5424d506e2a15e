# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Processes that end, fork and exec; rights."""

import os
import re
import signal
import subprocess
import time

import pytest

from compiling import compiled
from support.pairs import next_port
from support.procs import until

SERVER_IP = "127.0.0.3"
TRAFFIC = os.path.join(os.environ["VM_PROGRAMS"], "traffic")
RUN_CASES = os.path.join(os.environ["VM_PROGRAMS"], "run_cases")


def rping_server(usiw_run, port, *options):
    return usiw_run(["rping", "-s", "-a", SERVER_IP, "-p", port, *options]).wait_listening(port)


def test_no_rights_at_all():
    """Another user without any capability, in a container's manner."""
    port = next_port()
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    run = [*drop, os.environ["USIW_RUN"], "rping", "-a", SERVER_IP, "-p", str(port), "-C", "5", "-V"]
    with subprocess.Popen([*run, "-s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        for _ in range(100):
            client = subprocess.run([*run, "-c"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    timeout=60, check=False)
            if client.returncode == 0:
                break
        assert client.returncode == 0, client.stdout
        assert server.wait(30) == 0


def test_killed_client_is_told(usiw_run):
    """kill -9: the server's process is told by the watcher, and ends. (It does not have to find out by time-outs:
    status 12.)"""
    port = next_port()
    server = rping_server(usiw_run, port)
    client = usiw_run(["rping", "-c", "-a", SERVER_IP, "-p", port, "-v"])
    client.wait_for("ping data")
    client.signal(9)
    client.wait()
    server.wait(20)
    assert "DISCONNECT" in server.output and "status 12" not in server.output


def test_a_peer_that_is_gone_costs_nothing(usiw_run):
    """Datagrams to a port that nobody has any more are answered by ICMP. The server goes on to serve another connection
    at the same port, and sleeps while that one is idle."""
    port = next_port()
    socket = ["--port", "socket"]
    server = usiw_run([TRAFFIC, "server", "--to", SERVER_IP, "--port", port, "--events"], socket).wait_listening(port)
    to_server = ["client", "--from", "127.0.0.2", "--to", SERVER_IP, "--port", port, "--events"]
    quiet = usiw_run([TRAFFIC, *to_server, "--seconds", 60, "--pause-ms", 1000], socket)
    # Without a watcher that tells of its end.
    other = usiw_run(["env", "USIW_RUN_WATCHER=", TRAFFIC, *to_server, "--seconds", 60], socket)
    until(lambda: cpu_within(server, 0.5) > 0.1, "traffic")
    other.signal(signal.SIGKILL)
    other.wait()
    until(lambda: cpu_within(server, 1) < 0.3, "the server sleeps", timeout=12)
    assert server.status is None and quiet.status is None
    quiet.kill()
    server.kill()


def cpu_within(proc, seconds):
    """The processor time that it uses meanwhile."""
    before = proc.cpu_seconds()
    time.sleep(seconds)
    return proc.cpu_seconds() - before


@pytest.mark.parametrize("port", ["socket", "shm"])
def test_stopped_peer_is_waited_for(usiw_run, port):
    """It stands still for longer than the tests' USIW_PEER_TIMEOUT; data moves again as soon as it goes on."""
    number, options = next_port(), ["--port", port]
    env = ["env", "USIW_PEER_TIMEOUT=30", TRAFFIC]
    server = usiw_run([*env, "server", "--to", SERVER_IP, "--port", number], options).wait_listening(number, spins=True)
    client = usiw_run([*env, "client", "--from", "127.0.0.2", "--to", SERVER_IP, "--port", number, "--seconds", 10],
                      options)
    client.wait_for("^connected")
    with server.stopped():
        time.sleep(7)
    client.expect(0, 60)
    server.kill()


def test_silent_peer_is_given_up(usiw_run):
    """USIW_PEER_TIMEOUT is heeded; a value that is none is told, and the default taken."""
    number, options = next_port(), ["--port", "socket"]
    server = usiw_run(["env", "USIW_PEER_TIMEOUT=1.5", TRAFFIC, "server", "--to", SERVER_IP, "--port", number], options)
    server.wait_listening(number, spins=True)
    client = usiw_run(["env", "USIW_PEER_TIMEOUT=1", TRAFFIC, "client", "--from", "127.0.0.2", "--to", SERVER_IP,
                       "--port", number, "--seconds", 60], options)
    client.wait_for("^connected")
    server.signal(signal.SIGSTOP)
    assert client.wait(30) != 0
    server.kill()
    assert "USIW_PEER_TIMEOUT: 1 to 3600 seconds, not '1.5'; 40 are taken" in server.output


def test_watcher_ends_with_its_process(usiw_run):
    port = next_port()
    server = rping_server(usiw_run, port)
    client = usiw_run(["rping", "-c", "-a", SERVER_IP, "-p", port, "-C", 3])
    client.expect(0)
    server.wait()
    until(lambda: subprocess.run(["pgrep", "-f", "usiw-run --watch"], stdout=subprocess.DEVNULL,
                                 check=False).returncode == 1, "watchers end")


def test_port_is_free_again_at_once(usiw_run):
    port = next_port()
    for _ in range(5):
        server = rping_server(usiw_run, port)
        server.signal(9)
        server.wait()


def test_port_is_taken(usiw_run):
    """Two processes do not share a port by accident."""
    port = next_port()
    server = rping_server(usiw_run, port)
    second = usiw_run(["rping", "-s", "-a", SERVER_IP, "-p", port])
    assert second.wait() != 0
    server.kill()


def test_fork_and_exec(usiw_run):
    """A program's child that execs has a life of its own under usiw-run."""
    port = next_port()
    server = usiw_run(["sh", "-c", f"rping -s -a {SERVER_IP} -p {port} -C 3; echo status $?"])
    usiw_run(["rping", "-c", "-a", SERVER_IP, "-p", port, "-C", 3]).expect(0)
    assert "status 0" in server.expect(0)


def test_many_connections(usiw_run):
    port = next_port()
    server = usiw_run(["ucmatose", "-b", SERVER_IP, "-p", port, "-c", 200]).wait_listening(port)
    usiw_run(["ucmatose", "-s", SERVER_IP, "-p", port, "-c", 200]).expect(0, 120)
    server.expect(0, 60)


@pytest.mark.parametrize("case", ["blocked/whatever-the-other-end-does", "blocked/cancelled-in-traffic",
                                  "blocked/its-device-is-closed", "blocked/signals", "blocked/signals-of-both-kinds",
                                  "cancel/waits-for-events", "cancel/not-while-it-is-off", "cancel/before-rdma-cm",
                                  "cancel/before-verbs", "cancel/at-any-time", "exit/calls-after-main",
                                  "exit/ends-after-its-last-thread", "exit/listeners-come-and-go",
                                  "fork/children-open-while-threads-call", "fork/child-reads-the-channel",
                                  "fork/child-writes-to-the-channel", "query/gids", "query/ack-timeout",
                                  "query/errno-is-left-alone"])
def test_process_of_its_own(usiw_run, case):
    """What a program does to itself: tests/vm/programs/run_*.cc."""
    usiw_run([RUN_CASES, case]).expect(0, 150)


def test_memory_is_taken_away_while_it_is_sent(usiw_run):
    """By a socket: no crash, no wrong byte, RETRY_EXC_ERR, and others go on. (Else it is the program's own SIGSEGV.)"""
    usiw_run([RUN_CASES, "memory/taken-away-while-it-is-sent"], ["--port", "socket"]).expect(0, 100)


@pytest.mark.parametrize("port_kind", ["auto", "socket"])
def test_killed_client_comes_back_from_its_port(usiw_run, tmp_path, port_kind):
    """No datagram reports the end of the first client, as if its host had lost its power. The server still has that
    connection when the next client sends a REQ from the same port. The server's probe ends it: the next REQ is
    admitted, long before a time-out of either end."""
    options = ["--port", port_kind]
    client = compiled("from_port", tmp_path)
    port, own = next_port(), next_port()
    server = usiw_run([compiled("forked_listener", tmp_path), "serve", SERVER_IP, port], options).wait_listening(port)
    to_server = [client, "127.0.0.2", own, SERVER_IP, port]
    first = usiw_run(["env", "USIW_RUN_WATCHER=", *to_server], options)
    first.wait_for("connected")
    first.signal(signal.SIGKILL)
    first.wait()
    second = usiw_run(to_server, options)
    second.wait_for("connected", timeout=5)
    second.kill()
    server.kill()


@pytest.mark.parametrize("child", ["idle", "serve"])
def test_listener_forks_and_dies_while_requests_wait(usiw_run, tmp_path, child):
    """The child has none of the parent's requests, and no socket of its port. So the clients get a clear error soon. If
    the child listens at the port, their next REQs reach it instead."""
    program = compiled("forked_listener", tmp_path)
    port = next_port()
    listener = usiw_run([program, "listen", SERVER_IP, port, child], stdin=subprocess.PIPE).wait_listening(port)
    clients = [usiw_run([program, "connect", SERVER_IP, port]) for _ in range(3)]
    for client in clients:
        client.wait_for("connecting")
    time.sleep(0.3)  # one request has the slot of the backlog, and two wait for it
    listener.line()
    listener.wait_for("forked")
    listener.signal(signal.SIGKILL)
    until(lambda: "orphan" in listener.output, "the child")
    ends = [client.wait(10) for client in clients]
    for client, end in zip(clients, ends):
        assert end == 0 or re.search(r"rdma_connect.*: Connection (refused|timed out)", client.output), client.output
        assert end == 0 or "usiw-run: no connection to" in client.output
    assert (0 in ends) == (child == "serve")
    listener.kill()  # the child
