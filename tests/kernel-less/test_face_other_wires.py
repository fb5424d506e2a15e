# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Datagrams of others at the UDP port of a QP of the RoCE face (docs/face.md): handshakes of rdma_cm, of other versions
and of other QPs, RoCE v2, garbage, and ICMP errors. They come from a port of their own, and with the address and port
of the true peer."""

import contextlib
import random
import socket
import struct

import pytest

import wire
from face_users import User, ends_all, exchange, face
from stats import devices
from support.procs import until

HERE = "127.0.0.1"
INIT, RTR, RTS = "1", "2", "3"
REQ, REJECT = 1, 3
FEATURE_FACE = 0x10000


# ---- Datagrams ----


def ask(src, dst, excess=0):
    """A REQ of the QP `src` to the QP `dst`, whose private data are too short or too long by `excess` bytes."""
    private = struct.pack(">IIII", src, dst, 0, 0) + b"\0" * 4
    return wire.req(features=FEATURE_FACE, pd=private[:16 + excess])


def requests(src, dst):
    """REQs that the QP `dst` has to refuse: of rdma_cm, of other wire versions, of a QP with another port, to a QP with
    another number."""
    return [wire.req(), wire.req(features=3, pd=b"rdma_cm" * 20), wire.req(features=0xffff),
            *(wire.req(version=version, pd=b"x" * 16) for version in (0, 2, 255)),
            ask(src ^ 1, dst), ask(src, dst ^ 0x10000), ask(src, dst, -1), ask(src, dst, 1)]


def roce(dst):
    """RoCE v2: SENDs, a WRITE, a READ request, acknowledgements, a CNP, and a message to the CM of InfiniBand."""
    found = []
    for opcode, qpn, rest in ((0x04, dst, 64), (0x00, dst, 1024), (0x0a, dst, 80), (0x0c, dst, 16), (0x11, dst, 4),
                              (0x81, dst, 16), (0x64, 1, 8 + 256)):
        for psn in (0, 1, 0x123456, 0xffffff):
            for acknowledge in (0, 0x80000000):
                found.append(struct.pack(">BBHII", opcode, 0x40, 0xffff, qpn, acknowledge | psn) + b"\1" * (rest + 4))
    return found


def garbage(src, dst):
    """Parts of REQs, every opcode with every flag, other protocols, and random bytes."""
    chance = random.Random(dst)
    whole = ask(src, dst)
    parts = [whole[:length] for length in range(15)] + [whole[:length] for length in range(16, len(whole))]
    headers = [wire.trp(chance.getrandbits(32), chance.getrandbits(32), opcode, 1 << flag & 0xfff, 1024, 0,
                        chance.randbytes(chance.choice((0, 18, 60, 1200))))
               for opcode in (0, *range(2, 16)) for flag in range(13)]
    others = [b"GET / HTTP/1.0\r\n\r\n", b"", b"\0" * 1472, b"\xff" * 1472]
    noise = [data for data in (chance.randbytes(chance.randrange(1500)) for _ in range(200))
             if len(data) < 10 or data[8] >> 4 != REQ]
    return parts + headers + others + noise


# ---- Senders ----


class Stranger:
    """A UDP socket that asks no QP."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((HERE, 0))
        self._socket.settimeout(0.2)

    def send(self, user, datagrams):
        for data in datagrams:
            self._socket.sendto(data, (HERE, user.port))

    def opcodes_of_answers(self, user, datagrams):
        """Sends REQs. Returns the opcodes of all that has come back since the last call. Only REJECT is right."""
        self.send(user, datagrams)
        found = []
        with contextlib.suppress(TimeoutError):
            while True:
                found.append(self._socket.recv(65536)[8] >> 4)
        assert set(found) <= {REJECT}
        return found

    def close(self):
        self._socket.close()


def forge(peer, user, datagrams):
    """Sends datagrams that seem to come from the QP of the peer."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for data in datagrams:
            raw.sendto(wire.frame((HERE, peer.port), (HERE, user.port), data, link=0), (HERE, 0))


def icmp_errors(peer, user):
    """Sends errors about a datagram that the user has sent to the peer."""
    quoted = wire.frame((HERE, user.port), (HERE, peer.port), wire.req(), link=0)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        # Net, host, protocol and port unreachable, prohibited; time exceeded; parameter problem.
        for kind, code in ((3, 0), (3, 1), (3, 2), (3, 3), (3, 9), (3, 10), (3, 13), (11, 0), (12, 0)):
            for length in (len(quoted), 28):
                message = struct.pack(">BBHI", kind, code, 0, 0) + quoted[:length]
                message += b"\0" * (len(message) % 2)
                total = wire.ones_sum(message)
                raw.sendto(message[:2] + struct.pack(">H", 0xffff - total) + message[4:], (HERE, 0))


def everything(peer, user):
    """All of the datagrams, from a port of their own and from that of the peer. The user answers REQs only."""
    src, dst = int(peer.number), int(user.number)
    stranger = Stranger()
    stranger.send(user, roce(dst) + garbage(src, dst))
    stranger.send(user, [ask(src, dst)])  # its port is not the one of this QP number
    # The queue of the socket may be full for a moment.
    until(lambda: REJECT in stranger.opcodes_of_answers(user, requests(src, dst)), "an answer")
    stranger.close()
    for datagrams in (roce(dst), garbage(src, dst), requests(src, dst)):
        forge(peer, user, datagrams)
    icmp_errors(peer, user)


# ---- Tests ----


@pytest.fixture(params=["socket", "shm"])
def users(usiw_run, request):
    """users(): a process with a QP."""
    with ends_all(lambda: User(face(usiw_run, request.param))) as start:
        yield start


def in_order(users, asks):
    """Returns two users. The first one sends the REQs, or answers."""
    return sorted((users(), users()), key=lambda user: int(user.number), reverse=not asks)


def unchanged(user, state):
    """Nothing has completed, and no byte has arrived."""
    assert user("nothing") == "yes"
    assert user("state") == state
    assert user("sink") == "0"


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "answers"])
def test_before_the_connection(users, asks):
    """In INIT, RTR and RTS."""
    a, b = in_order(users, asks)
    everything(b, a)
    a("init")
    a("recv")
    everything(b, a)
    unchanged(a, INIT)
    a("rtr", b.number, 1)
    everything(b, a)
    unchanged(a, RTR)
    a("rts", 0)
    number = a("send")
    everything(b, a)
    unchanged(a, RTS)
    b("init")
    b("recv")
    everything(a, b)
    b("rtr", a.number, 1)
    b("rts", 0)
    assert b("received") == f"success {number}"
    assert a("sent") == "success"
    number = b("send")
    assert a("received") == f"success {number}"
    assert b("sent") == "success"
    exchange(a, b)


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "answers"])
def test_connected(users, asks):
    """Messages flow before, meanwhile and afterwards. The engine counts what reaches the data socket."""
    a, b = in_order(users, asks)
    a.connect(b)
    b.connect(a)
    exchange(a, b)
    for _ in range(3):
        everything(b, a)
        exchange(a, b)
        everything(a, b)
        exchange(b, a)
    for user in (a, b):
        assert user("nothing") == "yes"
        assert user("state") == RTS


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "answers"])
def test_drops_are_counted(users, asks):
    """`usiw stat` shows datagrams of RoCE v2 to a connected QP: half of them look like DATA. Those of a stranger have
    no connection, and those that seem to come from the peer have the wrong PSN."""
    a, b = in_order(users, asks)
    a.connect(b)
    b.connect(a)
    exchange(a, b)

    def drops():
        device, = devices().values()
        return device["counters"]
    before = drops()
    stranger = Stranger()
    stranger.send(a, roce(int(a.number)))
    forge(b, a, roce(int(a.number)))
    for name in ("drop_no_conn", "drop_window"):
        until(lambda name=name: drops()[name] > before[name], name)
    stranger.close()
    exchange(a, b)


def test_ignored_are_counted(users):
    """`usiw stat` shows datagrams that are no handshake of anybody, in the counters of the QP that owns the port."""
    a = users()
    a("init")
    stranger, datagrams = Stranger(), roce(int(a.number))

    def ignored():
        qp, = [qp for device in devices().values() for qp in device["qps"] if qp["qpn"] == int(a.number)]
        return qp["counters"]["cm_ignored"]
    assert ignored() == 0
    for many in (1, 2):
        stranger.send(a, datagrams)
        until(lambda many=many: ignored() == many * len(datagrams), "all are counted")
    stranger.close()


@pytest.mark.parametrize("users", ["socket"], indirect=True)
def test_rdma_cm(users, usiw_run):
    """Programs of rdma_cm connect to the port of a QP, and are refused."""
    a, b = in_order(users, False)

    def refused():
        started = [usiw_run(["rping", "-c", "-a", HERE, "-p", a.port, "-C", 1], ["--face", name])
                   for name in ("iwarp", "roce")]
        for rping in started:
            assert rping.wait() != 0
            assert "REJECTED" in rping.output, rping.output
    refused()
    a("init")
    refused()
    a("rtr", b.number, 1)
    refused()
    a("rts")
    b.connect(a)
    exchange(a, b)
    refused()
    exchange(a, b)
