# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Processes with a QP each that connects by verbs alone, on the RoCE face (tests/vm/programs/face_user.cc)."""

import contextlib
import select
import signal
import subprocess

from support import cases
from support.procs import PATIENCE

#: Bounds each command, in seconds. The program itself waits up to 120 s for a completion.
HANGS = 150


def face(usiw_run, port):
    """Returns what to put before a program so that it has the face."""
    return [usiw_run.path, "--face", "roce", "--port", port]


class User:
    """A process of the program face_user."""

    def __init__(self, front):
        # pylint: disable=consider-using-with
        self._proc = subprocess.Popen([*front, cases.path_of("face_user")], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.number = self("new")

    def __call__(self, *words):
        """Sends a command. Returns the answer."""
        self._proc.stdin.write(" ".join(map(str, words)) + "\n")
        self._proc.stdin.flush()
        assert select.select([self._proc.stdout], [], [], HANGS * PATIENCE)[0], ("hangs", words)
        answer = self._proc.stdout.readline().strip()
        assert answer and not answer.startswith("failed"), (words, answer)
        return answer

    @property
    def port(self):
        """The UDP port of the QP."""
        return int(self.number) & 0xffff

    @property
    def pid(self):
        return self._proc.pid

    def connect(self, peer, index=1, address=""):
        """INIT, RTR and RTS. The peer has the GID of the address, or of the index."""
        self("init")
        self("rtr", peer.number, index, address)
        self("rts")

    def kill(self):
        """Ends the process in the middle of everything."""
        self._proc.send_signal(signal.SIGKILL)
        self.end()

    def end(self):
        """Ends the process, which destroys its QP."""
        self._proc.stdin.close()
        self._proc.stdout.close()
        self._proc.wait(30)


@contextlib.contextmanager
def ends_all(make):
    """Gives a function with the parameters of `make`, which makes a User. Ends all of these users afterwards."""
    made = []

    def start(*args, **kwargs):
        made.append(make(*args, **kwargs))
        return made[-1]
    yield start
    for user in made:
        user.end()


class Another(User):
    """A second QP of the process of a User."""

    def __init__(self, user):  # pylint: disable=super-init-not-called
        self._user = user
        self.number = self("new")

    def __call__(self, *words):
        return self._user("@second", *words)


def exchange(a, b):
    """A SEND each way."""
    for source, sink in ((a, b), (b, a)):
        sink("recv")
        number = source("send")
        assert source("sent") == "success"
        assert sink("received") == f"success {number}"
