# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Fixtures of the end-to-end suite. It runs inside of a guest: scripts/vm run -- /usr/bin/python3 -m pytest tests/vm

After every test that started a process: nothing of it runs any more, the kernel printed nothing at
warning level, and `rdma resource show` and the sockets are as they were before.
"""

import os
import time

import pytest

from support import cases, procs, watch
from support.net import A, B, TOPOLOGY, WORLD


def pytest_addoption(parser):
    parser.addoption("--storm-seed", type=int, default=1, help="seed of test_storm")
    parser.addoption("--storm-steps", type=int, default=25, help="disturbances of test_storm")
    parser.addoption("--storm-without-module", action="store_true", help="one end of test_storm under usiw-run")
    parser.addoption("--one-port", action="store_true", help="test_kernel_abi measures many connections at one port")


def pytest_collection_modifyitems(config, items):
    """Leaves out what needs another topology; `veth` is what a test needs that says nothing."""
    keep, other = [], []
    for item in items:
        needs = next((name for name in ("netns", "exclusive") if item.get_closest_marker(name)), None)
        own = TOPOLOGY if TOPOLOGY in ("netns", "exclusive") else None
        elsewhere = "without_module" if WORLD == "module" else "kernel"
        fits = needs == own and item.get_closest_marker(elsewhere) is None
        (keep if fits else other).append(item)
        apart = item.get_closest_marker("one_kernel") if TOPOLOGY == "hosts" else None
        if apart:
            item.add_marker(pytest.mark.skip(reason=f"needs both ends on one kernel: {apart.args[0]}"))
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = keep


def busy_seconds():
    """Returns the time since boot that the processors of this machine did not idle, in seconds."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Reports:
    """Prints each failure at once, since the run may be cut off before its summary. At the end it prints the tests that
    used most processor time, and the slowest cases of programs: pytest counts all cases of a program for the first."""

    def __init__(self, config):
        self.config = config
        self.seconds = {}
        self.busy = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        before = busy_seconds()
        yield
        self.busy[item.nodeid] = busy_seconds() - before

    def pytest_terminal_summary(self, terminalreporter):
        most = sorted(((seconds, name) for name, seconds in self.busy.items()), reverse=True)[:25]
        terminalreporter.section("tests that used most processor time")
        for seconds, name in most:
            terminalreporter.write_line(f"{seconds:7.2f}s {name}")
        terminalreporter.write_line(f"{sum(self.busy.values()):7.2f}s all {len(self.busy)}")
        slow = sorted(((seconds, name) for name, seconds in self.seconds.items() if seconds >= 1), reverse=True)[:25]
        if slow:
            terminalreporter.section("slowest cases of programs")
            for seconds, (program, name) in slow:
                terminalreporter.write_line(f"{seconds:7.2f}s {program} {name}")
            terminalreporter.write_line(f"{sum(self.seconds.values()):7.2f}s all {len(self.seconds)}")

    def pytest_runtest_logreport(self, report):
        if report.failed:
            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{report.nodeid} ({report.when}): {report.longreprtext}")


def pytest_configure(config):
    config.pluginmanager.register(Reports(config), "cases-reports")


def pytest_generate_tests(metafunc):
    """One test per case of a program: `@pytest.mark.parametrize` over what the program lists."""
    program = getattr(metafunc.function, "program", None)
    if program and "case" in metafunc.fixturenames:
        found = cases.list_cases(program)
        metafunc.parametrize("case", [pytest.param(case, id=case.name, marks=[pytest.mark.core] if case.core else [])
                                      for case in found if WORLD != "module" or case.name not in WITHOUT_MODULE])


def environment_of(case):
    """Returns the variables that a case needs besides those of all programs. Cases with the same variables share a
    process."""
    # These cut the wire, listen to it or share its ports. Under usiw-run, shared memory would bypass the wire.
    return {"USIW_RUN_PORT": "socket"} if case.name.startswith(("peer-gone/", "tos/", "port/")) else {}


#: Cases that run without a module only. Few of the same kind, which `core` has, show what the kernel does.
WITHOUT_MODULE = {"many/1000-one-after-another"}


@pytest.fixture(scope="session")
def case_results(request):
    """{(program, name): Result}; a program runs once for all of its selected cases that have the same environment."""
    selected = {}
    for item in request.session.items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if case:
            selected.setdefault(case.program, []).append(case)
    results = {}
    reports = request.config.pluginmanager.get_plugin("cases-reports")

    def get(case, env=None):
        if (case.program, case.name) not in results:
            variables = environment_of(case)
            together = [other for other in selected[case.program] if environment_of(other) == variables]
            for name, result in cases.run_cases(case.program, together, {**(env or {}), **variables}).items():
                results[case.program, name] = result
                reports.seconds[case.program, name] = result.seconds
        return results[case.program, case.name]
    return get


@pytest.fixture(scope="session")
def kmsg():
    """Kernel messages from the start of the session on."""
    return watch.Kmsg()


class Expectations:
    """What a test announces that it will leave."""

    def __init__(self):
        self.messages = []       # patterns of kernel messages
        self.state_changes = False  # devices or sockets are not as before


@pytest.fixture
def expected():
    """A test that provokes kernel messages, or changes devices for good, says so here."""
    return Expectations()


@pytest.fixture(scope="session", autouse=True)
def neighbours():
    """Both ends know each other's MAC. (rdma_cm misses a neighbour's answer that comes before it begins to wait, as it
    does on veth, and then takes its whole time-out: 5 s for the first connection.)"""
    for here, there in ((A, B), (B, A)):
        procs.run("ping", "-q", "-c", 1, "-w", 10, "-I", here.ip, there.ip, where=here.where)


_last_state = {}


@pytest.fixture(autouse=True)
def undisturbed(kmsg, expected):
    """The checks after each test."""
    if "now" not in _last_state:
        _last_state["now"] = watch.state()
    before = _last_state["now"]
    started = procs.Proc.started_total
    yield
    left = procs.kill_all()
    problems = []
    if left:
        problems.append(f"{left} processes were still running")
    if procs.Proc.started_total != started:
        deadline = time.monotonic() + 20 * procs.PATIENCE
        now = watch.state()
        while now != before and not expected.state_changes and time.monotonic() < deadline:
            time.sleep(0.2)
            now = watch.state()
        if now != before and not expected.state_changes:
            for key, value in now.items():
                if value != before[key]:
                    problems.append(f"{key}: {difference(before[key], value)}")
        _last_state["now"] = now
    warnings = kmsg.warnings(expected.messages)
    if warnings:
        problems.append("kernel messages:\n  " + "\n  ".join(warnings))
    if problems:
        pytest.fail("after the test: " + "\n".join(problems), pytrace=False)


def difference(before, after):
    """Short text about two states."""
    if isinstance(before, list):
        gone, new = list(before), list(after)
        for entry in before:
            if entry in new:
                new.remove(entry)
                gone.remove(entry)
        return f"new {new}, gone {gone}"
    return f"{before} before, {after} now"
