# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What JUnit files of pytest and ctest say."""

import re
import xml.etree.ElementTree as ET


def is_failed(case):
    """True for a testcase element that failed."""
    return case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail"


def failed_cases(path):
    """The testcase elements that failed."""
    return [case for case in ET.parse(path).getroot().iter("testcase") if is_failed(case)]


def count(path):
    """(passed, failed); skipped cases count as neither."""
    passed = failed = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        if is_failed(case):
            failed += 1
        elif case.find("skipped") is None and case.get("status") not in ("notrun", "disabled"):
            passed += 1
    return passed, failed


def failures(path):
    """A line for each testcase that failed: its name, and what its report begins with."""
    return [f"{case.get('name')}: {_reason(case)[:200]}" for case in failed_cases(path)]


def expression(names):
    """Returns an argument for pytest's -k that selects the tests of these names. It leaves out the parameters that -k
    cannot parse, and then selects more tests."""
    return " or ".join(name if re.fullmatch(r"[\w:+\-./\[\]]+", name) else name.partition("[")[0] for name in names)


def times(path):
    """(name, seconds) of each testcase; none if the file is no report (a suite that was killed)."""
    try:
        cases = ET.parse(path).getroot().iter("testcase")
    except ET.ParseError:
        return []
    return [(case.get("name") or "", float(case.get("time") or 0)) for case in cases]


def _reason(case):
    """The first line of what a failed testcase says."""
    for kind in ("failure", "error"):
        for element in case.iter(kind):
            said = (element.get("message") or element.text or "").strip()
            if said:
                return said.splitlines()[0]
    return "no reason given"
