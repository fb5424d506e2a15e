# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Processes, devices and the module go away at any moment: no hang, no message of the kernel, nothing left."""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import time

import pytest

from support import watch
from support.cases import path_of
from support.net import A, B, PEER, container, netem, rdma_links, statistics
from support.pairs import AT_FULL_SPEED, Server, next_port, perftest, rping, srq_pairs
from support.ports import qps_of
from support.procs import PATIENCE, Proc, run, until

SEED = int(os.environ.get("CHAOS_SEED", "1"))


def link_add(site):
    """Makes the device of a site again."""
    run("rdma", "link", "add", site.dev, "type", PEER or "usiw", "netdev", site.netdev, where=site.host)
    until(lambda: rdma_links().get(site.dev, {}).get("state") == "ACTIVE", f"{site.dev} being active")


def link_delete(site):
    """Takes the device of a site away, whoever uses it."""
    run("rdma", "link", "delete", site.dev, where=site.host, timeout=30)


@pytest.mark.core
@pytest.mark.parametrize("victim", ["client", "server"])
@pytest.mark.parametrize("moment", ["traffic", pytest.param("waiting", marks=pytest.mark.provider)])
def test_kill(victim, moment):
    """kill -9 under traffic, and while both wait in event mode; the other one is told."""
    server = Server(B, "--events")
    options = ["--events", "--pause-ms", 3000] if moment == "waiting" else AT_FULL_SPEED
    client = server.client("--seconds", 60, *options)
    client.wait_for("^connected")
    time.sleep(0.7)
    if victim == "client":
        client.kill()
        time.sleep(0.3)
        other = server.client("--rounds", 5)
        other.expect(0, 30)
        server.stop()
    else:
        server.proc.kill()
        assert client.wait(30) == 2, client.output


@pytest.mark.core
@pytest.mark.skipif(bool(PEER), reason="usiw's own")
def test_kill_while_a_child_lives(monkeypatch):
    """kill -9 of a process whose child of fork() keeps all its descriptors. Its peer would not find out by itself for
    ten minutes."""
    monkeypatch.setenv("USIW_PEER_TIMEOUT", "600")
    server = Server(B, "--events")
    client = server.client("--seconds", 120, "--connections", 3, "--child")
    client.wait_for("^connected")
    until(lambda: len(qps_of(server.proc.pid)) == 3, "the server's connections")
    client.signal(signal.SIGKILL)
    client.wait()
    until(lambda: not qps_of(server.proc.pid), "the server being told of the end of all")
    client.kill()  # the child
    server.client("--rounds", 3).expect(0, 30)
    server.stop()


def test_kill_while_connecting():
    """Clients that die at 40 moments from before their first system call to after ESTABLISHED."""
    rng = random.Random(SEED)
    server = Server()
    for i in range(40):
        client = server.client("--seconds", 30, "--connections", 3)
        time.sleep(i * 0.01 + rng.random() * 0.01)
        client.kill()
    server.client("--rounds", 5).expect(0, 30)
    server.stop()


def test_kill_server_while_connecting():
    """Servers that die at 8 moments of the connections of several clients."""
    rng = random.Random(SEED + 1)
    for i in range(8):
        server = Server()
        clients = [server.client("--seconds", 20, "--connections", 2) for _ in range(2)]
        time.sleep(0.1 + i * 0.05 + rng.random() * 0.05)
        server.proc.kill()
        for client in clients:
            assert client.wait(40) in (2, 0), client.output
    rping(count=3)


def test_kill_either_in_random_order():
    """30 rounds of clients and servers that come and are killed, under traffic of one that must stay unharmed."""
    rng = random.Random(SEED + 2)
    steady = Server()
    witness = steady.client("--seconds", 120, "--connections", 2)
    witness.wait_for("^connected")
    deadline = time.monotonic() + 40
    kills = 0
    while time.monotonic() < deadline and kills < 30:
        server = Server(B, *(["--events"] if rng.random() < 0.5 else []))
        clients = [server.client("--seconds", 30, "--connections", rng.randint(1, 4), *AT_FULL_SPEED) for _ in range(2)]
        time.sleep(rng.random() * 1.2)
        order = [server.proc, *clients]
        rng.shuffle(order)
        for proc in order:
            proc.kill()
            kills += 1
            time.sleep(rng.random() * 0.1)
    steady.end_client(witness)
    steady.stop()


def test_stopped_process():
    """SIGSTOP for 4 s on either end: its peer waits, then all goes on."""
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    time.sleep(0.3)
    for proc in (server.proc, client):
        proc.signal(19)
        time.sleep(2)
        proc.signal(18)
        time.sleep(1)
    server.end_client(client)
    server.stop()


@contextlib.contextmanager
def with_quota(site, percent):
    """The same end for programs that may use so many percent of the time of one processor in each tenth of a second;
    then all their threads stand still until it is over."""
    with container(site, "cpu") as (inside, group):
        run("sh", "-c", f"echo {percent}000 100000 >{group}/cpu.max", where=site.host)
        yield inside
        stopped = re.search(r"^nr_throttled (\d+)", run("cat", f"{group}/cpu.stat", where=site.host), re.M)
        assert int(stopped[1]) > 20, "the quota was never used up"


def test_both_ends_use_up_their_quotas():
    """Two containers stand still most of the time, each at moments of its own, while their programs poll, sleep until
    an event comes, or wait for a byte in memory. Nobody is taken for gone, and all data is right."""
    with with_quota(A, 30) as a, with_quota(B, 30) as b:
        server = Server(b)
        clients = [server.client("--rounds", 20, *options, site=a) for options in ([], ["--events"])]
        for client in clients:
            client.expect(0, 60)
        server.stop()
        for tool in ("ib_send_lat", "ib_write_lat", "ib_read_lat"):
            perftest(tool, "-n", 100, server=b, client=a)


def test_a_container_uses_up_its_memory(expected):
    """The kernel kills all its programs amid their traffic, and takes their memory away before they have ended. Their
    peer outside is told at once, and serves others all the time."""
    expected.messages += watch.OUT_OF_MEMORY
    server = Server()
    neighbour = server.client("--seconds", 120)
    with container(A, "memory") as (a, group):
        clients = [server.client("--seconds", 120, "--connections", 2, *options, site=a)
                   for options in ([], ["--events"])]
        for proc in [neighbour, *clients]:
            proc.wait_for("^connected")
        run("sh", "-c", f"echo 1 >{group}/memory.oom.group && "
                        f"echo $(($(cat {group}/memory.current) + (16 << 20))) >{group}/memory.max", where=a.host)
        Proc(["python3", "-c", "taken = []\nwhile True: taken.append(b'x' * (1 << 20))"], where=a.where)
        for client in clients:
            assert client.wait(30) == -9, client.output
    server.end_client(neighbour)
    server.client("--rounds", 3).expect(0)
    server.stop()


def test_exit_without_cleaning_up():
    """A program that just returns from main with connections open."""
    server = Server()
    for _ in range(3):
        client = server.client("--seconds", 30)
        client.wait_for("^connected")
        client.signal(15)  # default action: ends without destroying anything
        assert client.wait(15) == -15
    server.client("--rounds", 3).expect(0)
    server.stop()


@pytest.mark.core
def test_forking():
    """A client that makes children which exit and exec, under traffic."""
    server = Server()
    client = server.client("--rounds", 200, "--forks")
    client.expect(0, 90)
    server.stop()


@pytest.mark.core
@pytest.mark.parametrize("site", [A, B], ids=["client-side", "server-side"])
def test_link_delete_under_traffic(site):
    """Both ends end in bounded time, nothing stays, and the device can be made again."""
    server = Server()
    client = server.client("--seconds", 60, "--connections", 2, *AT_FULL_SPEED)
    client.wait_for("^connected")
    time.sleep(0.5)
    try:
        link_delete(site)
        assert site.dev not in rdma_links()
        assert client.wait(30) == 2, client.output
        if site is B:
            server.proc.wait(30)
        else:
            server.stop()
    finally:
        if site.dev not in rdma_links():
            link_add(site)
    rping(count=5)


def test_link_delete_is_told():
    """A program that waits for events of the device gets DEVICE_FATAL, and can go on to close it."""
    watcher = Proc(["stdbuf", "-oL", "ibv_asyncwatch", "-d", A.dev])
    watcher.wait_for("async event FD")
    try:
        link_delete(A)
        watcher.wait_for("IBV_EVENT_DEVICE_FATAL")
    finally:
        watcher.kill()
        link_add(A)
    rping(count=5)


def test_link_delete_while_waiting():
    """The same with processes that sleep in event mode and in rdma_get_cm_event()."""
    port = next_port()
    rping_server = Proc(["rping", "-s", "-a", B.ip, "-p", port], where=B.where).wait_listening(port)
    server = Server(B, "--events")
    client = server.client("--seconds", 60, "--events", "--pause-ms", 2000)
    client.wait_for("^connected")
    try:
        link_delete(B)
        assert client.wait(30) == 2, client.output
        rping_server.kill()
        server.proc.kill()
    finally:
        link_add(B)
    rping(count=5)


def load_rdma_cm_last():
    """ib_core asks its clients in the order in which they were loaded: rdma_cm comes behind the module then."""
    if not os.path.exists("/sys/module/rdma_cm/initstate"):
        pytest.skip("rdma_cm is built into this kernel, so it is always the first")
    modules = ["rdma_ucm", "rdma_cm"]
    run("modprobe", "-r", *modules, where=A.host)
    run("modprobe", modules[0], where=A.host)


@pytest.mark.core
@pytest.mark.skipif(bool(PEER), reason="others use rdma_cm, too")
def test_link_delete_with_rdma_cm_loaded_last():
    """The device is taken from rdma_cm before the module and uverbs hear of it, while a connect has no answer: the
    peer's host says PENDING, for a minute if need be. The program does not end by itself when it is told."""
    load_rdma_cm_last()
    port = next_port()
    server = Proc(["rping", "-s", "-a", B.ip, "-p", port], where=B.where).wait_listening(port)
    server.signal(signal.SIGSTOP)
    requests = statistics(B.dev)["cm_request"]
    client = Proc(["rping", "-c", "-a", B.ip, "-I", A.ip, "-p", port, "-C", 1], where=A.where)
    until(lambda: statistics(B.dev)["cm_request"] > requests, "the peer having the request")
    try:
        with client.stopped():
            link_delete(A)
        assert client.wait(30) != 0, client.output
    finally:
        link_add(A)
    server.kill()
    rping(count=5)


@pytest.mark.core
@pytest.mark.parametrize("moment", ["pending", *(pytest.param(moment, marks=pytest.mark.provider)
                                                 for moment in ("unanswered", "established"))])
def test_link_delete_while_the_peer_is_silent(moment):
    """The peer's host answers PENDING while its program does not answer, or it answers nothing. The device can be
    deleted all the same, and a program that waits for that peer gets an event."""
    port = next_port()
    server = Proc(["rping", "-s", "-a", B.ip, "-p", port], where=B.where).wait_listening(port)
    if moment == "pending":
        server.signal(signal.SIGSTOP)
    requests, connects = statistics(B.dev)["cm_request"], statistics(A.dev)["cm_connect"]
    with netem("loss 100%") if moment == "unanswered" else contextlib.nullcontext():
        client = Proc(["rping", "-c", "-a", B.ip, "-I", A.ip, "-p", port, "-C", 1000000], where=A.where)
        if moment == "unanswered":
            until(lambda: statistics(A.dev)["cm_connect"] > connects, "a connect")
        else:
            until(lambda: statistics(B.dev)["cm_request"] > requests, "the peer having the request")
        if moment == "established":
            until(lambda: "state RTS" in run("rdma", "resource", "show", "qp"), "a connection")
            server.signal(signal.SIGSTOP)
        try:
            link_delete(A)
            # rping ends with 0 if it is the disconnection that it is told first.
            assert client.wait(30) != 0 or "DISCONNECT EVENT" in client.output, client.output
            assert server.status is None
        finally:
            server.kill()
            link_add(A)
    rping(count=5)


@pytest.mark.core
@pytest.mark.provider
@pytest.mark.parametrize("moment", ["before-it-is-back", "at-once"])
def test_the_peers_host_loses_its_power(moment):
    """Nothing of B's host gets out any more, its processes die, and it comes back with the same addresses and a device
    that knows nothing. Who had a connection with it, or waited for its answer, is told, and does not disturb who
    comes to the same port, there before B is back or only then."""
    server = Server()
    clients = [server.client("--seconds", 120), server.client("--seconds", 120, "--events", "--pause-ms", 300)]
    own = Server(A)
    visitor = own.client("--seconds", 120, "--events", "--pause-ms", 300, site=B)
    for client in (*clients, visitor):
        client.wait_for("^connected")
    holder = Proc([path_of("cm_holder"), B.ip, 1], where=B.where)
    port = holder.wait_for(r"^listening (\d+)")[1]
    asking = Proc(["rping", "-c", "-a", B.ip, "-p", port, "-C", 1], where=A.where)
    holder.wait_for("^request 1", timeout=30)
    time.sleep(0.3)
    with netem("loss 100%", sites=[B]):
        for proc in (server.proc, visitor, holder):
            proc.kill()
        link_delete(B)
        link_add(B)
        if moment == "before-it-is-back":
            server.start()
    if moment == "at-once":
        server.start()
    back = time.monotonic()
    newcomer = server.client("--rounds", 50, "--connections", 2)
    for client in clients:
        assert client.wait(30) == 2, client.output
    assert asking.wait(30) != 0, asking.output
    assert re.search("REJECTED|CONNECT_ERROR|UNREACHABLE", asking.output), asking.output
    # Who has something under way is told when it repeats that; who only waits asks after 10 s of silence. Nobody has to
    # give up by itself, which takes 40 s, or 30 s for a request that has been answered once.
    assert time.monotonic() - back < 13 * PATIENCE
    newcomer.expect(0, 60)
    own.client("--rounds", 20, site=B).expect(0, 60)
    server.stop()
    own.stop()


DEAF_LISTENER = r"port \d+ is in use: wildcard listener receives nothing here"


@pytest.mark.one_kernel("one listener for both devices")
@pytest.mark.parametrize("last", ["rdma_cm", "usiw"])
@pytest.mark.skipif(bool(PEER), reason="others use rdma_cm, too")
def test_port_of_a_listener_is_taken_where_a_device_is_added(expected, last):
    """rdma_cm repeats its listeners on a new device. One whose port is somebody else's by then costs nobody the
    device, whichever of both was loaded last."""
    if last == "rdma_cm":
        load_rdma_cm_last()
    else:
        run("rmmod", "usiw")
        reload_module()
    expected.messages += [DEAF_LISTENER, r"cma_listen_on_dev, error -98"]
    port = next_port()
    server = Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port]).wait_listening(port)
    for site in (A, B):
        link_delete(site)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as user:
        user.bind(("127.0.0.1", port))
        for site in (A, B):
            link_add(site)
        rping(count=5)
        server.kill()
        late = Proc(["rping", "-s", "-a", "0.0.0.0", "-p", port])
        assert late.wait(20) != 0
        assert "Address already in use" in late.output
    rping(count=5)


def test_link_add_and_delete_again_and_again():
    for i in range(10):
        link_delete(A)
        link_add(A)
        if i % 4 == 0:
            rping(count=2)


@pytest.mark.one_kernel("the module is that of both ends")
@pytest.mark.skipif(bool(PEER), reason="the module of usiw")
def test_module_stays_while_in_use():
    """rmmod with a program running is refused or waits for nobody: never a crash."""
    server = Server()
    client = server.client("--seconds", 60)
    client.wait_for("^connected")
    done = subprocess.run(["rmmod", "usiw"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:  # devices were removed under the programs: make them again
        assert client.wait(30) == 2, client.output
        server.proc.kill()
        reload_module()
    else:
        assert "in use" in done.stderr, done.stderr
        server.end_client(client)
        server.stop()
    rping(count=3)


def reload_module(parameters=()):
    """insmod and both devices."""
    module = f"build/kmod/{os.uname().release}/usiw.ko"
    run("insmod", module, *parameters)
    if not parameters:
        link_add(A)
        link_add(B)


@pytest.mark.core
@pytest.mark.one_kernel("the module is that of both ends")
@pytest.mark.skipif(bool(PEER), reason="the module of usiw")
def test_module_reload():
    """rmmod after everything and insmod again, three times."""
    for _ in range(3):
        rping(count=2)
        for site in (A, B):
            link_delete(site)
        until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, check=False).returncode == 0,
              "rmmod", timeout=15, every=0.3)
        assert "usiw" not in open("/proc/modules", encoding="ascii").read()
        reload_module()
    rping(count=3)


@pytest.mark.one_kernel("the module is that of both ends")
@pytest.mark.skipif(bool(PEER), reason="the module of usiw")
def test_module_unload_with_devices():
    """rmmod removes the devices by itself."""
    rping(count=2)
    until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, check=False).returncode == 0,
          "rmmod with devices", timeout=20, every=0.3)
    assert not rdma_links()
    reload_module()
    rping(count=3)


@pytest.mark.core
@pytest.mark.one_kernel("the module is that of both ends")
@pytest.mark.skipif(bool(PEER), reason="the module of usiw")
@pytest.mark.parametrize("first", ["server", "peers"])
def test_module_unload_behind_a_kill(first):
    """kill -9 of a process with QPs at an SRQ amid the messages of its peers, and of those, and rmmod at once, while
    the kernel ends what they have left: it goes as soon as nobody has a device open."""
    server, peers = srq_pairs("srq_peers", "stream", "stream", "stream", "idle", "idle")
    server.wait_for("^received", timeout=60)
    for proc in [server, *peers]:
        assert proc.status is None, proc.output
    for proc in [server, *peers] if first == "server" else [*peers, server]:
        proc.signal(signal.SIGKILL)
    until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, timeout=60, check=False).returncode == 0,
          "rmmod", timeout=20, every=0)
    assert "usiw" not in open("/proc/modules", encoding="ascii").read()
    assert not rdma_links()
    reload_module()
    rping(count=3)


def test_programs_are_there():
    assert os.access(path_of("traffic"), os.X_OK)
