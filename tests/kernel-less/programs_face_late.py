# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Peers of the RoCE face that are late by a minute, and processes that stand still for half a minute (docs/face.md).
test_face_late.py has the same with short times."""

import pytest

from face_waits import (KINDS, at_once, crowd_waits, stopped_between_rtr_and_rts, stopped_in_the_handshake,
                        stopped_in_traffic)
from test_face_late import users  # noqa: F401  pylint: disable=unused-import

CROWD, LATE, STILL = 4000, 60, 30


@pytest.mark.parametrize("first_asks", [True, False], ids=["those-that-wait-ask", "those-that-are-late-ask"])
def test_crowd_waits(usiw_run, tmp_path, other_host, first_asks):
    crowd_waits(usiw_run, tmp_path, other_host, CROWD, LATE, first_asks)


def test_stopped_between_rtr_and_rts(users):  # noqa: F811  pylint: disable=redefined-outer-name
    at_once(stopped_between_rtr_and_rts, [users], KINDS, [STILL])


def test_stopped_in_the_handshake(users):  # noqa: F811  pylint: disable=redefined-outer-name
    at_once(stopped_in_the_handshake, [users], KINDS, [STILL])


def test_stopped_in_traffic(usiw_run, tmp_path):
    stopped_in_traffic(usiw_run, tmp_path, STILL)
