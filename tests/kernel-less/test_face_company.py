# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""QPs of the RoCE face in bad company (docs/face.md): others that take the port of a QP or claim its peer, children of
fork(), addresses that go, peers that do not exist or are killed. Most QPs belong to a process of their own."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import time

import pytest

from face_users import Another, User, ends_all, exchange, face
from hosts import A4, A6, B4
from support.procs import Proc, run, sockets_bound, until

PROGRAMS = pathlib.Path(__file__).parent / "programs"
#: For a process whose SENDs are to fail. Others keep the default, so that a busy machine does not end their SENDs.
SOON = {"USIW_RETRY_TIME": 2}
FAILED, FLUSHED = "transport retry counter exceeded", "Work Request Flushed Error"
INIT, ERROR = "1", "6"
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


@pytest.fixture
def start(usiw_run):
    """start(options, where, **environment): a process with a QP."""
    def make(options, where="", **env):
        words = [f"{name}={value}" for name, value in env.items()]
        return User([*where.split(), "env", *words, *face(usiw_run, "auto"), *options])
    with ends_all(make) as begin:
        yield begin


@pytest.fixture(params=["socket", "shm"])
def users(start, request):
    """users(**environment): a process with a QP, on this host."""
    return functools.partial(start, ["--port", request.param])


def in_order(users, asks):
    """Returns two users of this host. The first one sends the REQs (its QP number is the smaller one), or answers."""
    a, b = users(**SOON), users(**SOON)
    return (a, b) if (int(a.number) < int(b.number)) == asks else (b, a)


def connect(a, b, index=1):
    a.connect(b, index)
    b.connect(a, index)
    exchange(a, b)


def all_fail(users_left):
    """Each posts a SEND that cannot arrive, and a receive. Its QP ends in ERR, and is then reset."""
    for user in users_left:
        user("recv")
        user("send")
    for user in users_left:
        assert user("sent") == FAILED
        assert user("received").startswith(FLUSHED)
        assert user("state") == ERROR
        user("reset")


# ---- Others who take the port of a QP ----


class Stranger:
    """A process of programs/stranger.py, which has a UDP port."""

    def __init__(self, front, port, how):
        self._proc = Proc([*front, "/usr/bin/python3", PROGRAMS / "stranger.py", port, how], stdin=subprocess.PIPE)
        self._proc.wait_for("^bound")
        self._asked = 0

    def received(self):
        """The number of datagrams that it has received."""
        self._proc.line()
        self._asked += 1
        self._proc.wait_for(rf"(?s)(datagrams: \d+.*){{{self._asked}}}")
        return int(self._proc.output.split()[-1])

    def wait_until_quiet(self):
        """Waits until nothing arrives, which would never be if two ends answered each other's answers."""
        def quiet():
            before = self.received()
            time.sleep(0.1)
            return self.received() == before
        until(quiet, "nothing arrives")

    def end(self):
        assert self._proc.status is None
        self._proc.kill()


@contextlib.contextmanager
def next_qp_at(port):
    """QPs that are created meanwhile get this UDP port."""
    path = pathlib.Path(PORT_RANGE)
    before = path.read_text(encoding="ascii")
    path.write_text(f"{port} {port}", encoding="ascii")
    try:
        yield
    finally:
        path.write_text(before, encoding="ascii")


def new_owner(users, user):
    """Returns a process whose QP has the port of a QP that is gone, and another number."""
    until(lambda: sockets_bound(user.port) == 0, "the port is free")
    while True:
        with next_qp_at(user.port):
            owner = users()
        assert owner.port == user.port
        if owner.number != user.number:
            return owner
        owner.end()


def left_alone(users):
    """Returns pairs of users, of which the second one has ended: one pair for each role, connected before or not yet.
    The unconnected pairs are returned in the second list, too."""
    pairs, unconnected = [], []
    for asks in (True, False):
        for connected in (True, False):
            a, b = in_order(users, asks)
            if connected:
                connect(a, b)
            else:
                unconnected.append((a, b))
            b.kill()
            pairs.append((a, b))
    return pairs, unconnected


def test_ordinary_socket_takes_the_port(users, usiw_run):
    """The peer's process has ended, and a process that knows nothing of usiw has its UDP port."""
    left, strangers = [], []
    for how, front in (("silent", []), ("garbage", [usiw_run.path]), ("echo", [])):
        pairs, unconnected = left_alone(users)
        strangers += [Stranger(front, gone.port, how) for _, gone in pairs]
        for user, gone in unconnected:
            user.connect(gone)
        left += [user for user, _ in pairs]
    all_fail(left)
    assert sum(stranger.received() for stranger in strangers) > 0
    for stranger in strangers:
        stranger.wait_until_quiet()
        stranger.end()
    for a, b in zip(left[::2], left[1::2]):
        connect(a, b)


def test_other_qp_takes_the_port(users):
    """The new owner of the port is a QP. It has receives, and it names the old owner's peer as its own, or itself."""
    met = []
    for claims in (True, False):
        pairs, unconnected = left_alone(users)
        for user, gone in pairs:
            owner = new_owner(users, gone)
            owner("init")
            owner("recv")
            owner("rtr", user.number if claims else owner.number, 1)
            met.append((user, owner))
        for user, gone in unconnected:
            user.connect(gone)
    all_fail([user for user, _ in met])
    for user, owner in met:
        assert owner("nothing") == "yes"
        assert owner("sink") == "0"
        # Nothing of the old connection is in the way of a new one between the two.
        owner("reset")
        connect(user, owner)


# ---- Others who claim a peer ----


def claim(claimant, victim, *path):
    """Connects to the victim, which has another peer. The SEND is to fail, and no byte may come."""
    claimant.connect(victim, *path)
    claimant("recv")
    claimant("send")


def expect_nothing(claimants):
    for claimant in claimants:
        assert claimant("sent") == FAILED
        assert claimant("sink") == "0"


@pytest.mark.parametrize("answers", [True, False], ids=["answers", "asks"])
def test_claimants_of_a_peer(users, answers):
    """QPs of other processes name the victim as their peer, before it is in RTR and while it is connected. The peer
    that the victim names gets it. If the victim has the greatest number, it gets REQs from all of them."""
    others = sorted((users(**SOON) for _ in range(6)), key=lambda user: int(user.number))
    victim = others.pop(-1 if answers else 0)
    peer, *claimants = others
    early, late = claimants[::2], claimants[1::2]
    for claimant in early:
        claim(claimant, victim)
    victim.connect(peer)
    peer.connect(victim)
    exchange(victim, peer)
    for claimant in late:
        claim(claimant, victim)
    exchange(peer, victim)
    expect_nothing(claimants)
    exchange(victim, peer)
    # A claimant gets the victim when the victim names it.
    victim("reset")
    early[0]("reset")
    connect(victim, early[0])


@pytest.mark.parametrize("port", ["socket", "auto"])
def test_claimants_on_two_hosts(start, other_host, port):
    """The victim and its peer are on two hosts, and each host has a claimant, too."""
    for victim_at, peer_at, address, peers in ((other_host, "", B4, A4), ("", other_host, A4, B4)):
        def at(where, **env):
            own = B4 if where else A4
            user = start(["--port", port, "--address", own], where, **env)
            return user, user("index", own)
        victim, index = at(victim_at)
        claimants = [at(victim_at, **SOON), at(peer_at, **SOON)]
        for claimant, own in claimants:
            claim(claimant, victim, own, address)
        peer, peers_index = at(peer_at)
        peer.connect(victim, peers_index, address)
        victim.connect(peer, index, peers)
        exchange(peer, victim)
        expect_nothing(claimant for claimant, _ in claimants)
        exchange(victim, peer)


# ---- fork() ----


@contextlib.contextmanager
def child_of(user, how):
    """A child of the process, as face_user's command "fork" makes it. Killed at the end."""
    pid = int(user("fork", how))
    try:
        yield pid
    finally:
        if how not in ENDED:
            os.kill(pid, signal.SIGKILL)


#: Children that have ended when the command returns.
ENDED = ["exits", "destroys"]
CHILDREN = [*ENDED, "closes", "stays", "execs"]


@pytest.mark.parametrize("how, safe", [*((how, False) for how in CHILDREN), ("stays", True)])
def test_fork(users, how, safe):
    """The parent's traffic goes on, and its QP can be reset and connected again, while the child lives and after its
    end. With and without ibv_fork_init(), which the variable stands for."""
    a, b = (users(**({"RDMAV_FORK_SAFE": 1} if safe else {})) for _ in range(2))
    connect(a, b)
    b("recv")
    children = contextlib.ExitStack()
    with children:
        children.enter_context(child_of(a, how))
        number = a("send")
        assert a("sent") == "success"
        assert b("received") == f"success {number}"
        exchange(a, b)
        children.enter_context(child_of(b, how))
        exchange(a, b)
        for user in (a, b):
            user("reset")
        connect(b, a)
        c = users()
        a("reset")
        connect(a, c)
        exchange(a, c)
    exchange(c, a)
    b("reset")
    c("reset")
    connect(b, c)
    a("destroy")
    assert sockets_bound(a.port) == 0


def test_fork_on_two_hosts(start, other_host):
    """As test_fork with raw packets, and a child of each end that lives."""
    a, b = start(["--address", A4]), start(["--address", B4], other_host)
    indexes = a("index", A4), b("index", B4)
    with contextlib.ExitStack() as children:
        for _ in range(2):
            a.connect(b, indexes[0], B4)
            b.connect(a, indexes[1], A4)
            exchange(a, b)
            for user in (a, b):
                children.enter_context(child_of(user, "stays"))
            exchange(a, b)
            for user in (a, b):
                user("reset")


@pytest.mark.parametrize("how", CHILDREN)
def test_port_of_a_parent_that_has_forked(users, how):
    """A child has no socket of its parent's QP. So the port is free when the parent has destroyed the QP, whatever the
    child does."""
    a, b = users(), users()
    connect(a, b)
    with child_of(a, how):
        a("destroy")
        assert sockets_bound(a.port) == 0
        owner = new_owner(users, a)
        c = users()
        connect(owner, c)
        exchange(owner, c)


# ---- Addresses that go away ----


class Host:
    """One of two hosts. Its device has an address that stays, and one that the test removes and adds again."""

    def __init__(self, start, port, where, device, stays, goes):
        # pylint: disable=too-many-arguments,too-many-positional-arguments
        self._start, self._port, self._where, self._device = start, port, where, device
        self.stays, (self.goes, self._length) = stays, goes.split("/")

    def user(self, **env):
        return self._start(["--port", self._port, "--address", self.stays], self._where, **env)

    def add(self):
        nodad = ["nodad"] if ":" in self.goes else []
        self._addr("replace", *nodad)

    def remove(self):
        self._addr("del")

    def _addr(self, command, *options):
        run("ip", "addr", command, f"{self.goes}/{self._length}", "dev", self._device, *options, where=self._where)


#: Addresses of va and of vb. The QP with the smaller address sends the REQs.
GOES = {"ipv4": ("10.78.0.1/24", "10.78.0.2/24"), "ipv6": ("fd78::1/64", "fd78::2/64")}
#: The kind of port, the family, and the part that the QP has whose address goes.
SOCKETS = [("socket", "ipv4", "asks"), ("socket", "ipv6", "answers")]
EACH_PORT = [*SOCKETS, ("auto", "ipv4", "answers"), ("auto", "ipv6", "asks")]


@pytest.fixture
def hosts_that_change(start, other_host, request):
    """Two hosts. The test removes the address of the first one."""
    port, family, role = request.param
    asks = Host(start, port, "", "va", A4, GOES[family][0])
    answers = Host(start, port, other_host, "vb", B4, GOES[family][1])
    for host in (asks, answers):
        host.add()
    yield (asks, answers) if role == "asks" else (answers, asks)
    for host in (asks, answers):
        host.add()  # in case the test has failed while the address was away
        host.remove()


def with_hosts(params):
    return pytest.mark.parametrize("hosts_that_change", params, indirect=True, ids="-".join)


def wait_until_gone(user, address):
    until(lambda: user("index", address) == "none", "the GID is gone")


def meet(a, at_a, peer, at_peer):
    """Moves the QP of a to RTS. Its peer may be in any state."""
    until(lambda: a("index", at_a) != "none", "the address is in the table")
    a.connect(peer, a("index", at_a), at_peer)


def meet_both(a, at_a, b, at_b):
    meet(a, at_a, b, at_b)
    meet(b, at_b, a, at_a)
    exchange(a, b)


def end_or_arrive(a, b):
    """Each posts a SEND while an address is away. It fails, or it arrives by raw packets, which need no address."""
    for user in (a, b):
        user("recv")
    numbers = [user("send") for user in (a, b)]
    for sender, receiver, number in ((a, b, numbers[0]), (b, a, numbers[1])):
        status = sender("sent")
        assert status in ("success", FAILED, FLUSHED)
        if status == "success":
            assert receiver("received") == f"success {number}"


@with_hosts(EACH_PORT)
def test_address_goes(hosts_that_change):
    """The SENDs of both ends complete, and QPs of the same processes with other addresses continue. When the address is
    back, both QPs connect again."""
    first, second = hosts_that_change
    a, b = (host.user(**SOON) for host in hosts_that_change)
    c, d = Another(a), Another(b)
    meet_both(a, first.goes, b, second.goes)
    meet_both(c, first.stays, d, second.stays)
    first.remove()
    wait_until_gone(a, first.goes)
    exchange(c, d)
    end_or_arrive(a, b)
    exchange(d, c)
    first.add()
    a("reset")
    b("reset")
    meet_both(a, first.goes, b, second.goes)
    exchange(c, d)


@with_hosts(EACH_PORT)
def test_address_comes_back(hosts_that_change):
    """SENDs of both ends arrive if the address is back before their time is over."""
    first, second = hosts_that_change
    a, b = (host.user(USIW_RETRY_TIME=100) for host in hosts_that_change)
    meet_both(a, first.goes, b, second.goes)
    for user in (a, b):
        user("recv")
    first.remove()
    numbers = [user("send") for user in (a, b)]
    wait_until_gone(a, first.goes)
    time.sleep(0.3)  # for transmissions that cannot arrive
    first.add()
    for user, number in ((a, numbers[1]), (b, numbers[0])):
        assert user("sent") == "success"
        assert user("received") == f"success {number}"
    exchange(a, b)


@pytest.mark.parametrize("early_one", ["goes", "stays"])
@with_hosts(SOCKETS)
def test_address_comes_back_before_the_connection(hosts_that_change, early_one):
    """One end is in RTS when the address goes. The other end is in RTS when the address is back."""
    first, second = hosts_that_change
    early, late = (first, second) if early_one == "goes" else (second, first)
    a, b = (host.user(USIW_RETRY_TIME=100) for host in (early, late))
    meet(a, early.goes, b, late.goes)
    a("recv")
    number = a("send")
    first.remove()
    wait_until_gone(a if early is first else b, first.goes)
    if late is second:
        # Only this end has its address, so only this end can be moved to RTR.
        meet(b, late.goes, a, early.goes)
        b("recv")
    time.sleep(0.2)  # for REQs that cannot arrive
    first.add()
    if late is first:
        meet(b, late.goes, a, early.goes)
        b("recv")
    assert a("sent") == "success"
    assert b("received") == f"success {number}"
    back = b("send")
    assert b("sent") == "success"
    assert a("received") == f"success {back}"


@with_hosts(SOCKETS)
def test_address_goes_before_the_connection(hosts_that_change):
    """The SENDs fail. After RESET the QPs connect by other addresses."""
    first, second = hosts_that_change
    a, b = (host.user(**SOON) for host in hosts_that_change)
    meet(a, first.goes, b, second.goes)
    first.remove()
    wait_until_gone(a, first.goes)
    meet(b, second.goes, a, first.goes)
    all_fail([a, b])
    meet_both(a, first.stays, b, second.stays)


@with_hosts(EACH_PORT)
def test_address_goes_in_init(hosts_that_change):
    """RTR refuses the index, which is empty then. The QP stays in INIT, and can use the address when it is back."""
    first, second = hosts_that_change
    a, b = (host.user() for host in hosts_that_change)
    index = a("index", first.goes)
    a("init")
    first.remove()
    wait_until_gone(a, first.goes)
    assert a("try", b.number, index, second.goes) == "Invalid argument"
    assert a("state") == INIT
    first.add()
    index = until(lambda: a("index", first.goes).replace("none", ""), "the GID is back")
    meet(b, second.goes, a, first.goes)
    a("rtr", b.number, index, second.goes)
    a("rts")
    exchange(a, b)


# ---- Peers that do not exist ----


def test_numbers_that_no_qp_has(users):
    """The port of the number is free or that of another QP. The SENDs fail, and that QP is not disturbed."""
    owner, peer = users(), users()
    connect(owner, peer)
    own = int(owner.number)
    numbers = [1, 0xffff, 0xffffff, owner.port, own ^ 0x10000, 0xff0000 | owner.port]
    left = [users(**SOON) for _ in numbers]
    for user, number in zip(left, numbers):
        user("init")
        assert user("try", 0, 1) == user("try", 0x10000, 1) == "Invalid argument"
        user("rtr", number, 1)
        user("rts")
    all_fail(left)
    exchange(owner, peer)
    owner("reset")
    connect(owner, left[0])


@pytest.mark.parametrize("port", ["socket", "auto"])
def test_addresses_that_no_host_has(start, other_host, port):
    """RTR refuses the broadcast address of a network, and reports what routes prohibit. SENDs to all other addresses
    fail. The address whose host part is 0 is a broadcast address on kernels before 5.14."""
    def at_a():
        return start(["--port", port, "--address", A4], **SOON)
    a, b = at_a(), start(["--port", port, "--address", B4], other_host, **SOON)
    index = a("index", A4)
    a("init")
    assert a("try", b.number, index, "10.77.0.255") == "Invalid argument"
    run("ip", "route", "add", "prohibit", "203.0.113.0/24")
    result = a("try", b.number, index, "203.0.113.1")
    run("ip", "route", "del", "prohibit", "203.0.113.0/24")
    assert result == "Permission denied"
    left = []
    for own, address in ((A4, "10.77.0.0"), (A4, "10.77.0.99"), (A6, "fd77::"), (A6, "fd77::99")):
        user = at_a()
        user("init")
        result = user("try", b.number, user("index", own), address)
        if address == "10.77.0.0" and result == "Invalid argument":
            continue
        assert result == "Success"
        user("rts")
        left.append(user)
    all_fail(left)
    meet_both(left[0], A4, b, B4)


@contextlib.contextmanager
def networks(where, *addresses):
    """The device of a host has these addresses meanwhile."""
    device = "vb" if where else "va"
    with contextlib.ExitStack() as added:
        for address in addresses:
            run("ip", "addr", "add", address, "dev", device, "broadcast", "+", where=where)
            added.callback(run, "ip", "addr", "del", address, "dev", device, where=where)
        yield


@pytest.mark.parametrize("port", ["socket", "auto"])
def test_address_becomes_a_broadcast_address(start, other_host, port):
    """A host gets other networks, in which the addresses of its peers are the broadcast addresses. No broadcast leaves
    the host."""
    own, nobody, peer = "10.78.0.1", "10.78.1.255", "10.78.2.255"
    a, alone = (start(["--port", port, "--address", A4], **SOON) for _ in range(2))
    b, gone = (start(["--port", port, "--address", B4], other_host, **SOON) for _ in range(2))
    with networks("", f"{own}/16"), networks(other_host, f"{peer}/16", "10.78.1.2/24"):
        meet_both(a, own, b, peer)
        meet(alone, own, gone, nobody)
        gone.kill()
        stranger = Stranger(other_host.split(), gone.port, "silent")
        with networks("", "10.78.1.1/24", "10.78.2.1/24"):
            alone("send")
            end_or_arrive(a, b)
            all_fail([alone])
        received = stranger.received()
        stranger.end()
        assert received == 0
        for user in (a, b):
            user("reset")
        meet_both(a, own, b, peer)


# ---- Peers that are killed ----


def same_number(users, gone):
    """Returns a new process whose QP has the number of a QP that is gone."""
    until(lambda: sockets_bound(gone.port) == 0, "the port is free")
    with next_qp_at(gone.port):
        user = users()
        while user.number != gone.number:
            user("destroy")
            user.number = user("new")
    return user


#: The states of a peer that is not connected when it is killed, and of the QP that has it as its peer.
ALONE = [("reset", "rts"), ("init", "rts"), ("rtr", "init"), ("rts", "init")]
#: The states of a peer that is connected.
TOGETHER = ["rtr", "rts", "sqd", "err"]


def move(user, peer, state):
    for step in {"reset": [], "init": ["init"], "rtr": ["init", "rtr"], "rts": ["init", "rtr", "rts"]}[state]:
        user(step, *([peer.number, 1] if step == "rtr" else []))


def alone(a, b, of_a, of_b):
    move(a, b, of_a)
    move(b, a, of_b)
    a("recv")


def together(a, b, of_b):
    move(a, b, "rts")
    if of_b == "rtr":
        b("init")
        b("recv")
        a("send")
        b("rtr", a.number, 1)
        assert a("sent") == "success"
    else:
        move(b, a, "rts")
        exchange(a, b)
    a("recv")
    if of_b in ("sqd", "err"):
        b(of_b)


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "answers"])
def test_peer_is_killed_and_comes_back(users, asks):
    """In each state of the peer. The QP is not disturbed by that, nor by a new peer with the same number. If it was not
    connected, the new peer gets it. Otherwise its next SEND fails, and it can then be connected to the new peer."""
    unconnected, connected = ([in_order(users, asks) for _ in states] for states in (ALONE, TOGETHER))
    for (a, b), (of_b, of_a) in zip(unconnected, ALONE):
        alone(a, b, of_a, of_b)
    for (a, b), of_b in zip(connected, TOGETHER):
        together(a, b, of_b)
    pairs = [*unconnected, *connected]
    states = [a("state") for a, _ in pairs]
    for _, b in pairs:
        b.kill()
    peers = [same_number(users, b) for _, b in pairs]
    for (a, _), peer in zip(pairs[len(ALONE):], peers[len(ALONE):]):
        peer("init")
        peer("recv")
        peer("rtr", a.number, 1)
        peer("rts")
    for i, (a, _) in enumerate(pairs):
        assert a("nothing", 1 if i else 300) == "yes"
    assert [a("state") for a, _ in pairs] == states
    for (a, b), (_, of_a), peer in zip(unconnected, ALONE, peers):
        peer("init")
        peer("recv")
        if of_a == "init":
            a("rtr", b.number, 1)
            a("rts")
        number = a("send")
        peer("rtr", a.number, 1)
        peer("rts")
        assert a("sent") == "success"
        assert peer("received") == f"success {number}"
        number = peer("send")
        assert a("received") == f"success {number}"
    all_fail([a for a, _ in connected])
    for (a, b), peer in zip(connected, peers[len(ALONE):]):
        assert peer("nothing", 1) == "yes"
        move(a, b, "rts")
        exchange(a, peer)
