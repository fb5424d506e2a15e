# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""By which port connections go, as the kernel shows it, and IPsec, which forbids some."""

import contextlib
import json

from .net import A, B
from .procs import run


def pages_of(pid):
    """Entries of the QPs of a process, with their pages, as `rdma resource show qp -dd` shows them."""
    return [e for e in json.loads(run("rdma", "-j", "-dd", "resource", "show", "qp")) if e.get("pid") == pid]


def qps_of(pid):
    """[(port, reason)] of the QPs of a process, by their names in uapi/usiw_names.h."""
    return [(e["drv_data_port"], e["drv_data_port_why"]) for e in pages_of(pid)]


@contextlib.contextmanager
def ipsec():
    """Transport mode between both ends, in both directions (one namespace holds both)."""
    key = "0x" + "11" * 20
    ends = [(A.ip, B.ip, 0x100), (B.ip, A.ip, 0x200)]
    run("modprobe", "xfrm_user")
    try:
        for src, dst, spi in ends:
            run("ip", "xfrm", "state", "add", "src", src, "dst", dst, "proto", "esp", "spi", spi, "mode", "transport",
                "aead", "rfc4106(gcm(aes))", key, 128)
        for src, dst, _ in ends:
            for direction in ("out", "in"):
                run("ip", "xfrm", "policy", "add", "src", src, "dst", dst, "proto", "udp", "dir", direction,
                    "tmpl", "src", src, "dst", dst, "proto", "esp", "mode", "transport")
        yield
    finally:
        run("ip", "xfrm", "policy", "flush")
        run("ip", "xfrm", "state", "flush")
