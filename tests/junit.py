# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What JUnit files of pytest and ctest say."""

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
