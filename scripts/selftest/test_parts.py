# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The harness's functions that need no guest."""

import os
import shutil
import struct
import subprocess

import pytest

from vmlib import bench, cli, comparison, cpio, guest, judge, kernels, session
from vmlib.judge import Record


def test_cpio_is_what_the_cpio_program_reads(tmp_path):
    if not shutil.which("cpio"):
        pytest.skip("no cpio")
    data = cpio.archive({"m/sub/a": (b"first", 0o644), "init": (b"\0second\n", 0o755)})
    assert len(data) % 512 == 0
    subprocess.run(["cpio", "-id", "--quiet"], input=data, cwd=tmp_path, check=True)
    assert (tmp_path / "m/sub/a").read_bytes() == b"first"
    assert (tmp_path / "init").read_bytes() == b"\0second\n"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("step", (1, 3, 1000))
def test_frames_however_they_are_cut(step):
    frames = [("O", b"binary \0\xff"), ("S", b""), ("E", b"x" * 300)]
    stream = b"".join(struct.pack("<cI", kind.encode(), len(data)) + data for kind, data in frames)
    reader = guest.FrameReader()
    seen = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at:at + step])]
    assert seen == frames


def test_kmsg_record():
    record = judge.parse_record(b"12,345,6789012,-;usiw: tab\\x09here\n SUBSYSTEM=x\n")
    assert record == Record(4, 6.789012, "usiw: tab\there")


@pytest.mark.parametrize("text", (
    "Kernel panic - not syncing: Fatal exception",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "BUG: unable to handle page fault for address: ffff",
    "kernel BUG at drivers/infiniband/core/iwcm.c:833!",
    "WARNING: CPU: 0 PID: 123 at kmod/cm.c:5 usiw_cm+0x1/0x2 [usiw]",
    "WARNING: possible circular locking dependency detected",
    "INFO: task rping:123 blocked for more than 30 seconds.",
    "rcu: INFO: rcu_preempt self-detected stall on CPU",
    "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]",
    "refcount_t: underflow; use-after-free.",
    "unregister_netdevice: waiting for va to become free. Usage count = 2",
    "Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "BUG: KASAN: use-after-free in usiw_conn_work+0x1/0x2 [usiw]",
    "ODEBUG: free active (active state 0) object type: timer_list",
    "UBSAN: shift-out-of-bounds in kmod/usiw_rx.c:1:2",
    "divide error: 0000 [#1] PREEMPT SMP NOPTI",
))
def test_fatal(text):
    assert judge.fatal_line(text)


@pytest.mark.parametrize("text", (
    "usiw: loading out-of-tree module taints kernel.", "rcu: Hierarchical SRCU implementation.",
    "NMI watchdog: Perf NMI watchdog permanently disabled", "usiw: debug: 3", "Run /init as init process",
))
def test_not_fatal(text):
    assert not judge.fatal_line(text)


def test_suspicious():
    taint = Record(4, 1.0, "usiw: loading out-of-tree module taints kernel.")
    warning = Record(4, 1.0, "usiw va: REQ from 10.9.0.1 dropped")
    info = Record(6, 1.0, "usiw va: added")
    assert judge.suspicious([taint, warning, info]) == [warning]
    assert judge.suspicious([warning], ["REQ .* dropped"]) == []


def test_report_of_the_oom_killer():
    """The stack and the tables within it are not messages of their own; what comes behind it is."""
    invoked = Record(4, 1.0, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0")
    stack = Record(4, 1.1, "Call Trace:")
    killed = Record(3, 1.2, "Memory cgroup out of memory: Killed process 412 (python3) total-vm:1kB")
    other = Record(3, 1.3, "Memory cgroup out of memory: Killed process 410 (traffic) total-vm:1kB")
    behind = Record(4, 1.4, "usiw va: odd")
    report = [invoked, stack, killed, other, behind]
    assert judge.suspicious(report) == [invoked, killed, other, behind]
    assert judge.suspicious(report, ["invoked oom-killer", "^Memory cgroup out of memory: Killed"]) == [behind]


class Silent:
    """A machine of which only the console counts."""
    frames, console = 1, 2


@pytest.mark.parametrize("lines, emulator", (
    (["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "RIP: 0010:f+0x98/0xbf0", "Code: 84 85 0f <1f> 44 00 00"], True),
    (["int3: 0000 [#1] PREEMPT SMP NOPTI", "Code: 84 85 66 <90> 44 00 00"], True),
    (["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "Code: 84 85 cc <cc> cc cc cc"], False),   # in memory: a wild jump
    (["BUG: unable to handle page fault for address: ff", "Oops: int3: 0000 [#1] SMP", "Code: 0f <1f> 44"], False),
    (["Oops: 0002 [#1] PREEMPT SMP NOPTI", "Code: 84 85 0f <1f> 44 00 00"], False),
    (["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI"], False),
))
def test_breakpoint_of_the_emulator(lines, emulator):
    options = cli.build_parser().parse_args(["run", "--", "true"])
    with open(os.devnull, "wb") as log:
        run = session.Session(Silent(), log, options)
        run._console("".join(f"[    7.514803] {line}\r\n" for line in lines).encode())
    assert run.outcome.problems
    assert run.outcome.emulator == emulator


def test_leaks():
    head = "unreferenced object 0xffff888001234560 (size 64):\n  backtrace:\n    [<00000000deadbeef>] "
    assert judge.leak_of_usiw(head + "usiw_conn_alloc+0x10/0x20 [usiw]")
    assert judge.leak_of_usiw(head + "0xffffffffa0001234")
    assert not judge.leak_of_usiw(head + "kmem_cache_alloc+0x10/0x20")


def test_modules_are_selected_with_what_they_need():
    dependencies = {"kernel/drivers/net/veth.ko": ["kernel/x/y.ko.xz"], "kernel/x/y.ko.xz": [],
                    "kernel/net/sched/sch_netem.ko": [], "kernel/drivers/gpu/big.ko": []}
    assert kernels.select_modules(dependencies) == {
        "kernel/drivers/net/veth.ko", "kernel/x/y.ko.xz", "kernel/net/sched/sch_netem.ko"}


def outcome(**members):
    result = session.Outcome()
    result.boot_seconds = 3.0
    result.done = True
    for name, value in members.items():
        assert hasattr(result, name)
        setattr(result, name, value)
    return result


WARNED = [Record(4, 1.0, "usiw: odd")]


@pytest.mark.parametrize("members, status", (
    ({"exit_status": 0}, 0),
    ({"exit_status": 3}, 3),
    ({"exit_status": 0, "problems": ["WARNING: x"]}, 97),
    ({"exit_status": 0, "records": WARNED}, 98),
    ({"exit_status": 3, "records": WARNED}, 3),
    ({"exit_status": 143, "timed_out": True}, 124),
    ({"exit_status": 143, "timed_out": True, "problems": ["WARNING: x"]}, 97),
    ({"exit_status": None, "done": False}, 97),
    ({"exit_status": None, "done": False, "problems": ["Oops: int3: 0000 [#1] PREEMPT SMP"], "emulator": True}, 99),
    ({"exit_status": 0, "done": False}, 97),
    ({"exit_status": None, "done": False, "guest_hung": True}, 124),
    ({"boot_seconds": None, "failure": "the topology could not be made"}, 96),
))
def test_verdict(members, status):
    options = cli.build_parser().parse_args(["run", "--", "true"])
    assert session.verdict(outcome(**members), options)[0] == status


def test_command_keeps_its_own_options():
    options = cli.build_parser().parse_args(["run", "--topology", "netns", "--", "rping", "-s", "--timeout", "5"])
    assert options.command == ["rping", "-s", "--timeout", "5"]
    assert options.timeout == 120


PERFTEST_LAT = """\
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%[usec]   99.9%[usec]
 64      1000          28.13          912.61       30.60              35.55            27.07          66.85           912.61
---------------------------------------------------------------------------------------
"""
PERFTEST_BW = """\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      300              16.01              14.98               0.000240
"""


def test_perftest_figures():
    assert bench.parse_perftest(PERFTEST_LAT, "lat", 64) == 30.60
    assert bench.parse_perftest(PERFTEST_BW, "bw", 65536) == 14.98
    with pytest.raises(bench.StepFailed):
        bench.parse_perftest("Unable to connect", "bw", 65536)


def test_comparison_table():
    results = {("siw", "read", "bw", 1 << 20): [4.5, 9.5, 5.0], ("rxe", "read", "bw", 1 << 20): [bench.NEVER_ENDS],
               ("siw", "send", "lat", 64): [30.0, bench.FAILS, 40.0]}
    lines = comparison.table(results, ["usiw", "siw", "rxe"]).splitlines()
    assert "| read 1 MB | - | 5.00 | never ends |" in lines
    assert "| send 64 B | - | 35.0 (1 of 3 failed) | - |" in lines


def test_comparison_demands_every_figure_of_usiw_only():
    full = {("usiw", operation, kind, size): [1.0, 2.0] for operation in bench.OPERATIONS
            for kind, size, _ in bench.COMPARE_CELLS}
    assert not comparison.incomplete(full, ["usiw", "siw"], 2)
    assert not comparison.incomplete({}, ["siw"], 2)
    full["usiw", "read", "bw", 65536] = [1.0, bench.FAILS]
    assert comparison.incomplete(full, ["usiw"], 2) == [("usiw", "read", "bw", 65536)]
    assert len(comparison.incomplete(full, ["usiw:socket", "rxe:host"], 2)) == len(full)


def test_comparison_shows_the_average_beside_the_typical_latency():
    assert bench.parse_perftest(PERFTEST_LAT, "avg", 64) == 35.55
    results = {("usiw", "send", "lat", 64): [30.0], ("usiw", "send", "avg", 64): [355.0]}
    lines = comparison.table(results, ["usiw"], bench.BETWEEN_CELLS).splitlines()
    wanted = ["| send 64 B | 30.0 |", "| average latency, us | usiw |", "| send 64 B | 355 |"]
    assert [line for line in lines if line in wanted] == wanted
    assert not any("1 MB" in line for line in lines)
