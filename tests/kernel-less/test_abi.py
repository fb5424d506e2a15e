# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The raw ABIs, without libibverbs, librdmacm and the provider: the cases of tests/kmod/uapi_test that need no netdev
of the module's get the same answers, errors included, from usiw-run."""

import errno
import os
import pathlib
import re

import pytest

PROGRAMS = pathlib.Path(os.environ["USIW_RUN"]).resolve().parents[1] / "tests" / "kmod"
PROGRAM = str(PROGRAMS / "uapi_test")


@pytest.mark.parametrize("case", ["queues", "qp_states", "mr", "methods", "abi", "any_ioctl", "connect", "reject",
                                  "refused_by_engine", "destroy_qp_first", "abrupt", "wildcard", "many"])
def test_case(usiw_run, case):
    usiw_run([PROGRAM, case]).expect(0, 90)


@pytest.mark.parametrize("provider, version, remedy", [("older", 1, "usiw of"), ("newer", 4000, "usiw-dkms of")])
def test_provider_of_another_version_says_so_in_one_line(usiw_run, provider, version, remedy):
    out = usiw_run(["env", f"RDMAV_DRIVERS={PROGRAMS}/lib{provider}", str(PROGRAMS / "open_device"), "usiw0"]).expect(0)
    said, = [line for line in out.splitlines() if "usiw:" in line]
    assert re.match(rf"usiw: the loaded kernel module speaks ABI \d+ to \d+, this program's provider ABI {version}: "
                    rf"install {remedy}", said), out
    assert out.count(f"open: {errno.EPROTONOSUPPORT}") == 2, out


CONTEXTS_AT_ONCE = """
import ctypes, os, struct, threading

def get_context(fd, start, answers):
    answer = ctypes.create_string_buffer(256)
    # GET_CONTEXT, and all that a provider can do
    request = struct.pack("=IHHQIIQ", 0, 8, len(answer) // 4, ctypes.addressof(answer), {abi}, 0, 2 ** 64 - 1)
    start.wait()
    try:
        answers.append(os.write(fd, request) > 0)
    except OSError:
        answers.append(False)

for _ in range(300):
    fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
    answers, start = [], threading.Barrier(4)
    threads = [threading.Thread(target=get_context, args=(fd, start, answers)) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert sum(answers) == 1, answers
    os.close(fd)
"""


def test_a_file_gets_one_context_whoever_asks_at_once(usiw_run):
    header = (pathlib.Path(__file__).resolve().parents[2] / "uapi" / "usiw_abi.h").read_text()
    abi = re.search(r"#define USIW_ABI_VERSION\s+(\d+)", header)[1]
    usiw_run(["/usr/bin/python3", "-c", CONTEXTS_AT_ONCE.format(abi=abi)]).expect(0, 60)
