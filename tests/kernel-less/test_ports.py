# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""How data goes on one host: --port socket and shm, alike at both ends or not. (Packets: test_netns.py.)"""

import contextlib
import pathlib
import re
import socket

import pytest

import buffers
from hosts import A4
from support.cases import path_of
from support.pairs import next_port
from support.procs import Proc, until

SERVER_IP = "127.0.0.3"
KINDS = ["socket", "shm", "packet"]
#: Of the server and of the client. On one host packet is what shm is.
BOTH = [("socket", "socket"), ("shm", "shm"), ("socket", "shm"), ("shm", "socket"), ("auto", "packet")]


def named(pair):
    return "-".join(pair)


def shares_memory(proc):
    return "usiw-shm" in pathlib.Path(f"/proc/{proc.pid}/maps").read_text(encoding="ascii")


@pytest.fixture(params=BOTH, ids=named)
def start(usiw_run, request):
    """start(argv for both, for the server, for the client): server and client, running."""
    server_kind, client_kind = request.param

    def both(common, server, client):
        port = next_port()
        s = usiw_run([*common, *server, "-p", port], ["--port", server_kind]).wait_listening(port)
        return s, usiw_run([*common, *client, "-p", port], ["--port", client_kind])
    both.kinds = request.param
    return both


def test_rping(start):
    server, client = start(["rping", "-V", "-C", 30, "-S", 30000], ["-s", "-a", SERVER_IP], ["-c", "-a", SERVER_IP])
    client.expect(0)
    server.expect(0)


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_perftest(start, tool):
    server, client = start([tool, "-R", "-F", "-s", 65536, "-n", 500], [], [SERVER_IP])
    client.expect(0)
    server.expect(0)


def test_several_qps_and_both_directions(start):
    server, client = start(["ib_write_bw", "-R", "-F", "-b", "-q", 4, "-s", 20000, "-n", 200], [], [SERVER_IP])
    client.expect(0)
    server.expect(0)


def test_the_kind_that_was_asked_for_is_used(start):
    """Memory only where both ends allow it."""
    server, client = start(["rping"], ["-s", "-a", SERVER_IP], ["-c", "-a", SERVER_IP, "-C", 100_000_000, "-v"])
    client.wait_for("ping data")
    if "socket" in start.kinds:
        assert not (shares_memory(server) or shares_memory(client))
    else:
        until(lambda: shares_memory(server) and shares_memory(client), "shared memory at both ends")
    client.kill()
    server.kill()


@pytest.mark.parametrize("killed", ["server", "client"])
def test_killed_peer_is_told(start, killed):
    """kill -9: the other end is disconnected, and not by time-outs (status 12)."""
    server, client = start(["rping"], ["-s", "-a", SERVER_IP], ["-c", "-a", SERVER_IP, "-C", 100_000_000, "-v"])
    client.wait_for("ping data")
    gone, left = (server, client) if killed == "server" else (client, server)
    gone.signal(9)
    gone.wait()
    left.wait(30)
    assert "DISCONNECT" in left.output and "status 12" not in left.output


@pytest.mark.parametrize("kind", KINDS)
def test_many_connections(usiw_run, kind):
    port = next_port()
    server = usiw_run(["ucmatose", "-b", SERVER_IP, "-p", port, "-c", 100], ["--port", kind]).wait_listening(port)
    usiw_run(["ucmatose", "-s", SERVER_IP, "-p", port, "-c", 100], ["--port", kind]).expect(0, 120)
    server.expect(0, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_ipv6(usiw_run, kind):
    port = next_port()
    server = usiw_run(["rping", "-s", "-a", "::1", "-V", "-C", 10, "-p", port], ["--port", kind]).wait_listening(port)
    usiw_run(["rping", "-c", "-a", "::1", "-V", "-C", 10, "-p", port], ["--port", kind]).expect(0)
    server.expect(0)


def test_a_name_that_somebody_else_has_taken(usiw_run):
    """Whoever listens at the local socket's name without ever answering costs the memory, not the connection."""
    port = next_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        mapped = "00000000000000000000ffff" + socket.inet_aton(SERVER_IP).hex()
        squatter.bind(f"\0usiw-shm1-{mapped}-{port}")
        squatter.listen(5)
        server = usiw_run(["rping", "-s", "-a", SERVER_IP, "-V", "-C", 10, "-p", port]).wait_listening(port)
        usiw_run(["rping", "-c", "-a", SERVER_IP, "-V", "-C", 10, "-p", port]).expect(0)
        server.expect(0)


def test_packets_need_rights(usiw_run):
    proc = usiw_run(
        ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", usiw_run.path, "--port", "packet", "true"])
    assert proc.wait() == 2
    assert "CAP_NET_RAW" in proc.output


def test_faults_work_on_memory_too(usiw_run):
    options = ["--port", "shm", "--loss", "0.05", "--reorder", "0.05", "--seed", "3"]
    port = next_port()
    server = usiw_run(["rping", "-s", "-a", SERVER_IP, "-V", "-C", 30, "-S", 30000, "-p", port],
                      options).wait_listening(port)
    usiw_run(["rping", "-c", "-a", SERVER_IP, "-V", "-C", 30, "-S", 30000, "-p", port], options).expect(0)
    server.expect(0)


@pytest.fixture
def small_buffers(tmp_path):
    """The environment of a program whose sockets get what Debian's defaults allow a user."""
    return buffers.environment(tmp_path, buffers.SMALL)


def udp_counters():
    """Datagrams that this network namespace has received, and those that a socket had no room for."""
    names, values = re.findall("^Udp: (.*)$", pathlib.Path("/proc/net/snmp").read_text(encoding="ascii"), re.M)
    found = dict(zip(names.split(), map(int, values.split())))
    return found["InDatagrams"], found["RcvbufErrors"]


@pytest.mark.parametrize("qps", [1, 16, 64])
def test_default_socket_buffers_do_not_overflow(usiw_run, small_buffers, other_host, qps):
    """Many connections to one server, which has one socket for all: the server lets each send its share of what the
    socket holds."""
    port = next_port()
    command = ["ib_send_bw", "-R", "-F", "-s", 65536, "-n", 6400 // qps, "-q", qps, "-p", port]
    server = usiw_run(command, ["--port", "socket"], env=small_buffers).wait_listening(port)
    before = udp_counters()
    client = Proc([*other_host.split(), usiw_run.path, "--port", "socket", *command, A4], env=small_buffers)
    client.expect(0, 120)
    server.expect(0)
    got, lost = (now - then for now, then in zip(udp_counters(), before))
    assert got > 1000, "the data went another way"
    assert lost <= 0.05 * (got + lost), f"{lost} of {got + lost} datagrams found the socket full"


def test_chosen_port_is_free_in_both_families(usiw_run):
    """rdma_bind_addr() of :: without a port, where sockets of IPv4 have seven of eight that are free in IPv6."""
    ports = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
    before = ports.read_text(encoding="ascii")
    ports.write_text("40000 40007", encoding="ascii")
    try:
        with contextlib.ExitStack() as taken:
            for port in range(40001, 40008):
                taken.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind(("0.0.0.0", port))
            for _ in range(4):
                assert usiw_run([path_of("cm_user"), "bind", "::", 0, "listen"]).expect(0) == "bind 0\nlisten 0\n"
    finally:
        ports.write_text(before, encoding="ascii")
