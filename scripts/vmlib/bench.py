# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs between the two ends, measured. Runs inside of a guest (or anywhere after scripts/topology up).

    bench.py demo                      the environment has A_DEV, B_IP ...; exit status 0 if every step worked
    bench.py compare ROW=MODULE...     loads each row's driver in turn, measures, prints a JSON object for each cell
    bench.py between ROW               the same between the two ends of the environment, which are two guests, say

A row is DRIVER or DRIVER:HOW. HOW is "packet" or "socket", the port that usiw takes between the ends of a veth pair;
"shm", its port within one host; or "host", any driver within one host.

Every program is bounded in time: a peer may never end.
"""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

TOPOLOGY = str(pathlib.Path(__file__).resolve().parent.parent / "topology")
STEP_SECONDS = 40
LISTEN_SECONDS = 10
SETTLE_SECONDS = 0.2
PORT = 18515

RPING_SIZES = (64, 4096, 65535)  # the last is the most it takes
OPERATIONS = ("send", "write", "read")
#: Message size in bytes and iterations.
DEMO_CELLS = [("lat", 64, 1000), ("bw", 65536, 300)]
COMPARE_CELLS = [("lat", 64, 1000), ("lat", 4096, 500), ("lat", 65536, 100), ("bw", 65536, 300), ("bw", 1048576, 30)]

#: Between two guests a message can take 24 ms.
BETWEEN_CELLS = [("lat", 64, 300), ("lat", 4096, 200), ("bw", 65536, 100)]

USIW_PORTS = ("packet", "socket", "shm")
WITHIN_A_HOST = ("shm", "host")

NEVER_ENDS = "never ends"
FAILS = "fails"


class StepFailed(Exception):
    """A program did not do what it should; args[0] is NEVER_ENDS or FAILS, args[1] the details."""


class Program:
    """A process in a session of its own, its output in a file."""

    def __init__(self, words):
        self.words = words
        self._output = open(f"/tmp/bench-{os.getpid()}-{time.monotonic_ns()}", "w+b")  # pylint: disable=R1732
        os.unlink(self._output.name)
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self._output,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def output(self):
        """What it has printed so far."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def wait(self, seconds):
        """Its exit status, or None if it has not ended by then."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self):
        """Ends it and its children, at once if need be."""
        for number, patience in ((signal.SIGTERM, 1), (signal.SIGKILL, 5)):
            if self.process.poll() is not None:
                break
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            self.wait(patience)


def quick(words, seconds=STEP_SECONDS):
    """Output of a program that needs no other end; StepFailed if it fails."""
    program = Program(words)
    status = program.wait(seconds)
    program.end()
    if status is None:
        raise StepFailed(NEVER_ENDS, program.output())
    if status:
        raise StepFailed(FAILS, program.output())
    return program.output()


def wait_for_listener(server, port):
    """Returns when the device of end B has a listener on the port. rdma_cm shows it a little before it listens."""
    deadline = time.monotonic() + LISTEN_SECONDS
    there = shlex.split(os.environ["B_EXEC"]) if os.environ.get("TOPOLOGY") == "hosts" else []
    while time.monotonic() < deadline and server.process.poll() is None:
        shown = subprocess.run([*there, "rdma", "resource", "show", "cm_id"], capture_output=True, text=True,
                               check=False, stdin=subprocess.DEVNULL).stdout
        if any(f"link {os.environ['B_DEV']}/" in line and "LISTEN" in line and f":{port} " in line
               for line in shown.splitlines()):
            time.sleep(SETTLE_SECONDS)
            return
        time.sleep(0.05)
    server.end()
    raise StepFailed(FAILS, f"{' '.join(server.words)} does not listen\n{server.output()}")


def pair(server_words, client_words, port=PORT, seconds=STEP_SECONDS):
    """Output of a client against its server; StepFailed unless the client succeeds and the server ends."""
    server = Program(shlex.split(os.environ.get("B_EXEC", "")) + server_words)
    client = None
    try:
        wait_for_listener(server, port)
        client = Program(shlex.split(os.environ.get("A_EXEC", "")) + client_words)
        status = client.wait(seconds)
        if status is None:
            raise StepFailed(NEVER_ENDS, client.output() + server.output())
        if status:
            raise StepFailed(FAILS, f"status {status}\n{client.output()}{server.output()}")
        if server.wait(5) is None:
            raise StepFailed(NEVER_ENDS, f"the server goes on\n{server.output()}")
        return client.output()
    finally:
        if client:
            client.end()
        server.end()


def rping(size):
    """Validated pings of a size."""
    words = ["rping", "-a", os.environ["B_IP"], "-C", "10", "-S", str(size), "-V", "-p", "7174"]
    return pair([*words, "-s"], [*words, "-c", "-v"], port=7174)


def perftest_commands(operation, kind, size, iterations):
    """(server, client) of a perftest run."""
    words = [f"ib_{operation}_{kind}", "-R", "-F", "-s", str(size), "-n", str(iterations), "-p", str(PORT)]
    return ([*words, "-d", os.environ["B_DEV"]], [*words, "-d", os.environ["A_DEV"], os.environ["B_IP"]])


def parse_perftest(text, kind, size):
    """Typical ("lat") or average ("avg") one-way latency in microseconds, or average bandwidth ("bw") in MiB/s.

    StepFailed if there is none.
    """
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0] == str(size) and words[1].isdigit():
            # Of latency: bytes iterations min max typical average ...; of bandwidth: bytes iterations peak average rate
            value = float(words[{"lat": 4, "avg": 5, "bw": 3}[kind]])
            if value > 0:   # a peer whose completions come at odd times makes perftest print 0.00
                return value
    raise StepFailed(FAILS, text)


def perftest(operation, kind, size, iterations):
    """Runs one cell and returns its figure."""
    return parse_perftest(pair(*perftest_commands(operation, kind, size, iterations)), kind, size)


# ---- demo ----

def attempt(title, function, failures):
    """Runs a step, prints how it went, and returns its value or the word for the table."""
    print(f"$ {title}", flush=True)
    try:
        return function()
    except StepFailed as error:
        failures.append(title)
        print(f"  {error.args[0]}: {error.args[1]}", flush=True)
        return error.args[0]


def cell(value, unit=""):
    """A figure, or a word, as it stands in a table."""
    if not isinstance(value, (int, float)):
        return value or "-"
    return f"{value:.2f}{unit}" if value < 10 else f"{value:.1f}{unit}" if value < 100 else f"{value:.0f}{unit}"


def demo():
    """Shows the devices, validates, measures, prints a table."""
    failures = []
    for words in (["rdma", "link"], ["ibv_devinfo", "-d", os.environ["A_DEV"]],
                  ["ibv_devinfo", "-d", os.environ["B_DEV"]]):
        print(attempt(shlex.join(words), lambda words=words: quick(words), failures))
    for size in RPING_SIZES:
        shown = attempt(f"rping -c -a $B_IP -C 10 -S {size} -V", lambda size=size: rping(size), failures)
        print(f"  {shown.count('ping data')} pings came back right" if "ping data" in shown else f"  {shown}")
    rows = []
    for operation in OPERATIONS:
        figures = []
        for kind, size, iterations in DEMO_CELLS:
            words = perftest_commands(operation, kind, size, iterations)[1]
            figure = attempt(shlex.join(words), lambda step=(operation, kind, size, iterations): perftest(*step),
                             failures)
            print(f"  {cell(figure)} {'us' if kind == 'lat' else 'MiB/s'}", flush=True)
            figures.append(figure)
        rows.append((operation, figures))
    driver = re.sub(r"\d+$", "", os.environ["A_DEV"])
    print(f"\n{driver} over a veth pair in this guest\n")
    print(f"{'':8}{'64 B, us':>14}{'64 KB, MiB/s':>16}")
    for operation, figures in rows:
        print(f"{operation:8}{cell(figures[0]):>14}{cell(figures[1]):>16}")
    print()
    if failures:
        print(f"{len(failures)} steps failed: {'; '.join(failures)}")
        return 1
    print("every step worked")
    return 0


# ---- compare ----

def take_assignments(text):
    """Environment variables from what scripts/topology prints."""
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator:
            os.environ[name] = value.strip("'")


def measure_row(row, module):
    """Loads a row's driver, measures every cell, removes it again."""
    driver, _, how = row.partition(":")
    if driver != "usiw":
        os.environ.pop("RDMAV_DRIVERS", None)
    if how in USIW_PORTS:
        os.environ["USIW_PORT"] = how
    else:
        os.environ.pop("USIW_PORT", None)
    topology = "host" if how in WITHIN_A_HOST else "veth"
    for words in (["modprobe", module] if "/" not in module else ["insmod", module],):
        quick(words)
    take_assignments(quick([TOPOLOGY, "up", topology, "--type", driver]))
    try:
        measure_cells(row, COMPARE_CELLS)
    finally:
        quick([TOPOLOGY, "down", topology, "--type", driver])
        quick(["rmmod", pathlib.Path(module).name.partition(".")[0]])


def measure_cells(row, cells):
    """Measures each cell and prints what comes out; of latency the typical and the average one."""
    for operation in OPERATIONS:
        for kind, size, iterations in cells:
            kinds = (kind, "avg") if kind == "lat" else (kind,)
            try:
                text = pair(*perftest_commands(operation, kind, size, iterations))
                values = [parse_perftest(text, which, size) for which in kinds]
            except StepFailed as error:
                values = [error.args[0]] * len(kinds)
                print(f"{row} {operation} {kind} {size}: {error.args[0]}: {error.args[1][-600:]}", file=sys.stderr)
            for which, value in zip(kinds, values):
                result = {"driver": row, "operation": operation, "kind": which, "size": size, "value": value}
                print(json.dumps(result), flush=True)


def compare(rows):
    """Measures each ROW=MODULE; exit status 1 if one could not be set up or removed."""
    status = 0
    drivers_variable = os.environ.get("RDMAV_DRIVERS")
    for item in rows:
        row, _, module = item.partition("=")
        if drivers_variable:
            os.environ["RDMAV_DRIVERS"] = drivers_variable
        try:
            measure_row(row, module)
        except StepFailed as error:
            print(f"{row}: {error.args[0]}: {error.args[1]}", file=sys.stderr, flush=True)
            status = 1
    return status


def main(words):
    """Entry of the guest side."""
    if words[:1] == ["demo"]:
        return demo()
    if words[:1] == ["compare"] and len(words) > 1:
        return compare(words[1:])
    if words[:1] == ["between"] and len(words) == 2:
        measure_cells(words[1], BETWEEN_CELLS)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
