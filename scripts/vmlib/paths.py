# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Where things are, and small helpers around files and commands."""

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import threading
import time

PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = PROJECT / "build"
VM = BUILD / "vm"
LOGS = VM / "log"
OUT = VM / "out"
GUEST_INIT = pathlib.Path(__file__).resolve().parent / "guest"
REMOTE = pathlib.Path(__file__).resolve().parent / "remote"

#: What the guest sees as PATH; also used to find Debian's own programs on the host.
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Erases the terminal's line.
CLEAR = "\033[K"


class HarnessError(Exception):
    """Something in the harness or on the host is not as needed; the message says what and what to do."""


def say(text):
    """One line for the person at the terminal, apart from the command's own output."""
    print(f"{CLEAR if sys.stderr.isatty() else ''}vm: {text}", file=sys.stderr, flush=True)


def ticking(text):
    """Shows the elapsed seconds on a terminal, as scripts/step does; returns a function that ends it."""
    start, ended = time.monotonic(), threading.Event()

    def tick():
        while not ended.wait(1):
            print(f"{CLEAR}vm: {text}: {time.monotonic() - start:.0f} s\r", end="", file=sys.stderr, flush=True)
    thread = threading.Thread(target=tick, daemon=True)
    if not sys.stderr.isatty():
        return ended.set
    thread.start()
    return lambda: (ended.set(), thread.join())


@contextlib.contextmanager
def step(text):
    """A line when a long step starts, and one with its seconds when it ends."""
    start = time.monotonic()
    say(f"{text} ...")
    stop, how = ticking(text), "failed after"
    try:
        yield
        how = "done in"
    finally:
        stop()
        say(f"{text}: {how} {time.monotonic() - start:.0f} s")


def run(*argv, **options):
    """Runs a host command with Debian's programs and returns its standard output; HarnessError if it fails."""
    environment = dict(os.environ, PATH=STANDARD_PATH, LC_ALL="C")
    done = subprocess.run([str(arg) for arg in argv], env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)
    if done.returncode:
        raise HarnessError(f"{argv[0]} failed with status {done.returncode}: {' '.join(map(str, argv))}\n"
                           f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def locked(path, waiting=None):
    """Holds a file lock; prints `waiting` once if somebody else has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                say(waiting)
            stop = ticking(waiting or "waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
            stop()
        yield


def write_atomically(path, data):
    """Writes bytes so that a reader sees the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.rename(path)
