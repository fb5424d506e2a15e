# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdma-core's own Python tests, unmodified, beside a table of what is expected of each (rdma_core_expected.tsv)."""

import collections

import pytest

from support import rdma_core
from support.net import A, FACE, WORLD
from support.procs import Proc

REASONS, TESTS = rdma_core.table()
#: What asks for other hardware finds out without the kernel that it is not there: once is enough.
ELSEWHERE = rdma_core.HARDWARE if WORLD == "module" else ()
LEFT_OUT = {test.name for test in TESTS.values() if test.reason in ELSEWHERE}
#: On the RoCE face, QPs connect by themselves, so nothing runs a second time.
CONNECTING = [test for test in TESTS.values() if test.reason == rdma_core.CONNECTS and FACE == "iwarp"]


def not_here(files):
    """The tests of these files that are not for this device."""
    return [
        test for test in TESTS.values()
        if not test.passes_on(FACE) and test.file in files and test.name not in LEFT_OUT
    ]


def not_here_by_cm(files):
    """The same of those that run once more, connected by rdma_cm."""
    return [test for test in CONNECTING if test.by_cm and test.file in files and test.name not in LEFT_OUT]


#: The device, and the first entry of its GID table: an iWARP port has no other.
OPTIONS = ["--dev", A.dev, "--gid", "0"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    front = rdma_core.with_netdev(A.dev, A.netdev) if WORLD == "module" else []
    return rdma_core.Suite(tmp_path_factory.mktemp("rdma-core"), lambda argv: Proc([*front, *argv]), A.ip, OPTIONS)


@pytest.fixture(scope="module")
def outcomes(suite, request):
    """{test: Outcome} of all that are selected, in one process as long as none of them ends it."""
    selected = collections.defaultdict(set)
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec"):
            # A test without parameters has a placeholder.
            selected[item.function] |= {value for value in item.callspec.params.values() if isinstance(value, str)}
    as_they_are = selected[test_passes] | {test.name for test in not_here(selected[test_not_here])}
    by_cm = selected[test_passes_by_cm] | {test.name for test in not_here_by_cm(selected[test_not_here_by_cm])}
    found = suite.run([*sorted(as_they_are), *(rdma_core.BY_CM + name for name in sorted(by_cm))])
    report(request.config.pluginmanager.get_plugin("terminalreporter"), found)
    return found


def report(terminal, found):
    """Says at once how many of each file did what."""
    terminal.write_line("")
    for prefix, title in (("", "rdma-core tests"), (rdma_core.BY_CM, "rdma-core tests, connected by rdma_cm")):
        by_file = collections.defaultdict(collections.Counter)
        for name, outcome in found.items():
            if name.startswith(rdma_core.BY_CM) == bool(prefix):
                by_file[name.removeprefix(prefix).partition(".")[0]][outcome.what] += 1
        for row, what in [*sorted(by_file.items()), (title, sum(by_file.values(), collections.Counter()))]:
            terminal.write_line(f"  {row:<40} " + ", ".join(f"{count} {word}" for word, count in sorted(what.items())))


def test_table_lists_every_test(suite, outcomes):
    """What a later rdma-core brings has to be looked at, too."""
    names = set(suite.names)
    assert names - set(TESTS) == set(), "not in the table"
    assert set(TESTS) - names == set(), "in the table, but not there any more"


def test_document_has_the_counts():
    """As tests/vm/support/rdma_core.py prints them."""
    lines = rdma_core.DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [row for row in rdma_core.counts(REASONS, TESTS) if row not in lines] == []


def must_pass(outcome):
    """A test that is skipped tests nothing."""
    if outcome.what != "passed":
        pytest.fail(f"{outcome.what}: {outcome.text}", pytrace=False)


def must_not_pass(outcomes):
    """What the table says of these is still true. None of them may end its process, or not end."""
    wrong = [
        f"{name} passes: the table should say so" for name, outcome in outcomes.items()
        if outcome.what == "passed" and rdma_core.HUGE_PAGES not in TESTS[name][1:]
    ]
    wrong += [f"{name}: {outcome.text}" for name, outcome in outcomes.items() if outcome.what == "died"]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


@pytest.mark.parametrize("name", [test.name for test in TESTS.values() if test.passes_on(FACE)])
def test_passes(name, outcomes):
    must_pass(outcomes[name])


@pytest.mark.parametrize("name", [test.name for test in CONNECTING if not test.by_cm])
def test_passes_by_cm(name, outcomes):
    must_pass(outcomes[rdma_core.BY_CM + name])


@pytest.mark.parametrize("file", sorted({test.file for test in TESTS.values() if not_here([test.file])}))
def test_not_here(file, outcomes):
    must_not_pass({test.name: outcomes[test.name] for test in not_here([file])})


@pytest.mark.parametrize("file", sorted({test.file for test in CONNECTING if not_here_by_cm([test.file])}))
def test_not_here_by_cm(file, outcomes):
    must_not_pass({test.name: outcomes[rdma_core.BY_CM + test.name] for test in not_here_by_cm([file])})
