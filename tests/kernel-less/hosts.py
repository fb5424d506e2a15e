# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Two network namespaces with a veth pair between them, which stand for two hosts."""

import contextlib
import json
import os
import re
import subprocess

from support.procs import Proc, run, until

A4, B4, A6, B6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"


@contextlib.contextmanager
def other_host():
    """What to put before a command to run it at B; A is this namespace."""
    with subprocess.Popen(["unshare", "--net", "sleep", "1000"]) as holder:
        try:
            where = f"nsenter --target {holder.pid} --net"
            until(lambda: os.readlink("/proc/self/ns/net") != os.readlink(f"/proc/{holder.pid}/ns/net"), "a namespace")
            run("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", str(holder.pid))
            run("ip", "link", "set", "lo", "up", where=where)
            for device, four, six, at in (("va", A4, A6, ""), ("vb", B4, B6, where)):
                run("ip", "addr", "add", f"{four}/24", "dev", device, where=at)
                run("ip", "addr", "add", f"{six}/64", "dev", device, "nodad", where=at)
                run("ip", "link", "set", device, "up", where=at)
            for device, at in (("va", ""), ("vb", where)):
                until(lambda d=device, a=at: "state UP" in run("ip", "-o", "link", "show", "dev", d, where=a),
                      "carrier")
            yield where
            run("ip", "link", "del", "va")  # it would go with the other namespace, some time later
        finally:
            holder.kill()


def wait_for_link_local(where):
    """Waits until both ends of the wire have their link-local address, which is GID 0 of the RoCE face. Before that
    the kernel looks whether another host has the address."""
    for device, at in (("va", ""), ("vb", where)):
        until(lambda d=device, a=at: "fe80" in run("ip", "-6", "addr", "show", "dev", d, "scope", "link", "-tentative",
                                                   where=a), "a link-local address")


def received(device, where=""):
    """Bytes and frames that a device has received."""
    link, = json.loads(run("ip", "-j", "-s", "link", "show", "dev", device, where=where))
    return link["stats64"]["rx"]["bytes"], link["stats64"]["rx"]["packets"]


def frames(device, where=""):
    return received(device, where)[1]


def mac_of(device, where=""):
    return re.search(r"link/ether (\S+)", run("ip", "-o", "link", "show", "dev", device, where=where))[1]


def both(usiw_run, where, server, client, port, kinds=("auto", "auto")):
    first = Proc([*where.split(), usiw_run.path, "--port", kinds[0], *server]).wait_listening(port)
    second = usiw_run(client, ["--port", kinds[1]])
    second.expect(0, 60)
    first.expect(0, 60)
    return second.output
