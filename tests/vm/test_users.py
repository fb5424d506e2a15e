# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Ports of two users: what RDMA_OPTION_ID_REUSEADDR and RDMA_OPTION_ID_AFONLY let one take beside the other, and that
nobody gets at another one's listener. With the module and under usiw-run alike."""

import pathlib
import re
import socket
import subprocess

import pytest

from support import watch
from support.cases import PROGRAMS, path_of
from support.net import A, B, NOBODY, devices_for_all
from support.pairs import REST_MS, Server, next_port
from support.procs import Proc

USIW_RUN = str(pathlib.Path(PROGRAMS).parents[1] / "run" / "usiw-run")

ROOT = ""
ONE, OTHER = (NOBODY.replace("65534", uid) for uid in ("1001", "1002"))
#: Who comes first, who comes second.
USERS = {"root-nobody": (ROOT, NOBODY), "nobody-root": (NOBODY, ROOT), "two-users": (ONE, OTHER)}

TAKEN = "(EADDRINUSE|EADDRNOTAVAIL)"  # the latter from rdma_cm where one of both is a wildcard


@pytest.fixture(autouse=True, scope="module")
def rights():
    """None but those of everybody."""
    with devices_for_all():
        yield


@pytest.fixture(params=["module", pytest.param("usiw-run", marks=pytest.mark.provider)])
def world(request):
    """What answers the programs."""
    return request.param


@pytest.fixture
def prefix(world):
    """What to put before a program."""
    return [USIW_RUN] if world == "usiw-run" else []


@pytest.fixture
def user(prefix):
    """user(who, commands of cm_user): a process of that user."""
    def start(who, *commands, site=B):
        return Proc([*prefix, path_of("cm_user"), *commands], where=f"{site.where} {who}", stdin=subprocess.PIPE)
    return start


every_pair = pytest.mark.parametrize("users", USERS.values(), ids=USERS)
two_users = pytest.mark.parametrize("users", [(ONE, OTHER)], ids=["two-users"])


def intrude(user, who, port):
    """Whatever a second user says, it does not get the port."""
    took = []
    for at in (B.ip, "0.0.0.0"):
        took += ["bind", at, port]
    said = user(who, *took, "reuse", *took).expect(0)
    assert len(re.findall(f"^bind {TAKEN}$", said, re.M)) == 4, said


@every_pair
def test_a_listener_has_its_port_alone(user, users):
    """Whatever the other one says, and whatever the listener has said before it listened."""
    first, second = users
    port = next_port()
    listener = user(first, "reuse", "bind", B.ip, port, "listen", "serve", 1)
    listener.wait_for("^listen 0")
    intrude(user, second, port)
    assert "connect 0" in user(second, "connect", B.ip, port, site=A).expect(0)
    listener.expect(0)


#: The answers to a second user whose id is of another port space: at the listener's address to "bind" and "connect",
#: and to "listen" if that user could bind; at all addresses to "bind" and "listen". With the module rdma_cm lets that
#: user bind, because it keeps a table of ports for each space. An id at all addresses listens on the host's other
#: devices only, and for RDMA_PS_IPOIB there is no device of Ethernet. Under usiw-run a process owns its UDP port, which
#: all spaces share; an id that is not bound listens at a port of the system's choice.
SPACES = {
    ("module", "udp"): ("bind 0\nlisten EPROTONOSUPPORT", "bind 0\nlisten 0", "bind 0\nconnect EPROTONOSUPPORT"),
    ("module", "ipoib"): ("bind EINVAL\nlisten 0", "bind 0\nlisten 0",
                          "bind EINVAL\nconnect RDMA_CM_EVENT_ADDR_ERROR"),
    ("usiw-run", "udp"): (f"bind {TAKEN}\nlisten EPROTONOSUPPORT", f"bind {TAKEN}\nlisten EPROTONOSUPPORT",
                          f"bind {TAKEN}\nconnect EPROTONOSUPPORT"),
}
SPACES |= {("module", "ib"): SPACES["module", "udp"],
           **{("usiw-run", space): SPACES["usiw-run", "udp"] for space in ("ib", "ipoib")}}


@two_users
@pytest.mark.parametrize("space", ["udp", "ib", "ipoib"])
def test_a_listener_has_its_port_in_every_port_space(user, users, space, world):
    """In another port space a second user gets no connection of the listener's port, and makes none from there."""
    first, second = users
    port = next_port()
    listener = user(first, "bind", B.ip, port, "listen", "serve", 3)
    listener.wait_for("^listen 0")
    at_address, at_all, connecting = SPACES[world, space]
    for at, outcome in ((B.ip, at_address), ("0.0.0.0", at_all)):
        intruder = user(second, "space", space, "reuse", "bind", at, port, "listen", "wait")
        intruder.wait_for(f"^space 0\nreuse 0\n{outcome}$")
        assert "connect 0" in user(second, "connect", B.ip, port, site=A).expect(0)
        intruder.kill()
    said = user(second, "space", space, "reuse", "bind", B.ip, port, "connect", A.ip, next_port()).expect(0)
    assert re.search(f"^{connecting}$", said, re.M), said
    assert "connect 0" in user(first, "connect", B.ip, port, site=A).expect(0)
    listener.expect(0)


@two_users
def test_both_reuse_the_port(user, users):
    """Both are bound, and nobody listens until the other one has gone; then nobody comes in any more. One side alone
    that says so is not enough."""
    first, second = users
    port = next_port()
    alone = user(first, "bind", B.ip, port, "wait")
    alone.wait_for("^bind 0")
    intrude(user, second, port)
    alone.line()
    alone.expect(0)
    one = user(first, "reuse", "bind", B.ip, port, "wait", "listen", "wait", "listen", "serve", 1)
    one.wait_for("^bind 0")
    other = user(second, "bind", B.ip, port, "reuse", "bind", B.ip, port, "wait", "listen", "wait")
    other.wait_for(f"^bind {TAKEN}\nreuse 0\nbind 0")
    one.line()
    one.wait_for(f"^listen {TAKEN}")
    other.line()
    other.wait_for(f"^listen {TAKEN}")
    other.line()
    other.expect(0)
    one.line()
    one.wait_for("^listen 0")
    intrude(user, second, port)
    assert "connect 0" in user(second, "connect", B.ip, port, site=A).expect(0)
    one.expect(0)


@two_users
def test_both_connect_from_a_shared_port(user, users, world):
    """With the module each to a listener of its own. Under usiw-run no one does while the other one is bound: what
    comes to a UDP port that two users share can be had by either."""
    first, second = users
    ports = next_port(), next_port()
    source = next_port()
    listeners = [user(first, "bind", B.ip, port, "listen", "serve", 1) for port in ports]
    for listener in listeners:
        listener.wait_for("^listen 0")
    one, other = (user(who, "reuse", "bind", A.ip, source, "wait", "connect", B.ip, port, "wait", site=A)
                  for who, port in zip(users, ports))
    one.wait_for("^bind 0")
    other.wait_for("^bind 0")
    one.line()
    if world == "module":
        one.wait_for("^connect 0")
        listeners[0].expect(0)
    else:
        one.wait_for("^connect EADDRINUSE")
        listeners[0].kill()
    one.line()
    one.expect(0)
    other.line()
    other.wait_for("^connect 0")
    listeners[1].expect(0)
    other.line()
    other.expect(0)


@two_users
def test_both_ends_connect_to_each_other(user, users):
    """Two programs connect to each other's port at once, and nobody listens. Both are refused. If each end ignored the
    REQ of the other one, both would be told UNREACHABLE after 6.3 s."""
    ports = {A: next_port(), B: next_port()}
    ends = [user(who, "bind", site.ip, ports[site], "wait", "connect", other.ip, ports[other], site=site)
            for who, site, other in zip(users, (A, B), (B, A))]
    for end in ends:
        end.wait_for("^bind 0")
    for end in ends:
        end.line()
    for end in ends:
        assert "connect RDMA_CM_EVENT_REJECTED" in end.expect(0)


@two_users
@pytest.mark.parametrize("order", [("::", "0.0.0.0"), ("0.0.0.0", "::")], ids=["6-4", "4-6"])
def test_one_port_of_each_family(user, users, order):
    """All IPv6 addresses are one user's, all IPv4 addresses another's, and each gets its own connections."""
    port = next_port()
    listeners = {}
    for who, at in zip(users, order):
        listeners[at] = user(who, *(["afonly"] if at == "::" else []), "bind", at, port, "listen", "serve", 1)
        listeners[at].wait_for("^listen 0")
    for at, to in (("0.0.0.0", B.ip), ("::", B.ip6)):
        assert "connect 0" in user(users[0], "connect", to, port, site=A).expect(0)
        listeners[at].expect(0)


@two_users
def test_both_families_are_taken_by_one(user, users):
    """Without the option IPv4 is not left to others, and not taken from them."""
    for port, (at, beside) in ((next_port(), ("::", "0.0.0.0")), (next_port(), ("0.0.0.0", "::"))):
        listener = user(users[0], "bind", at, port, "listen", "wait")
        listener.wait_for("^listen 0")
        assert re.search(f"^bind {TAKEN}$", user(users[1], "bind", beside, port).expect(0), re.M)
        listener.line()
        listener.expect(0)


#: Tries to have a UDP port at addresses, with each option of SOL_SOCKET; prints what it got. What it gets it keeps
#: until standard input ends.
PLAIN = """import socket, sys
for address in sys.argv[2:]:
    for option in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if option:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            s.bind((address, int(sys.argv[1])))
            print("bound", flush=True)
            sys.stdin.read()
        except OSError:
            print("refused", flush=True)
        s.close()
"""


@every_pair
def test_sockets_of_another_user(user, users):
    """A UDP socket, whatever its options, gets into no listener's port, and no listener takes one where a socket is."""
    first, second = users
    port = next_port()

    def plain(*at):
        return Proc(["/usr/bin/python3", "-c", PLAIN, port, *at], where=f"{B.where} {second}", stdin=subprocess.PIPE)
    listener = user(first, "reuse", "bind", B.ip, port, "listen", "serve", 1)
    listener.wait_for("^listen 0")
    assert plain(B.ip, "0.0.0.0").expect(0).split() == 6 * ["refused"]
    assert "connect 0" in user(second, "connect", B.ip, port, site=A).expect(0)
    listener.expect(0)
    port = next_port()  # the other one is a connection's, which lingers
    squatter = plain("0.0.0.0")
    squatter.wait_for("^bound")
    late = user(first, "bind", B.ip, port, "listen").expect(0)
    # An id that could not be bound listens at a port of the system's choice.
    assert "EADDRINUSE" in late and "bind 0\nlisten 0" not in late, late
    squatter.kill()


#: Tries again and again, until standard input ends, to have the sockets of connections: for each "ADDRESS PORT PEER
#: PORT" binds to the port at the address and at all addresses of each family, without an option and with each set of
#: the options of SOL_SOCKET in the first argument, and connects to the peer. Prints how many sockets it got, and how
#: many datagrams came there.
THIEF = """import errno, itertools, select, socket, sys
options = [[int(option) for option in each.split()] for each in sys.argv[1].split(",")]
tuples = [(a, int(p), b, int(q)) for a, p, b, q in (words.split() for words in sys.argv[2:])]
began, got, received = False, [], 0
while not select.select([sys.stdin], [], [], 0.002)[0]:
    for (here, port, peer, peer_port), chosen in itertools.product(tuples, options):
        for at in (here, "0.0.0.0", "::"):
            s = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, socket.SOCK_DGRAM)
            s.setblocking(False)
            for option in chosen:
                s.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                s.bind((at, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                s.close()
                continue
            s.connect(("::ffff:" + peer if ":" in at else peer, peer_port))
            got.append(s)
    if not began:
        print("began", flush=True)
    began = True
for s in got:
    try:
        while s.recv(1 << 16):
            received += 1
    except OSError:
        pass
print("got", len(got), "received", received)
"""


#: What THIEF tries. Under usiw-run a port has two sockets, which share it by SO_REUSEPORT. The kernel lets every
#: process of the same user join them, so that this option is no test there.
OPTIONS = {"module": ["", socket.SO_REUSEADDR, socket.SO_REUSEPORT, f"{socket.SO_REUSEADDR} {socket.SO_REUSEPORT}"],
           "usiw-run": ["", socket.SO_REUSEADDR]}


def udp_ports():
    """The ports of all UDP sockets of this namespace."""
    return {int(each.split()[1].rpartition(":")[2], 16) for each in watch.sockets() if each.startswith("udp")}


@pytest.mark.core
@pytest.mark.parametrize("who", [NOBODY, ROOT], ids=["nobody", "root"])
def test_sockets_of_the_same_user(world, prefix, who, monkeypatch):
    """A socket of the user whose connections these are gets neither their port, nor the addresses and ports of one of
    them, at either end, whatever its options; also while connections begin. Nothing of their data arrives there, and
    they go on."""
    for name in ("USIW_PORT", "USIW_RUN_PORT"):
        monkeypatch.setenv(name, "socket")
    port = next_port()
    traffic = [*prefix, path_of("traffic")]
    server = Proc([*traffic, "server", "--to", B.ip, "--port", port], where=f"{B.where} {who}")
    server.wait_for("^listening")
    before = udp_ports()
    client = [*traffic, "client", "--from", A.ip, "--to", B.ip, "--port", port, "--size", 20000]
    long_lived = Proc([*client, "--seconds", 300, "--connections", 2, "--pause-ms", REST_MS], where=f"{A.where} {who}")
    long_lived.wait_for("^connected")
    ports = udp_ports() - before
    assert ports
    tuples = {A: [f"{A.ip} {each} {B.ip} {port}" for each in ports],
              B: [f"{B.ip} {port} {A.ip} {each}" for each in ports]}
    options = ",".join(map(str, OPTIONS[world]))
    thieves = [Proc(["/usr/bin/python3", "-c", THIEF, options, *tuples[site]], where=f"{site.where} {who}",
                    stdin=subprocess.PIPE) for site in (A, B)]
    for thief in thieves:
        thief.wait_for("^began")
    Proc([*client, "--rounds", 3, "--connections", 8], where=f"{A.where} {who}").expect(0, 120)
    for thief in thieves:
        thief.line()
        assert re.search("^got 0 received 0$", thief.expect(0), re.M), thief.output
    Server.end_client(long_lived)
    server.signal(15)
    server.expect(0, 30)


@pytest.mark.parametrize("who", [NOBODY, ROOT], ids=["nobody", "root"])
def test_socket_that_shares_its_port(user, who):
    """A UDP socket with SO_REUSEADDR becomes nobody's neighbour either, whatever the listener says."""
    port = next_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind((B.ip, port))
        late = user(who, "reuse", "bind", B.ip, port, "listen").expect(0)
        assert "EADDRINUSE" in late and "bind 0\nlisten 0" not in late, late
