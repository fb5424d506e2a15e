# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is in /proc of the host of an end: this one, or the second guest of the topology hosts.

There a process is started by B_EXEC, whose own process is only its stub here (scripts/vmlib/remote), and questions
about it are answered by one shell over there, as each start of a program takes 0.1 s.
"""

import contextlib
import glob
import os
import re
import select
import shlex
import subprocess
import time

STUB = os.environ.get("B_EXEC", "") if os.environ.get("TOPOLOGY") == "hosts" else ""


def is_remote(where):
    """True when the text that stands before a command has it run by another kernel."""
    return bool(STUB) and where.startswith(STUB)


class Shell:
    """A shell that answers one question after another."""

    END = "\x1e"

    def __init__(self):
        self._proc = None

    def ask(self, script, timeout=30):
        """What a script prints there."""
        if not self._proc or self._proc.poll() is not None:
            self._proc = subprocess.Popen([*shlex.split(STUB), "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=subprocess.DEVNULL, start_new_session=True)
        self._proc.stdin.write(f"{script}\nprintf '\\036'\n".encode())
        self._proc.stdin.flush()
        deadline = time.monotonic() + timeout
        said = b""
        while not said.endswith(self.END.encode()):
            if not select.select([self._proc.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                self._proc.kill()
                raise AssertionError(f"guest B did not answer within {timeout} s: {script}")
            data = os.read(self._proc.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"the shell in guest B has ended at: {script}")
            said += data
        return said.decode(errors="replace").removesuffix(self.END)


_shell = Shell()


def ask(words, where):
    """What a command prints on the host of an end."""
    if is_remote(where):
        return _shell.ask(shlex.join(words))
    return subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True, timeout=30,
                          text=True).stdout


def read(pattern, where=""):
    """{path: text} of the files that match a glob pattern and can be read."""
    if is_remote(where):
        # By the shell's own means: the files are short, and a program's start is long.
        lines = 'while IFS= read -r l || [ -n "$l" ]; do printf "%s\\n" "$l"; done <"$f"'
        words = _shell.ask(f'for f in {pattern}; do if [ -r "$f" ]; then printf "%s\\035" "$f"; {lines}; '
                           'printf "\\035"; fi; done').split("\x1d")
        return dict(zip(words[::2], words[1::2]))
    found = {}
    for path in glob.glob(pattern):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as f:
            found[path] = f.read()
    return found


def pid_of(stub):
    """Process id, over there, of what a stub of this host stands for; None before it runs, or when it has ended."""
    with contextlib.suppress(OSError, ValueError), open(f"/run/remote/{stub}", encoding="ascii") as f:
        return int(f.read())
    return None


def threads(pid, name, where=""):
    """[(thread id, text)] of a file of each thread of a process."""
    return [(int(re.search(r"/task/(\d+)/", path)[1]), text)
            for path, text in read(f"/proc/{pid}/task/*/{name}", where).items()]
