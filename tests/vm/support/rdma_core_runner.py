# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Runs tests of rdma-core's Python suite in this process, one after another, and says at once how each went.

    rdma_core_runner.py FOLDER JOURNAL ADDRESS OPTION... -- TEST...

FOLDER is the one above rdma-core's package `tests`, OPTIONs are those of its own run_tests.py (--dev, --gid), a TEST is
a name as `run_tests.py --list-tests` prints it, without the package. With BY_CM in front of it rdma_cm connects the
QPs of the test, by ADDRESS, the device's (rdma_core_connect.py). The journal gets a line of JSON with the names of all
tests that there are, one when a test begins and one when it has ended: who reads it knows which test has ended this
process.
"""

import contextlib
import importlib
import json
import os
import random
import sys
import time
import unittest


BY_CM = "by rdma_cm: "


class Journal:
    """Lines that are in the file when write() has returned. A child of a test that comes here has no business here."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()

    def write(self, **entry):
        if os.getpid() == self._pid:
            os.write(self._fd, (json.dumps(entry) + "\n").encode())


class Result(unittest.TestResult):
    """Tells the journal. A test that has failed and then fails in tearDown() has failed once."""

    def __init__(self, journal):
        super().__init__()
        self.journal = journal
        self.name, self.outcome, self.text, self.began = "", "", "", 0.0

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.text, self.began = "passed", "", time.monotonic()
        self.journal.write(begins=self.name)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._worse("skipped", reason)

    def addError(self, test, err):
        super().addError(test, err)
        self._worse("failed", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._worse("failed", self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self._worse("failed", self._exc_info_to_string(err, test))

    def stopTest(self, test):
        super().stopTest(test)
        self.journal.write(test=self.name, outcome=self.outcome, text=self.text,
                           seconds=round(time.monotonic() - self.began, 3))

    def _worse(self, outcome, text):
        if self.outcome != "failed":
            self.outcome, self.text = outcome, text


def name_of(test):
    """FILE.CLASS.METHOD."""
    return test.id().removeprefix("tests.")


def all_tests(suite):
    """The tests of nested suites."""
    for entry in suite:
        if isinstance(entry, unittest.TestCase):
            yield entry
        else:
            yield from all_tests(entry)


def main(folder, path, address, *arguments):
    split = arguments.index("--")
    options, wanted = arguments[:split], arguments[split + 1:]
    journal = Journal(path)
    sys.path[:0] = [folder, os.path.join(folder, "tests")]  # args_parser is imported without the package
    parser = importlib.import_module("args_parser").parser
    sys.argv[1:] = options
    parser.parse_args()
    loader = unittest.TestLoader()
    suites = [loader.loadTestsFromModule(module) for module in importlib.import_module("tests").__test_modules__]
    tests = {name_of(test): test for test in all_tests(suites)}
    journal.write(names=sorted(tests))
    connector = importlib.import_module("rdma_core_connect").Connector(importlib.import_module("tests.base"), address)
    result = Result(journal)
    for result.name in wanted:
        random.seed(result.name)  # many of them choose sizes and options by chance: the same ones each time
        with connector if result.name.startswith(BY_CM) else contextlib.nullcontext():
            tests[result.name.removeprefix(BY_CM)](result)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
