# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The two ends and the wire between them."""

import contextlib
import glob
import json
import os
import re
import subprocess
from typing import NamedTuple

from . import there
from .procs import Proc, run, until


class Site(NamedTuple):
    """One end as scripts/vm describes it."""
    dev: str
    ip: str
    ip6: str
    netdev: str
    ns: str
    where: str  # what to put before a command to run it there

    @property
    def host(self):
        """What to put before a command to run it on its host, in the namespace in which that began."""
        return self.where.partition("ip netns exec")[0]


def link_local_of(netdev, where=""):
    """The address that the kernel has given it, once it may be used."""
    return until(lambda: re.search(r"inet6 (fe80\S+)/64 scope link(?! tentative)",
                                   run("ip", "-o", "-6", "addr", "show", "dev", netdev, where=where)),
                 f"a link-local address of {netdev}")[1]


def site(letter):
    """End A or B."""
    get = lambda key: os.environ.get(f"{letter}_{key}", "")  # noqa: E731
    return Site(get("DEV"), get("IP"), get("IP6"), get("NETDEV"), get("NS"), get("EXEC"))


A, B = site("A"), site("B")

#: The device type that usiw-run shows to programs: "iwarp", an RNIC, or "roce" (docs/face.md). The module has no other
#: than "iwarp".
FACE = os.environ.get("USIW_FACE") or "iwarp"

#: Before a command: user nobody without any capability.
NOBODY = ("setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all --ambient-caps=-all "
          "--no-new-privs")


def unprivileged(end):
    """The same end for programs of user nobody."""
    return end._replace(where=f"{end.where} {NOBODY}")


@contextlib.contextmanager
def devices_for_all():
    """/dev/infiniband as udev makes it where rdma-core is installed."""
    modes = {path: os.stat(path).st_mode & 0o777 for path in glob.glob("/dev/infiniband/*")}
    for path in modes:
        os.chmod(path, 0o666)
    if there.is_remote(B.where):
        run("sh", "-c", "chmod 0666 /dev/infiniband/*", where=B.where)
    try:
        yield
    finally:
        for path, mode in modes.items():
            with contextlib.suppress(OSError):
                os.chmod(path, mode)


@contextlib.contextmanager
def container(site, controller):
    """The same end for programs in a container, and the path of its control group, which has this controller."""
    group = f"/sys/fs/cgroup/{site.dev}"
    run("sh", "-c", f"echo +{controller} >/sys/fs/cgroup/cgroup.subtree_control && mkdir {group}", where=site.host)
    # Joined before `ip netns exec`, which mounts another /sys.
    inside = f"{site.host} sh -c 'echo $$ >{group}/cgroup.procs && exec \"$@\"' sh "
    try:
        yield site._replace(where=inside + site.where.removeprefix(site.host)), group
    finally:
        run("sh", "-c", f"echo 1 >{group}/cgroup.kill; until rmdir {group}; do sleep 0.1; done", where=site.host)


PEER = os.environ.get("PEER", "")
TOPOLOGY = os.environ.get("TOPOLOGY", "")

#: What answers the programs: the module in a guest, or usiw-run (tests/kernel-less).
WORLD = os.environ.get("WORLD", "module")


def mac_of(netdev):
    """Its Ethernet address, as text."""
    with open(f"/sys/class/net/{netdev}/address", encoding="ascii") as f:
        return f.read().strip()


@contextlib.contextmanager
def qdisc(args, sites=(A, B)):
    """A queueing discipline on the netdevs of `sites` as `tc qdisc replace dev X root ARGS` makes it."""
    # What takes it away again waits already: beside threads that poll, a program may take seconds to start.
    removers = [Proc(["tc", "-batch", "-"], where=s.where, stdin=subprocess.PIPE) for s in sites]
    try:
        for s in sites:
            run("tc", "qdisc", "replace", "dev", s.netdev, "root", *args.split(), where=s.where)
        yield
    finally:
        for s, remover in zip(sites, removers):
            remover.tell(f"qdisc del dev {s.netdev} root\n")
        for remover in removers:
            remover.wait()  # with an error when the netdev has gone meanwhile
            remover.kill()


def netem(args, sites=(A, B)):
    """netem with these parameters in both directions."""
    return qdisc(f"netem limit 20000 {args}", sites)


@contextlib.contextmanager
def nft(table, *rules, where=""):
    """A table of these rules."""
    run("nft", "add", "table", *table.split(), where=where)
    try:
        for rule in rules:
            run("nft", rule, where=where)
        yield
    finally:
        run("nft", "delete", "table", *table.split(), where=where)


#: What runs a command on each host that the ends are on: one, or two for the topology hosts.
HOSTS = ["", B.where] if there.is_remote(B.where) else [""]


def host_of(device):
    """The one of HOSTS that has the device."""
    return HOSTS[-1] if device == B.dev else HOSTS[0]


def rdma_links():
    """{device: entry} of `rdma link show`."""
    return {entry["ifname"]: entry for host in HOSTS for entry in _links_of(host)}


def _links_of(host):
    """`rdma` lists the devices and then asks for each: one that goes in between is an error, and it is asked again."""
    while True:
        proc = Proc(["rdma", "-j", "link", "show"], where=host)
        try:
            if proc.wait() != 0 and "Invalid argument" in proc.output:
                continue
            return json.loads(proc.expect() or "[]")
        finally:
            proc.kill()


def statistics(device):
    """{counter: value} of `rdma statistic show`."""
    found = {}
    shown = run("rdma", "-j", "statistic", "show", "link", f"{device}/1", where=host_of(device))
    for entry in json.loads(shown or "[]"):
        found.update({key: value for key, value in entry.items() if isinstance(value, int) and key != "port"})
    return found
