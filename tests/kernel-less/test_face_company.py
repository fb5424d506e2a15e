# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""QPs of the RoCE face in bad company (docs/face.md): children of fork(). Each QP belongs to a process of its own."""

import contextlib
import functools
import os
import pathlib
import signal

import pytest

from face_users import User, exchange, face
from hosts import A4, B4
from support.procs import sockets_bound, until

PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


@pytest.fixture
def start(usiw_run):
    """start(options, where, **environment): a process with a QP."""
    started = []

    def begin(options, where="", **env):
        words = [f"{name}={value}" for name, value in env.items()]
        started.append(User([*where.split(), "env", *words, *face(usiw_run, "auto"), *options]))
        return started[-1]
    yield begin
    for user in started:
        user.end()


@pytest.fixture(params=["socket", "shm"])
def users(start, request):
    """users(**environment): a process with a QP, on this host."""
    return functools.partial(start, ["--port", request.param])


def connect(a, b, index=1):
    a.connect(b, index)
    b.connect(a, index)
    exchange(a, b)


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
