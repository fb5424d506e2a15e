# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Peers of the RoCE face that are late or stand still (docs/face.md). test_face_late.py has the short times, and
programs_face_late.py the long ones."""

import concurrent.futures
import contextlib
import itertools
import os
import re
import signal
import time

from compiling import PROGRAMS, compile_c, compiled
from face_users import User, exchange
from hosts import A4, B4
from support import there
from support.pairs import next_port
from support.procs import Proc, until

FACE = ("--face", "roce")
#: No limit, as an attribute of a QP.
FOR_EVER = 0
#: How long after a command a process is stopped, in seconds: before, in and after the handshake.
MOMENTS = (0, 0.0003, 0.001, 0.003, 0.01, 0.03)


# ---- A crowd that waits ----

#: Starts a program with a library that is preloaded after the one of usiw-run, whose calls it sees.
WITH = ("sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"')
#: Bounds that only a program which spins exceeds: of a processor, and datagrams for each QP in a second.
PROCESSOR_PERCENT, RATE = 60, 2
#: A QP begins with more than a REQ in a second.
FIRST = 5
RESIDENT_MIB = 250
#: To the kernel, about the way to each peer.
QUESTIONS = 15


def crowd_waits(usiw_run, folder, other_host, size, seconds, first_asks):
    """`size` QPs are in RTS, and their peers follow `seconds` later. The end with the smaller address sends the REQs,
    so `first_asks` chooses where the QPs are that wait."""
    here, there = (other_host, B4), ("", A4)
    (late_at, address), (waits_at, _) = (here, there) if first_asks else (there, here)
    port = next_port()
    program = compiled("crowd", folder)
    count = compile_c(folder / "count_questions.so", PROGRAMS / "count_questions.c", "-shared", "-fPIC")

    def start(role, where, *options):
        return Proc([usiw_run.path, *FACE, *WITH, count, program, role, port, size, seconds, *options], where=where)
    late = start("late", late_at).wait_listening(port)
    waits = start("waits", waits_at, address)
    try:
        waits.expect(0, seconds + 120)
        late.expect(0)
    finally:
        print(f"--- those that wait:\n{waits.output}--- those that are late:\n{late.output}")
    check_costs(waits.output, size)
    for proc in (waits, late):
        # The last number is that of the process; its watcher and others print theirs before.
        asked = int(re.findall(r"^netlink sockets: (\d+)", proc.output, re.M)[-1])
        assert size < asked < size * QUESTIONS


def check_costs(output, size):
    """Neither processor nor network is busy while nothing can be done, and memory is bounded."""
    elapsed, percent, sent = map(float, re.search(
        r"^sleeping: (\S+) s, processor (\S+) %, datagrams out (\d+)", output, re.M).groups())
    assert percent < PROCESSOR_PERCENT
    assert sent < size * (RATE * elapsed + FIRST)
    assert int(re.search(r"^connected: resident memory (\d+) MiB", output, re.M)[1]) < RESIDENT_MIB


# ---- Processes that stand still ----

#: How data goes between processes of one host.
KINDS = ("socket", "shm")


def at_once(check, *choices):
    """Calls check() with all combinations, at the same time, because each call spends its time asleep."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for call in [pool.submit(check, *words) for words in itertools.product(*choices)]:
            call.result()


class Stoppable(User):
    """A process of face_user whose commands can be given without a wait for the answer."""

    def begin(self, *words):
        """Sends a command."""
        self._proc.stdin.write(" ".join(map(str, words)) + "\n")
        self._proc.stdin.flush()

    def finish(self):
        """Returns the answer to begin()."""
        answer = self._proc.stdout.readline().strip()
        assert answer and not answer.startswith("failed"), answer
        return answer

    def signal(self, number):
        """Sends a signal to the process."""
        os.kill(self.pid, number)

    def stands_still(self):
        """Returns true if a SIGSTOP has stopped all threads. One that runs on another processor takes a moment."""
        return all(text.rpartition(")")[2].split()[0] == "T" for _, text in there.threads(self.pid, "stat", "") if text)


@contextlib.contextmanager
def stopped(*users):
    """The processes stand still, and go on afterwards."""
    for user in users:
        user.signal(signal.SIGSTOP)
    for user in users:
        until(user.stands_still, "the process stands still")
    try:
        yield
    finally:
        for user in users:
            user.signal(signal.SIGCONT)


def pair_of(users, kind):
    """Two processes, the first of which sends REQ."""
    return sorted((users(kind), users(kind)), key=lambda user: int(user.number))


def stopped_between_rtr_and_rts(users, kind, seconds):
    """The peer connects to it, and its SEND waits. The stopped end of one pair asks, and that of another pair answers.
    """
    asks, answers = pair_of(users, kind), reversed(pair_of(users, kind))
    pairs = [tuple(asks), tuple(answers)]
    for still, peer in pairs:
        for user in (still, peer):
            user("init")
            user("recv")
        still("rtr", peer.number, 1)
    with stopped(*(still for still, _ in pairs)):
        for still, peer in pairs:
            peer("rtr", still.number, 1)
            peer("rts", FOR_EVER)
            peer("send")
        time.sleep(seconds)
        for _, peer in pairs:
            assert peer("nothing") == "yes"
            assert peer("state") == "3"
    for still, peer in pairs:
        assert still("received") == "success 1"
        assert peer("sent") == "success"
        still("rts", FOR_EVER)
        still("send")
        assert peer("received") == "success 1"
        assert still("sent") == "success"
        exchange(still, peer)


def stopped_in_the_handshake(users, kind, seconds):
    """One end of each pair is stopped soon after it has begun to connect, each at another moment."""
    pairs = []
    for number, moment in enumerate(MOMENTS * 2):
        asks, answers = pair_of(users, kind)
        still, peer = (asks, answers) if number < len(MOMENTS) else (answers, asks)
        for user in (still, peer):
            user("init")
            user("recv")
        peer("rtr", still.number, 1)
        peer("rts", FOR_EVER)
        peer("send")
        still.begin("rtr", peer.number, 1)
        time.sleep(moment)
        still.signal(signal.SIGSTOP)
        pairs.append((still, peer))
    time.sleep(seconds)
    for still, _ in pairs:
        still.signal(signal.SIGCONT)
    for still, peer in pairs:
        assert still.finish() == "ok"
        still("rts", FOR_EVER)
        still("send")
        for user in (still, peer):
            assert user("sent") == "success"
            assert user("received") == "success 1"
        exchange(still, peer)


class Steady:
    """A server and a client of the program steady, which is in `folder`, and a connection of theirs that carries data.
    """

    def __init__(self, usiw_run, folder, kind, timeout, **kwargs):
        port = next_port()
        front = [usiw_run.path, *FACE, "--port", kind, folder / "steady", port, timeout]
        self.server = Proc(front, **kwargs).wait_listening(port)
        self.client = Proc([*front, "127.0.0.1"], **kwargs)
        self.client.wait_for("^round 0")

    def end(self):
        """Ends both after a last round, in which all data must be correct."""
        self.client.signal(signal.SIGTERM)
        self.client.expect(0)
        self.server.expect(0)


def stopped_in_traffic(usiw_run, folder, seconds, timeout=FOR_EVER):
    """The server of one pair stands still, and the client of another one. The connections carry data afterwards."""
    compiled("steady", folder)

    def check(kind, which):
        steady = Steady(usiw_run, folder, kind, timeout)
        with getattr(steady, which).stopped():
            time.sleep(seconds)
            assert steady.client.status is None and steady.server.status is None
        steady.end()
    at_once(check, KINDS, ("server", "client"))
