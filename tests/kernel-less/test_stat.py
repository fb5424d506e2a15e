# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""`usiw stat` shows the counters of programs under usiw-run."""

import json
import os
import signal
import subprocess

import pytest

from stats import USIW, devices, stat
from support.pairs import next_port
from support.procs import until

SERVER_IP = "127.0.0.3"
TRAFFIC = os.path.join(os.environ["VM_PROGRAMS"], "traffic")
#: A user namespace of its own: nobody there may look into processes outside (ptrace(2)).
STRANGER = ["unshare", "--user", "--map-root-user"]


def qps(device, pid):
    return [q for q in devices().get(device, {"qps": []})["qps"] if q["pid"] == pid]


@pytest.fixture
def pair(usiw_run):
    """A server and a client with traffic, each with a device of a name of its own."""
    port = next_port()
    server = usiw_run([TRAFFIC, "server", "--to", SERVER_IP, "--port", port],
                      ["--device", "stat_s"]).wait_listening(port, spins=True)
    client = usiw_run([TRAFFIC, "client", "--from", "127.0.0.2", "--to", SERVER_IP, "--port", port, "--seconds", 300],
                      ["--device", "stat_c"])
    until(lambda: any(q["counters"]["comp_ok"] > 100 for q in qps("stat_c", client.pid)), "traffic")
    yield server, client
    client.kill()
    server.kill()


def test_counters_of_both_ends(pair):
    server, client = pair
    (qp,) = qps("stat_c", client.pid)
    assert qp["comm"] == "traffic" and qp["state"] == "RTS"
    assert qp["counters"]["tx_pkts"] > 0 and qp["counters"]["rx_bytes"] > 0
    assert qp["gauges"]["data_port"] in ("packet", "socket", "shm") and "data_port" not in qp["counters"]
    total = devices()["stat_c"]["counters"]
    assert total["tx_pkts"] >= qp["counters"]["tx_pkts"]
    until(lambda: qps("stat_s", server.pid)[0]["counters"]["rx_pkts"] > 0, "the server's counters")

    status, text, _ = stat("stat_c", "qp", str(qp["qpn"]))
    assert status == 0
    assert "link stat_c/1 by usiw-run\n" in text and f"qp {qp['qpn']} state RTS pid {client.pid} comm traffic" in text
    assert stat("stat_c", "qp", "1")[0] == 1
    status, _, err = stat("nonesuch")
    assert status == 1 and "no usiw device nonesuch" in err


def test_differences(pair):
    status, out, _ = stat("stat_c", "-j", "-i", "0.3", "-c", "2")
    first, second = (json.loads(line)[0] for line in out.splitlines())
    assert status == 0
    # Counted since, not from the start: of those that say the same each time, nothing.
    assert first["counters"]["comp_ok"] > 0 and second["counters"]["comp_ok"] > 0
    assert first["qps"][0]["gauges"]["cwnd"] > 0


def test_a_killed_program_is_shown_no_more(pair):
    for program, device in zip(reversed(pair), ("stat_c", "stat_s")):
        program.signal(signal.SIGKILL)
        program.wait()
        assert device not in devices()


def test_not_to_those_who_may_not_look(pair):
    _, client = pair
    status, out, err = stat("-j", by=STRANGER)
    assert str(client.pid) not in out and "stat_c" not in out
    assert status == 0 or "under usiw-run" in err, err


def test_children_of_fork_are_not_shown_as_owners(usiw_run, tmp_path):
    """They have their parent's descriptors, also when it has been killed."""
    program = tmp_path / "forker.py"
    program.write_text("""\
import ctypes, os, time
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
assert verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])
child = os.fork()
if child:
    print("child", child, flush=True)
time.sleep(300)
""")
    parent = usiw_run(["/usr/bin/python3", program], ["--device", "stat_f"])
    parent.wait_for(r"child \d+")
    assert "stat_f" in devices()
    parent.signal(signal.SIGKILL)
    parent.wait()
    assert "stat_f" not in devices()
    parent.kill()  # the child, too


def test_what_a_hostile_program_calls_so(usiw_run, tmp_path):
    """Memory of the right name with anything in it, of any size."""
    program = tmp_path / "hostile.py"
    program.write_text("""\
import os, time
fds = []
for size in (0, 1, 4096, 1 << 40):
    fd = os.memfd_create("usiw-uverbs")
    os.ftruncate(fd, size)
    os.pwrite(fd, os.urandom(min(size, 1 << 16)), 0)
    fds.append(fd)
print("there", flush=True)
time.sleep(300)
""")
    hostile = usiw_run(["/usr/bin/python3", program])
    hostile.wait_for("there")
    status, out, err = stat("-j")
    assert str(hostile.pid) not in out and (status == 0 or "under usiw-run" in err)
    hostile.kill()
