# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs whose user or supervisor has limited them: RLIMIT_FSIZE, RLIMIT_NOFILE. usiw-run's own descriptors and
memory are in the same process, and count."""

import os
import subprocess
import time

import pytest

import hosts
from support.pairs import next_port
from support.procs import Proc

SERVER_IP = "127.0.0.3"
RUN_CASES = os.path.join(os.environ["VM_PROGRAMS"], "run_cases")


def limited(usiw_run, size, *argv, where=""):
    """A program under usiw-run that may write files of `size` bytes. Its own output goes to a pipe, which is none."""
    script = '{ "$@" 2>&1; echo "ends with $?"; } | cat'
    return Proc(["sh", "-c", script, "sh", "prlimit", f"--fsize={size}:{size}", usiw_run.path, *argv], where=where)


def rping_pair(usiw_run, size, server_ip=SERVER_IP, where=""):
    """Both ends limited. What they say, server and client, once both have ended in order."""
    subprocess.run([usiw_run.path, "ibv_devices"], stdout=subprocess.DEVNULL, check=True)  # makes the tree for /sys
    subprocess.run([*where.split(), usiw_run.path, "ibv_devices"], stdout=subprocess.DEVNULL, check=True)
    port = next_port()
    server = limited(usiw_run, size, "rping", "-s", "-a", server_ip, "-p", port, "-V", "-C", 5, where=where)
    deadline = time.monotonic() + 30
    while True:  # it is not the shell that listens
        client = limited(usiw_run, size, "rping", "-c", "-a", server_ip, "-p", port, "-V", "-C", 5)
        client.expect(0, 30)
        if "ends with 0" in client.output or time.monotonic() > deadline:
            break
    server.expect(0, 30)
    assert "ends with 0" in client.output, client.output
    assert "ends with 0" in server.output, server.output
    return server.output, client.output


@pytest.mark.parametrize("size", [0, 4096, 1 << 20, 32 << 20])
def test_file_size_limit(usiw_run, size):
    """Memory that processes share is a file to the kernel. With less than it takes data goes by sockets; with none the
    process has no watcher. A line says so, and no signal ends the program."""
    for output in rping_pair(usiw_run, size):
        assert ("usiw-run: no watcher: File too large" in output) == (size == 0), output
    assert ("UDP sockets in place of shared memory" in output) == (size <= 1 << 20), output


@pytest.mark.parametrize("size", [0, 4096, 32 << 20])
def test_file_size_limit_and_a_trace(usiw_run, size, tmp_path, monkeypatch):
    """A trace is a file that is made before the first connection. Where the limit forbids it a line says so, no signal
    ends the program, whose data is right (rping -V), and no part of the file stays."""
    monkeypatch.setenv("USIW_TRACE", f"{tmp_path},events=4096")
    for output in rping_pair(usiw_run, size):
        assert (f"no trace in {tmp_path}" in output and "File too large" in output) == (size <= 4096), output
    files = list(tmp_path.iterdir())
    assert (not files) == (size <= 4096), files
    assert all(file.stat().st_size > 4096 for file in files), files


def test_file_size_limit_and_raw_packets(usiw_run, other_host):
    """DPDK makes memory that is a file as well."""
    for output in rping_pair(usiw_run, 4096, hosts.B4, other_host):
        assert "packet" not in output, output  # else a line says why it does without


def test_file_size_limit_and_no_tree_yet(usiw_run, tmp_path):
    """The tree that stands in for /sys has files: with a limit of 0 there is no device, and a line says why."""
    proc = subprocess.run(["prlimit", "--fsize=0:0", usiw_run.path, "ibv_devinfo"], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert proc.returncode > 0, proc
    output = proc.stdout
    assert output.count("usiw-run: cannot write") == 1, output
    assert "File too large" in output and "ulimit -f" in output, output


def test_a_tree_that_could_not_be_written_is_made_whole(usiw_run, tmp_path):
    """The tree is shared: a program without the limit, which comes next, writes what is missing."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run(["prlimit", "--fsize=0:0", usiw_run.path, "ibv_devinfo"], stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT, env=env, check=False)
    assert "usiw0" in usiw_run(["ibv_devinfo"], env=env).expect(0)
    (tree,) = tmp_path.glob("usiw-run-*")
    assert not list(tree.rglob(".*"))


def test_a_few_entries_of_the_watcher_are_enough_for_few_connections(usiw_run):
    """kill -9 of a process whose watcher's table had to be small: its peer is notified, and not by a time-out (12)."""
    port = next_port()
    server = usiw_run(["rping", "-s", "-v", "-a", SERVER_IP, "-p", port]).wait_listening(port)
    client = Proc(["prlimit", "--fsize=4096:4096", usiw_run.path, "rping", "-c", "-a", SERVER_IP, "-p", port])
    server.wait_for("ping data")
    client.signal(9)
    client.wait()
    server.wait(20)
    assert "DISCONNECT" in server.output and "status 12" not in server.output


@pytest.mark.parametrize("port", ["auto", "socket"])
def test_connections_that_linger_leave_descriptors_to_others(usiw_run, port):
    usiw_run([RUN_CASES, "limits/few-descriptors"], ["--port", port]).expect(0, 130)
