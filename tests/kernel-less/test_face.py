# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The RoCE face (docs/face.md): QPs that connect by verbs alone, of one process and of two."""

import itertools
import select
import subprocess

import pytest

from face_users import User, ends_all, exchange, face
from support import cases
from support.pairs import next_port
from support.procs import run

#: Addresses of lo that are not loopback addresses.
FACE_IPV4, FACE_IPV6 = "192.0.2.77", "fd00:77::1"
#: Indexes in the GID table of lo: the link-local GID, which is made up, and 127.0.0.1.
INDEXES = [0, 1]


@pytest.fixture(scope="module", autouse=True)
def addresses():
    """Gives lo its other addresses."""
    run("ip", "addr", "add", f"{FACE_IPV4}/32", "dev", "lo")
    run("ip", "addr", "add", f"{FACE_IPV6}/128", "dev", "lo", "nodad")
    yield
    run("ip", "addr", "del", f"{FACE_IPV4}/32", "dev", "lo")
    run("ip", "addr", "del", f"{FACE_IPV6}/128", "dev", "lo")


# ---- Two QPs of one process ----

_results = {}


@pytest.mark.parametrize("port", ["socket", "shm"])
@pytest.mark.parametrize("case", cases.list_cases("face_cases"), ids=lambda case: case.name)
def test_verbs(case, port, usiw_run):
    """All cases of the program in one process."""
    if (case.name, port) not in _results:
        env = {"FACE_IPV4": FACE_IPV4, "FACE_IPV6": FACE_IPV6}
        found = cases.run_cases("face_cases", cases.list_cases("face_cases"), env, face(usiw_run, port))
        _results.update({(name, port): result for name, result in found.items()})
    result = _results[case.name, port]
    if not result.passed:
        pytest.fail(result.text, pytrace=False)


# ---- Two processes ----


@pytest.fixture(params=["socket", "shm"])
def users(usiw_run, request):
    """users(): a process with a QP."""
    with ends_all(lambda: User(face(usiw_run, request.param))) as start:
        yield start


@pytest.mark.parametrize("index", INDEXES)
def test_each_order(users, index):
    a, b = users(), users()
    for order in sorted(set(itertools.permutations("AABB"))):
        moved = {"A": 0, "B": 0}
        for letter in order:
            one, other = (a, b) if letter == "A" else (b, a)
            if moved[letter] == 0:
                one("init")
                one("rtr", other.number, index)
            else:
                one("rts")
            moved[letter] += 1
        exchange(a, b)
        a("reset")
        b("reset")


def test_send_waits_for_the_peer(users):
    a, b = users(), users()
    for one, other in ((a, b), (b, a)):
        one.connect(other)
        one("send")
        assert one("nothing") == "yes"
        other("init")
        other("recv")
        other("rtr", one.number, 1)
        assert other("received").startswith("success ")
        assert one("sent") == "success"
        other("rts")
        exchange(a, b)
        a("reset")
        b("reset")


@pytest.mark.parametrize("how", ["killed", "ended", "reset", "new"])
def test_peer_that_goes(users, how):
    """The end of the peer is not noticed. The QP can then be connected to that of another process."""
    a, b = users(), users()
    a.connect(b)
    b.connect(a)
    exchange(a, b)
    a("recv")
    if how == "killed":
        b.kill()
    elif how == "ended":
        b.end()
    else:
        b(how)
    assert a("nothing") == "yes"
    assert a("state") == "3"
    c = users()
    a("reset")
    c.connect(a)
    a.connect(c)
    exchange(a, c)


@pytest.mark.parametrize("first", ["a", "b"])
def test_reset_one_end_first(users, first):
    """The connection of the other end stays until that end is reset, too. Nothing of the new one arrives before."""
    a, b = users(), users()
    one, other = (a, b) if first == "a" else (b, a)
    a.connect(b)
    b.connect(a)
    exchange(a, b)
    for _ in range(3):
        other("recv")
        one("reset")
        one.connect(other)
        one("send")
        assert one("nothing") == "yes"
        assert other("nothing") == "yes"
        assert other("state") == "3"
        other("reset")
        other("init")
        other("recv")
        other("rtr", one.number, 1)
        other("rts")
        assert other("received").startswith("success ")
        assert one("sent") == "success"
        exchange(a, b)


def test_hint_if_no_qp_has_the_number(usiw_run):
    """ICMP messages reach the connection of the QP."""
    with subprocess.Popen([*face(usiw_run, "socket"), cases.path_of("face_user")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proc:
        proc.stdin.write(f"new\ninit\nrtr {254 << 16 | 65535} 1\n")  # the largest number, so this end asks
        proc.stdin.flush()
        select.select([proc.stderr], [], [], 60)
        assert proc.communicate()[1].count("the host has no such QP (ICMP port unreachable)") == 1


@pytest.mark.parametrize("end", ["asks", "answers"])
def test_no_descriptor_for_the_data(usiw_run, end):
    """The engine cannot have the connection. All posted work is flushed, and the program gets an event."""
    asks, answers = sorted((User(face(usiw_run, "socket")) for _ in range(2)), key=lambda user: int(user.number))
    one, other = (asks, answers) if end == "asks" else (answers, asks)
    one("init")
    one("recv")
    one("rtr", other.number, 1)
    one("rts")
    one("full")
    other.connect(one)
    assert one("event") == "local work queue catastrophic error"
    assert one("received").startswith("Work Request Flushed Error")
    assert one("state") == "6"
    one("send")
    assert one("sent") == "Work Request Flushed Error"
    for user in (asks, answers):
        user.end()


def test_another_process_takes_over(users):
    """A connection moves from peer to peer, each in a process of its own."""
    a = users()
    peers = [users() for _ in range(3)]
    for peer in peers:
        peer.connect(a)
    for peer in [*peers, peers[0]]:
        a.connect(peer)
        if peer("state") == "6":
            peer("reset")
            peer.connect(a)
        exchange(a, peer)
        peer("err")
        a("reset")


# ---- Unmodified programs ----


@pytest.mark.parametrize("port", ["socket", "shm"])
@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("argv", [["ibv_rc_pingpong", "-c"], ["ibv_rc_pingpong", "-c", "-e"],
                                  ["ibv_srq_pingpong"]], ids=" ".join)
def test_pingpong(usiw_run, argv, index, port):
    options = ["--face", "roce", "--port", port]
    tcp = next_port()
    argv = [*argv, "-g", index, "-p", tcp]
    server = usiw_run(argv, options).wait_listening(tcp)
    usiw_run([*argv, "127.0.0.1"], options).expect(0)
    server.expect(0)


@pytest.mark.parametrize("tool", ["ib_send_lat", "ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_lat"])
def test_perftest(usiw_run, tool):
    """perftest without -R."""
    options = ["--face", "roce"]
    tcp = next_port()
    argv = [tool, "-F", "-x", 1, "-n", 200, "-p", tcp, *([] if "atomic" in tool else ["-s", 30000])]
    server = usiw_run(argv, options).wait_listening(tcp)
    usiw_run([*argv, "127.0.0.1"], options).expect(0)
    server.expect(0)
