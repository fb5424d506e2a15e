# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is to happen inside of a guest, and the frames that come back. The other side is guest/."""

import os
import struct

from . import cpio
from .paths import BUILD, OUT, PROJECT, STANDARD_PATH, HarnessError

#: Name of the virtio-serial port that carries the frames.
PORT_NAME = "usiw.vm"

SYSCTLS = (
    "kernel/printk 7",                      # the console log has everything from here on
    "kernel/unknown_nmi_panic 1",           # the harness injects an NMI into a guest that hangs
    "kernel/hung_task_timeout_secs 30",
    "kernel/hung_task_warnings 5",
    "kernel/sysrq 1",
    "net/ipv6/conf/default/accept_dad 0",
)

PEER_MODULES = {"siw": "siw", "rxe": "rdma_rxe"}


def settings(kernel, options, command, tty=None, winsize=None, patience=None):
    """The strings "key=value" for guest/.

    `options` has the attributes of the command line (topology, peer, no_module, timeout, netdev_mtu, env, unload).
    """
    patience = patience or kernel.patience
    link_type = "none" if options.no_module and not options.peer else options.peer or "usiw"
    result = [f"base={path}" for path in kernel.initramfs_modules("base")]
    result += [f"late={path}" for path in kernel.initramfs_modules("late")]
    result += [f"sysctl={line}" for line in SYSCTLS]
    result += [f"project={PROJECT}", f"modules={kernel.modules}", f"kver={kernel.version}",
               f"timeout={options.timeout}"]
    if patience > 1:
        result.append(f"patience={patience}")
    if kernel.finds_leaks:
        result.append("leaks=1")
    if options.topology.startswith("hosts"):
        result += [f"ko={path}" for name in hosts_drivers(options) for path in kernel.module_order([name])]
    result += [f"ko={path}" for path in kernel_objects(kernel, options)]
    if options.topology != "none":
        script = str(PROJECT / "scripts" / "topology")
        arguments = [options.topology, "--type", link_type, "--mtu", str(options.netdev_mtu)]
        result += [f"setup={word}" for word in ["/bin/sh", script, "up", *arguments]]
        if options.unload or options.topology == "hosts-a":     # which has the other guest end in order
            result += [f"teardown={word}" for word in ["/bin/sh", script, "down", *arguments]]
    if options.unload and link_type != "none":
        result.append(f"unload={PEER_MODULES.get(link_type, link_type)}")
    result += [f"env={item}" for item in environment(kernel, options, patience)]
    if tty:
        result += [f"tty={tty}", f"env=TERM={os.environ.get('TERM', 'vt100')}"]
    if winsize:
        result.append(f"winsize={winsize[0]} {winsize[1]}")
    result += [f"arg={word}" for word in command]
    return result


#: QEMU's name of a NIC that two guests can be joined by, and its driver's.
NICS = {"virtio-net-pci": "virtio_net", "e1000e": "e1000e", "vmxnet3": "vmxnet3"}


def hosts_drivers(options):
    """Drivers of the wire of control and of that of the data."""
    return dict.fromkeys([NICS["virtio-net-pci"], NICS[options.nic]])


def kernel_objects(kernel, options):
    """Modules to load by path, after the point from which the kernel's messages are judged."""
    if options.peer == "siw":
        return [BUILD / "peer" / f"siw-{kernel.version}" / "siw.ko"]
    if options.peer == "rxe":
        return kernel.module_order(["rdma_rxe"])
    if options.no_module:
        return []
    module = BUILD / "kmod" / kernel.version / "usiw.ko"
    if not module.exists():
        raise HarnessError(f"{module.relative_to(PROJECT)} is missing: build it first, or use --peer or --no-module")
    return [module]


def environment(kernel, options, patience):
    """Environment of the command, without what the topology adds."""
    items = [f"PATH={STANDARD_PATH}", "HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "SHELL=/bin/bash",
             f"KVER={kernel.version}", f"TOPOLOGY={options.topology.partition('-')[0]}", f"PEER={options.peer or ''}",
             f"VM_OUT={OUT}", f"VM_PATIENCE={patience}", "PYTHONDONTWRITEBYTECODE=1"]
    if not options.peer:
        items.append(f"RDMAV_DRIVERS={BUILD / 'provider' / 'libusiw'}")
    return items + list(options.env)


def run_archive(strings):
    """The settings as an archive to append to the initramfs."""
    return cpio.archive({"run.conf": (b"".join(os.fsencode(text) + b"\0" for text in strings), 0o600)})


class FrameReader:
    """Cuts the byte stream of the port into (type, payload)."""

    _HEADER = struct.Struct("<cI")

    def __init__(self):
        self._pending = bytearray()

    def feed(self, data):
        """Takes bytes and yields the frames that are complete."""
        self._pending += data
        while len(self._pending) >= self._HEADER.size:
            kind, length = self._HEADER.unpack_from(self._pending)
            end = self._HEADER.size + length
            if len(self._pending) < end:
                return
            yield kind.decode("latin-1"), bytes(self._pending[self._HEADER.size:end])
            del self._pending[:end]
