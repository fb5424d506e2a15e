# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A bad fabric on demand: programs come through it, or hear of it as the verbs say."""

import os

import pytest

from support.pairs import next_port

SERVER_IP = "127.0.0.3"
VERBS_DATA = os.path.join(os.environ["VM_PROGRAMS"], "verbs_data")


def both(usiw_run, options, server, client):
    """Runs server and client with the same options of usiw-run; the processes, ended."""
    port = next_port()
    s = usiw_run([*server, "-p", port], options).wait_listening(port)
    c = usiw_run([*client, "-p", port], options)
    c.wait(120)
    s.wait(60)
    return s, c


@pytest.mark.parametrize("options", [["--loss", "0.02"], ["--reorder", "0.1"], ["--delay", "200us"],
                                     ["--loss=0.01", "--reorder=0.05", "--delay=50us", "--seed=7"]])
def test_data_survives(usiw_run, options):
    rounds = ["-C", 30, "-S", 30000, "-V"]
    server, client = both(usiw_run, options, ["rping", "-s", "-a", SERVER_IP, *rounds],
                          ["rping", "-c", "-a", SERVER_IP, *rounds])
    assert (server.status, client.status) == (0, 0), server.output + client.output


def test_everything_is_lost(usiw_run):
    """The client's work request completes with RETRY_EXC_ERR; nobody waits for ever. (rping's exit status says
    nothing.)"""
    port = next_port()
    server = usiw_run(["rping", "-s", "-a", SERVER_IP, "-p", port]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", SERVER_IP, "-p", port, "-C", 5], ["--loss", "1"])
    client.wait(60)
    assert "status 12" in client.output, client.output
    server.wait(60)


def test_failing_work_request(usiw_run):
    """The third send work request of the client completes with a local protection error."""
    port = next_port()
    server = usiw_run(["rping", "-s", "-a", SERVER_IP, "-p", port]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", SERVER_IP, "-p", port, "-C", 10], ["--fail-wr", "3"])
    client.wait(60)
    assert "status 4" in client.output, client.output
    server.wait(60)


def test_failing_work_request_of_a_batch(usiw_run):
    """The same of the second one that ibv_wr_* posts: a SEND, in the midst of others."""
    client = usiw_run([VERBS_DATA, "wr/send-write-read"], ["--fail-wr", "2"])
    assert client.wait(60) != 0
    assert "work request 11 with 'local protection error'" in client.output, client.output


def test_killed_connection(usiw_run):
    """Ends behind so many bytes; both ends are told."""
    port = next_port()
    server = usiw_run(["rping", "-s", "-a", SERVER_IP, "-p", port, "-S", 60000]).wait_listening(port)
    client = usiw_run(["rping", "-c", "-a", SERVER_IP, "-p", port, "-S", 60000, "-v"], ["--kill-after", "500000"])
    client.wait(60)
    server.wait(60)
    assert "ping data" in client.output
    assert "DISCONNECT" in client.output
    assert "DISCONNECT" in server.output


@pytest.mark.parametrize("option, value", [("--loss", "2"), ("--loss", "x"), ("--reorder", "-1"), ("--delay", "50"),
                                           ("--delay", "1h"), ("--seed", "-1"), ("--fail-wr", "1.5"),
                                           ("--kill-after", "")])
def test_wrong_values(usiw_run, option, value):
    proc = usiw_run(["true"], [option, value])
    assert proc.wait() == 2
    assert proc.output.startswith(f"usiw-run: {option}")


@pytest.mark.parametrize("variable, line", [
    ("USIW_FAULTS", "usiw: USIW_FAULTS: 'lose=1' is not understood (usiw(7)); no fault is played"),
    ("USIW_PROGRESS", "usiw: USIW_PROGRESS=lose=1 is neither 'adaptive' nor 'thread'; using adaptive"),
])
def test_a_value_that_is_not_understood_is_said_once(usiw_run, monkeypatch, variable, line):
    """Whoever mistypes a fault tests nothing, and must hear of it."""
    monkeypatch.setenv(variable, "lose=1")
    client = usiw_run([VERBS_DATA, "wr/send-write-read"])
    client.expect(0, 60)
    assert client.output.count(line) == 1, client.output
