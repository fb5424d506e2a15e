# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Peers of the RoCE face that are late, and processes that stand still, for a few seconds (docs/face.md)."""

import subprocess
import time

import pytest

from compiling import compiled
from face_users import ends_all, exchange, face
from face_waits import (FOR_EVER, KINDS, Steady, Stoppable, at_once, crowd_waits, pair_of, stopped,
                        stopped_between_rtr_and_rts, stopped_in_the_handshake, stopped_in_traffic)

#: Longer than the least time after which an end gives up, which is 2 s, and shorter than it.
LONG, SHORT = 3, 0.7
CROWD, LATE = 300, 2
#: How often the client may have nothing outstanding when the server is stopped.
TRIES = 4
GIVEN_UP = "transport retry counter exceeded"


@pytest.fixture
def users(usiw_run):
    """users(kind): a process with a QP."""
    with ends_all(lambda kind: Stoppable(face(usiw_run, kind))) as start:
        yield start


@pytest.mark.parametrize("first_asks", [True, False], ids=["those-that-wait-ask", "those-that-are-late-ask"])
def test_crowd_waits(usiw_run, tmp_path, other_host, first_asks):
    crowd_waits(usiw_run, tmp_path, other_host, CROWD, LATE, first_asks)


def test_stopped_between_rtr_and_rts(users):
    at_once(stopped_between_rtr_and_rts, [users], KINDS, [LONG])


def test_stopped_in_the_handshake(users):
    at_once(stopped_in_the_handshake, [users], KINDS, [LONG])


def test_stopped_in_traffic(usiw_run, tmp_path):
    stopped_in_traffic(usiw_run, tmp_path, LONG)


def test_stopped_for_less_than_the_least_limit(usiw_run, tmp_path):
    """The attributes of perftest mean half a second, but no end gives up before 2 s."""
    stopped_in_traffic(usiw_run, tmp_path, SHORT, timeout=14)


def test_stopped_for_too_long(usiw_run, tmp_path):
    """The client gives up. When the server goes on, its QP gets nothing that is false: it stays as it is, or gives up
    as well. The client sees no change of its memory after its QP has given up."""
    compiled("steady", tmp_path)
    at_once(stopped_for_too_long, [usiw_run], [tmp_path], KINDS)


def stopped_for_too_long(usiw_run, folder, kind):
    for _ in range(TRIES):
        steady = Steady(usiw_run, folder, kind, 14, stdin=subprocess.PIPE)
        with steady.server.stopped():
            time.sleep(LONG)
            given_up = "ended" in steady.client.output
        if given_up:
            break
        steady.end()  # the client had all acknowledgements, so it could not notice
    time.sleep(LONG)  # enough for the server to give up as well
    assert steady.server.status is None, steady.server.output
    for proc in (steady.client, steady.server):
        if "ended" not in proc.output:
            assert proc is steady.server
            proc.kill()
            continue
        assert f"ended: {GIVEN_UP}" in proc.output
        proc.line()
        proc.expect(3)


def test_given_up_connects_again(users):
    """One end gives up while the other one stands still, connects again, and posts. The process that goes on keeps its
    old connection, and gets nothing of the new one, until the program resets its QP."""
    at_once(given_up_connects_again, [users], KINDS, [True, False])


def given_up_connects_again(users, kind, first):
    """The end that gives up is the one that asks, or the one that answers."""
    a, b = pair_of(users, kind) if first else reversed(pair_of(users, kind))
    a.connect(b)
    b.connect(a)
    exchange(a, b)
    b("recv")
    with stopped(b):
        a("send")
        assert a("sent") == GIVEN_UP
        assert a("state") == "6"
        a("reset")
        a("init")
        a("recv")
        a("rtr", b.number, 1)
        a("rts", FOR_EVER)
        a("send")
        assert a("nothing") == "yes"
    # The SEND of the old connection may have arrived while b stood still.
    assert b("arrived") in ("success 2", "nothing")
    assert b("nothing") == "yes"
    assert b("state") == "3"
    assert a("nothing") == "yes"
    b("reset")
    b("init")
    b("recv")
    b("rtr", a.number, 1)
    b("rts")
    assert b("received") == "success 3"
    assert a("sent") == "success"
    b("send")
    assert a("received") == "success 2"
    assert b("sent") == "success"
    exchange(a, b)
