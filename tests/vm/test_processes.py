# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Several processes on one device, and what waiting and polling cost."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from support import there
from support.cases import path_of
from support.net import A, B, PEER
from support.pairs import Server, next_port, srq_pairs
from support.procs import PATIENCE, Proc, run, until


@pytest.mark.core
@pytest.mark.provider
def test_several_processes_on_one_device():
    """Three servers and six clients at the same time, data verified."""
    servers = [Server(B, *(["--events"] if i else [])) for i in range(3)]
    clients = [servers[i % 3].client("--rounds", 25, "--connections", 2, *(["--events"] if i % 2 else []))
               for i in range(6)]
    for client in clients:
        client.expect(0, 120)
    for server in servers:
        server.stop()


@pytest.mark.core
def test_server_killed_with_requests_in_hand():
    """kill -9 between the request and accept: each client is told at once, and the port is free again."""
    holder = Proc([path_of("cm_holder"), B.ip, 3], where=B.where)
    port = holder.wait_for(r"^listening (\d+)")[1]
    clients = [Proc(["rping", "-c", "-a", B.ip, "-p", port, "-C", 1], where=A.where) for _ in range(3)]
    holder.wait_for("^request 3", timeout=30)
    assert all(client.status is None for client in clients)
    holder.signal(9)
    for client in clients:
        assert client.wait(20) != 0, client.output
        assert re.search("REJECTED|CONNECT_ERROR", client.output), client.output
    server = Proc(["rping", "-s", "-a", B.ip, "-p", port, "-C", 1], where=B.where).wait_listening(int(port))
    Proc(["rping", "-c", "-a", B.ip, "-p", port, "-C", 1], where=A.where).expect(0, 30)
    server.wait(20)


@pytest.mark.core
@pytest.mark.provider
@pytest.mark.parametrize("port", ["auto", "socket"])
def test_a_registered_file_is_cut_short(port):
    """By the server, while its peer reads it. Where the process reads the memory itself it ends by its own SIGBUS;
    where the kernel does, for a socket, the data never leaves. The peer gets an error, others go on."""
    others = Server(B, "--events")
    witness = others.client("--seconds", 240, "--events", "--pause-ms", 100)
    witness.wait_for("^connected")
    env = {"USIW_PORT": port}
    server = Proc([path_of("cut_file"), "server", B.ip], where=B.where, env=env, stdin=subprocess.PIPE)
    number = server.wait_for(r"^listening (\d+)", timeout=60)[1]
    peer = Proc([path_of("cut_file"), "peer", A.ip, B.ip, number], where=A.where, env=env)
    peer.wait_for("^reading", timeout=60)
    server.line()
    assert "disconnected" in peer.expect(0, 60)
    assert server.wait(60) in (0, -signal.SIGBUS, 128 + signal.SIGBUS), server.output
    others.end_client(witness)
    others.stop()


@pytest.mark.core
@pytest.mark.provider
@pytest.mark.parametrize("port", ["auto", "socket"])
def test_a_trailing_word_comes_last(port):
    """One process polls the last word of another one's WRITEs, while its progress thread places them on another
    processor. Where the word can be visible too early it is in one message of some thousands. So there are as many as
    fit into 2 s of each length."""
    env = {"USIW_PROGRESS": "thread", "USIW_PORT": port}
    receiver = Proc([path_of("last_word"), "receive", B.ip], where=B.where, env=env)
    number = receiver.wait_for(r"^listening (\d+)")[1]
    sender = Proc([path_of("last_word"), "send", A.ip, B.ip, number, 60000, 2000], where=A.where, env=env)
    sender.expect(0, 120)
    assert re.search(r"^torn 0 of \d\d+$", receiver.expect(0), re.M), receiver.output


@pytest.mark.core
@pytest.mark.provider
def test_killed_with_a_shared_receive_queue():
    """kill -9 of a process at whose SRQ the messages of some peers are under way, and others have posted receives: each
    is told at once, and others on the device go on. (After each test: no object is left.)"""
    others = Server()
    witness = others.client("--seconds", 120, "--connections", 2)
    witness.wait_for("^connected")
    server, peers = srq_pairs("srq_peers", "stream", "stream", "stream", "idle", "idle")
    server.wait_for("^received", timeout=60)
    for proc in [server, *peers]:
        assert proc.status is None, proc.output
    server.signal(9)
    killed = time.monotonic()
    for peer in peers:
        assert "disconnected" in peer.expect(0, 20)
    # A peer that is given up for its silence takes 4 s.
    assert time.monotonic() - killed < 3 * PATIENCE
    server.wait()
    others.end_client(witness)
    others.stop()


@pytest.mark.core
@pytest.mark.provider
def test_stopped_while_its_shared_receive_queue_is_resized():
    """SIGSTOP of a process that changes the size of its SRQ all the time, amid the messages of four peers, for a second
    and for less: no message is lost, none comes twice, and the peers live."""
    server, peers = srq_pairs("srq_resizing", "peer", "peer", "peer", "peer")

    def numbers(word):
        return [int((re.findall(rf"^{word} (\d+)", proc.output, re.M) or [0])[-1]) for proc in peers]

    server.wait_for("^resizes", timeout=60)
    until(lambda: all(numbers("sent")), "messages of all peers", timeout=60)
    for seconds in (1, 0.05, 0.2, 1):
        server.signal(signal.SIGSTOP)
        time.sleep(seconds)
        server.signal(signal.SIGCONT)
        before = numbers("sent")
        until(lambda: all(now > then for now, then in zip(numbers("sent"), before)), "more of them", timeout=60)
    for proc in [server, *peers]:
        assert proc.status is None, proc.output
    for peer in peers:
        peer.signal(signal.SIGTERM)
    for peer in peers:
        peer.expect(0, 60)
    assert int(re.search(r"^messages (\d+)", server.expect(0, 60), re.M)[1]) == sum(numbers("all"))


def test_traffic_in_both_directions():
    """Each end has servers and clients."""
    servers = [Server(B), Server(A)]
    clients = [servers[0].client("--rounds", 40), servers[1].client("--rounds", 40, site=B)]
    for client in clients:
        client.expect(0, 120)
    for server in servers:
        server.stop()


def test_event_mode_under_load():
    server = Server(B, "--events")
    server.client("--rounds", 60, "--connections", 4, "--events").expect(0, 120)
    server.stop()


def test_sixty_connections():
    server = Server()
    server.client("--rounds", 3, "--connections", 60, "--size", 3000).expect(0, 120)
    server.stop()


@pytest.mark.core
@pytest.mark.provider
def test_waiting_costs_nothing():
    """Server and client in event mode, connected and silent: next to no CPU."""
    server = Server(B, "--events")
    client = server.client("--seconds", 60, "--events", "--pause-ms", 6000)
    client.wait_for("^connected")
    time.sleep(1)
    before = [proc.cpu_seconds() for proc in (server.proc, client)]
    time.sleep(4)
    used = [proc.cpu_seconds() - start for proc, start in zip((server.proc, client), before)]
    client.kill()
    server.stop()
    assert max(used) < 0.4 * PATIENCE, f"{used} s of CPU in 4 s"


def test_rping_server_waits_without_cpu():
    port = next_port()
    server = Proc(["rping", "-s", "-a", B.ip, "-p", port]).wait_listening(port)
    time.sleep(0.5)
    before = server.cpu_seconds()
    time.sleep(3)
    used = server.cpu_seconds() - before
    server.kill()
    assert used < 0.3 * PATIENCE, f"{used} s of CPU in 3 s"


def test_threads_are_scheduled_as_their_program():
    """No thread goes before other users' programs, or before the kernel's threads that deliver packets. A nice value
    that a program is given holds for all of its threads."""
    server = Server()
    client = Proc(["nice", "-n", "5", path_of("traffic"), "client", "--from", A.ip, "--to", B.ip, "--port", server.port,
                   "--seconds", 60], where=A.where)
    client.wait_for("^connected")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for proc, nice in ((server.proc, own), (client, min(own + 5, 19))):
        # proc(5): field 19 is the nice value, field 41 the policy; 0 is SCHED_OTHER.
        fields = [text.rpartition(")")[2].split() for _, text in there.threads(proc.pid_there, "stat", proc.where)]
        assert len(fields) > 1, f"{proc.argv} has one thread only"
        assert {(int(field[16]), int(field[38])) for field in fields} == {(nice, 0)}, fields
    client.kill()
    server.stop()


def test_lowest_priority_beside_busy_programs():
    """A client and all its threads are at nice 19, and others keep every processor busy: it goes on, and its peer waits
    for it."""
    server = Server()
    client = server.client("--seconds", 300)
    client.wait_for("^connected")
    for tid, _ in there.threads(client.pid_there, "stat", client.where):
        os.setpriority(os.PRIO_PROCESS, int(tid), 19)
    busy = [Proc(["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count())]
    time.sleep(6)
    assert client.status is None, client.output
    for proc in busy:
        proc.kill()
    server.end_client(client)
    server.stop()


def burning_threads(pid, seconds):
    """Number of threads of a process that are busy more than a third of the time."""
    def times():
        found = {}
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
            found[tid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return found
    before = times()
    time.sleep(seconds)
    return sum(1 for tid, t in times().items() if t - before.get(tid, 0) > seconds / 3)


@pytest.mark.without_module
@pytest.mark.core
@pytest.mark.provider
def test_polling_programs_use_one_cpu_each():
    """While a program polls its progress thread stays out of the way: a ping-pong of two pollers burns two threads.
    A host that is short of processors stops a virtual one amid a run, and the guest counts that time as the thread's.
    The progress thread also stands in for a program that is stopped so. So one quiet run of several is enough."""
    seen = []
    for _ in range(6):
        port = next_port()
        server = Proc(["ib_send_lat", "-R", "-F", "-d", B.dev, "-p", port, "-s", 64, "-D", 9]).wait_listening(port)
        client = Proc(["ib_send_lat", "-R", "-F", "-d", A.dev, "-p", port, "-s", 64, "-D", 9, B.ip])
        time.sleep(3.5)  # the start of two processes and perftest's own warm-up
        seen.append([burning_threads(proc.pid, 2) for proc in (client, server)])
        client.expect(0, 60)
        server.expect(0, 30)
        if max(seen[-1]) <= 1:
            break
    assert max(seen[-1]) <= 1, seen


@pytest.mark.kernel
def test_nothing_in_the_way_of_others():
    """Other UDP traffic and TCP pass on the same netdevs; the port of a listener is taken for others."""
    run("ping", "-c", 3, "-i", "0.2", "-I", A.ip, B.ip)
    server = Server()
    if not PEER:
        program = ("import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                   f"try: s.bind(('{B.ip}',{server.port}))\nexcept OSError as e: sys.exit(7)\n")
        Proc(["/usr/bin/python3", "-c", program]).expect(7)
    server.stop()
    assert json.loads(run("rdma", "-j", "resource", "show"))
