# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Why a connection could not be made: one line on stderr, since rdma_cm says UNREACHABLE or REJECTED and no more."""

import contextlib
import os
import re
import subprocess
import time

from hosts import B4
from support.cases import path_of
from support.pairs import next_port
from support.why import Reason, reasons

NO_HOST = "10.77.0.99"


def lines_of(client):
    return [line for line in client.output.splitlines() if line.startswith("usiw-run: no connection")]


def test_each_reason_has_its_line(usiw_run, other_host):
    with reasons(B4, other_host, "") as found:
        places = [(B4, reason) for reason in found]
        places.append((NO_HOST, Reason(next_port(), "no host has this address, or there is no route to it "
                                                    "(ICMP host unreachable)")))
        clients = [usiw_run(["rping", "-c", "-a", address, "-p", reason.port, "-C", 1]) for address, reason in places]
        for client, (address, reason) in zip(clients, places):
            client.wait(60)
            assert lines_of(client) == [f"usiw-run: no connection to {address} port {reason.port}: {reason.line}"]


def test_a_program_that_goes_on_trying_is_told_once(usiw_run, tmp_path):
    client = usiw_run([path_of("traffic"), "persist", "--progress", tmp_path / "progress", "--from", "127.0.0.2",
                       "--to", "127.0.0.3", "--port", next_port()])
    time.sleep(4)
    client.signal(15)
    client.wait(60)
    tries = re.search(r"^connecting: RDMA_CM_EVENT_REJECTED: (\d+)", client.output, re.M)
    assert tries and int(tries[1]) > 1, client.output
    assert len(lines_of(client)) == 1, client.output


@contextlib.contextmanager
def full_pipe():
    """The writing end of a pipe that takes no byte more, and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def test_nobody_reads_what_the_program_says(usiw_run, tmp_path):
    """Its stderr is a full pipe: attempts go on, and end, as if nothing had been said."""
    progress = tmp_path / "progress"
    with full_pipe() as stderr, subprocess.Popen(
            [usiw_run.path, path_of("traffic"), "persist", "--progress", progress, "--from", "127.0.0.2",
             "--to", "127.0.0.3", "--port", str(next_port())], stdout=subprocess.PIPE, stderr=stderr,
            text=True) as client:
        time.sleep(4)
        client.terminate()
        said, _ = client.communicate(timeout=60)
    assert client.returncode == 0
    assert int(re.search(r"^connecting: RDMA_CM_EVENT_REJECTED: (\d+)", said, re.M)[1]) > 1, said


def test_nobody_reads_that_there_is_no_watcher(usiw_run):
    """The line comes while a connection is made, and costs nothing when nobody takes it."""
    port = next_port()
    options = ["--port", "socket"]
    server = usiw_run([path_of("traffic"), "server", "--to", "127.0.0.3", "--port", port], options)
    server.wait_listening(port)
    subprocess.run([usiw_run.path, "ibv_devices"], stdout=subprocess.DEVNULL, check=True)  # makes the tree for /sys
    client = ["prlimit", "--fsize=0", usiw_run.path, *options, path_of("traffic"), "client", "--from", "127.0.0.2",
              "--to", "127.0.0.3", "--port", str(port), "--rounds", "3"]
    with full_pipe() as stderr:
        subprocess.run(client, stdout=subprocess.PIPE, stderr=stderr, timeout=30, check=True)
    server.kill()
