# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdma-core's own Python tests, as its package has them: where they are, what is expected of each, how they went.

    /usr/bin/python3 tests/vm/support/rdma_core.py     prints the table that is in docs/testing-rdma-core.md
"""

import collections
import glob
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[3]
TABLE = ROOT / "tests" / "vm" / "rdma_core_expected.tsv"
DOCUMENT = ROOT / "docs" / "testing-rdma-core.md"
RUNNER = pathlib.Path(__file__).resolve().parent / "rdma_core_runner.py"
INSTALLED = "/usr/share/doc/rdma-core/tests"

#: No test of theirs waits longer than its own 15 s for anything, but some do so more than once.
SECONDS = 60

#: Until the first one begins: what they import is much where every page comes by 9p.
SECONDS_TO_START = 120


#: The reason of those that connect by themselves.
CONNECTS = "connects"

#: The reasons that a RoCE device takes away. There, QPs connect by themselves, the GID table has empty entries, and
#: there are address handles and InfiniBand's rdma_cm.
ONLY_IWARP = (CONNECTS, "AH", "GIDs", "IB CM")

#: The reason of those that need huge pages. They pass wherever the administrator has set some aside.
HUGE_PAGES = "huge pages"

#: The reasons of those that ask for a certain device.
HARDWARE = ("mlx5", "efa", "cuda")

#: In front of a name: the test with its QPs connected by rdma_cm, for the runner.
BY_CM = "by rdma_cm: "


class Expected(NamedTuple):
    """A line of the table. `reason` is empty for a test that passes, as is `by_cm` for one that passes when rdma_cm has
    connected its QPs."""
    name: str
    reason: str
    by_cm: str

    def passes_on(self, face):
        """True if the test passes on a device of this face, "iwarp" or "roce"."""
        return not self.reason_on(face)

    def reason_on(self, face):
        """Returns the reason why the test is not for a device of this face, or an empty text if it passes."""
        if face != "roce" or self.reason not in ONLY_IWARP:
            return self.reason
        return "" if self.by_cm in ONLY_IWARP else self.by_cm

    @property
    def file(self):
        """The file that the test is in, without .py."""
        return self.name.partition(".")[0]


class Outcome(NamedTuple):
    """How a test went: passed, skipped, failed, or died when it has ended the process or did not end."""
    what: str
    text: str
    seconds: float


def table():
    """(reasons, tests): {reason: what it means} and {name: Expected}."""
    reasons, tests = {}, {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, tab, rest = line.partition("\t")
        assert tab, f"{TABLE.name}: no tabulator in {line!r}"
        if name.startswith("="):
            reasons[name[1:]] = rest
            continue
        assert name not in tests, f"{TABLE.name}: {name} stands there twice"
        reason, _, by_cm = rest.partition("\t")
        for word in (reason, by_cm) if reason == CONNECTS else (rest,):
            assert word == "passes" or word in reasons, f"{TABLE.name}: {name}: no such reason: {word!r}"
        tests[name] = Expected(name, *("" if word == "passes" else word for word in (reason, by_cm)))
    return reasons, tests


def unpack(folder):
    """Puts the installed tests into the folder `tests` below `folder`, byte for byte, but for their compression. Some
    images leave the documentation out of what they install: then the package is asked for."""
    found = INSTALLED
    if not os.path.isdir(found):
        subprocess.run(["apt-get", "download", "rdma-core"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["dpkg-deb", "-x", glob.glob(f"{folder}/rdma-core_*.deb")[0], folder / "package"], check=True)
        found = f"{folder}/package{INSTALLED}"
    target = folder / "tests"
    target.mkdir()
    for name in os.listdir(found):
        source = os.path.join(found, name)
        if name.endswith(".gz"):
            with gzip.open(source) as packed, open(target / name.removesuffix(".gz"), "wb") as plain:
                shutil.copyfileobj(packed, plain)
        elif name.endswith(".py"):
            shutil.copy(source, target)
    return folder


#: In a mount namespace of its own, the device NAME gets the folder device/net/NETDEV beside what it has.
WITH_NETDEV = """
name=$1 netdev=$2; shift 2
device=$(readlink -f "/sys/class/infiniband/$name")
layers=$(mktemp -d)
mount -t tmpfs none "$layers"
mkdir -p "$layers/upper/device/net/$netdev" "$layers/work"
mount -t overlay -o "lowerdir=$device,upperdir=$layers/upper,workdir=$layers/work" overlay "$device"
exec "$@"
"""


def with_netdev(device, netdev):
    """What to put before a command for which sysfs names the netdev of the device, as it does for a device on hardware:
    by this the tests find an address for rdma_cm. A veth's device has no parent that it could be named under."""
    return ["unshare", "--mount", "sh", "-euc", WITH_NETDEV, "sh", device, netdev]


class Suite:
    """The tests, unpacked into `folder`. `start(argv)` starts a program and returns its procs.Proc. `address` is the
    one by which rdma_cm shall connect what connects by itself."""

    def __init__(self, folder, start, address, options):
        self._folder = unpack(folder)
        self._journal = folder / "journal"
        self._start = start
        self._arguments = [address, *options]
        self.names = []  # of all tests that there are, once some have run

    def _runner(self, names):
        self._journal.unlink(missing_ok=True)
        return self._start(["/usr/bin/python3", "-B", RUNNER, self._folder, self._journal, *self._arguments,
                            "--", *names])

    def _entries(self):
        if not self._journal.exists():
            return []
        lines = self._journal.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1]]  # what follows the last line break is not all there yet

    def run(self, names):
        """{name: Outcome}. A test that ends the process has died; the others run in a new one. BY_CM in front of a
        name: with its QPs connected by rdma_cm."""
        outcomes = {}
        left = list(names)
        while left:
            proc = self._runner(left)
            try:
                in_time = self._follow(proc)
                self._collect(outcomes, proc, in_time)
            finally:
                proc.kill()
            before, left = left, [name for name in left if name not in outcomes]
            assert len(left) < len(before), f"the tests do not start: status {proc.status}\n{proc.output[-4000:]}"
        return outcomes

    def _follow(self, proc):
        """Waits for its end; False when one test takes too long, or it does not begin."""
        size, since = -1, time.monotonic()
        while proc.status is None:
            now = self._journal.stat().st_size if self._journal.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            if time.monotonic() - since > (SECONDS if size > 0 else SECONDS_TO_START) * patience():
                return False
            time.sleep(0.05)
        return True

    def _collect(self, outcomes, proc, in_time):
        running = None
        for entry in self._entries():
            if "names" in entry:
                self.names = entry["names"]
            elif "begins" in entry:
                running = entry["begins"]
            else:
                running = None
                outcomes[entry["test"]] = Outcome(entry["outcome"], entry["text"], entry["seconds"])
        if running:
            how = f"ended the process with status {proc.status}"
            if not in_time:
                how = f"did not end in {SECONDS * patience():.0f} s"
            outcomes[running] = Outcome("died", f"{how}\n{proc.output[-2000:]}", 0.0)


def patience():
    """As procs.PATIENCE, which a program that only prints the table does not load."""
    return float(os.environ.get("VM_PATIENCE", "1"))


def counts(reasons, tests):
    """The table as lines of markdown: by file how many pass, and how many are not for this device, and why not."""
    by_file = collections.defaultdict(list)
    for test in tests.values():
        by_file[test.file].append(test)
    lines = ["| file | tests | pass | pass, connected by rdma_cm | not here |", "|---|---|---|---|---|"]
    lines += [_row(f"`{file}`", found, reasons) for file, found in sorted(by_file.items())]
    return lines + [_row("all", list(tests.values()), reasons)]


def _row(title, tests, reasons):
    passed = sum(not test.reason for test in tests)
    by_cm = sum(test.reason == CONNECTS and not test.by_cm for test in tests)
    other = collections.Counter(test.by_cm or test.reason for test in tests)
    del other[""], other[CONNECTS]
    why = ", ".join(f"{other[reason]} {reason}" for reason in reasons if other[reason])
    return f"| {title} | {len(tests)} | {passed} | {by_cm} | {why} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(counts(*table())) + "\n")
