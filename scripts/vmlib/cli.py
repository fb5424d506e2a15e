# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The command line of scripts/vm."""

import argparse
import subprocess
import sys

from . import guest, kernels, session
from .paths import HarnessError, say

EPILOG = """\
exit status: that of the command (128+N for signal N), or
  96   the guest did not come as far as the command
  97   the guest's kernel had a panic, oops, WARN, hang or the like, or a process could not be killed
  98   the command succeeded, but the kernel printed a warning (see --allow-dmesg)
  99   QEMU ran a breakpoint that is not in the guest's memory, and the kernel an oops: an error of QEMU 7.2
  124  time-out, of the command or of the whole guest: the message says which
in the guest: A_DEV A_IP A_IP6 A_NETDEV A_NS A_EXEC and the same for B, KVER, TOPOLOGY, PEER,
  VM_OUT (a folder that survives)
"""


def build_parser():
    """The parser; demo and compare take the options of `run` over."""
    parser = argparse.ArgumentParser(prog="scripts/vm", description="Boots guests with the module and two RDMA ends.",
                                     epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, text in (("run", "run a command in a new guest"), ("shell", "an interactive shell in a new guest")):
        action = actions.add_parser(name, help=text, epilog=EPILOG,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
        add_options(action)
        if name == "run":
            action.add_argument("command", nargs="+", metavar="-- COMMAND", help="and its arguments")
    prepare = actions.add_parser("prepare", help="fill the caches of the named kernels")
    prepare.add_argument("kernels", nargs="*", default=["6.1"], metavar="KERNEL")
    return parser


def add_options(parser):
    """The options that describe a guest."""
    parser.add_argument("--kernel", default="6.1", metavar="VERSION",
                        help="6.1 (default), 6.12, sid (docs/testing-guest.md), debug (docs/testing-kernel.md), "
                             "or a full version")
    parser.add_argument("--topology", default="veth",
                        choices=("veth", "netns", "exclusive", "lo", "host", "hosts", "none"),
                        help="see scripts/topology; hosts: two guests on one wire; none: only the module")
    parser.add_argument("--peer", choices=("siw", "rxe"), help="this driver in place of usiw")
    parser.add_argument("--no-module", action="store_true", help="no RDMA driver at all")
    parser.add_argument("--timeout", type=int, default=120, metavar="SEC", help="for the command; 0: none (120)")
    parser.add_argument("--mem", type=int, default=2048, metavar="MB", help="memory of the guest (2048)")
    parser.add_argument("--smp", type=int, default=2, metavar="N", help="processors of the guest (2)")
    parser.add_argument("--kernel-b", metavar="VERSION", help="hosts: of the second guest (as --kernel)")
    parser.add_argument("--smp-b", type=int, metavar="N", help="hosts: of the second guest (as --smp)")
    parser.add_argument("--nic", default="virtio-net-pci", choices=tuple(guest.NICS),
                        help="hosts: at both ends of the wire")
    parser.add_argument("--netdev-mtu", type=int, default=1500, metavar="N", help="MTU of the wire (1500)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="for the command's environment")
    parser.add_argument("--allow-dmesg", action="append", default=[], metavar="REGEX",
                        help="a kernel message that is expected")
    parser.add_argument("--unload", action="store_true",
                        help="afterwards remove the devices and the module; a failure of that is status 97")
    parser.add_argument("--accelerator", choices=("tcg", "kvm"), help="do not probe which one works")
    parser.add_argument("--log", metavar="FILE", help="where the guest's log goes (build/vm/log/NAME-TIME.log)")
    parser.add_argument("--name", help="of the log (default: from the command)")
    parser.add_argument("--no-wait", action="store_true",
                        help="do not wait for other guests on this machine to end (then nothing can be measured)")
    parser.add_argument("--quiet", action="store_true", help="say nothing when all is well")


def main(argv):
    """Runs scripts/vm; returns the exit status."""
    options = build_parser().parse_args(argv)
    try:
        if options.action == "prepare":
            for name in options.kernels:
                kernels.find(name).prepare()
            return 0
        if options.action == "shell":
            if "--timeout" not in " ".join(argv):
                options.timeout = 0
            return session.run_guest(options, ["/bin/bash", "-i"], interactive=True)
        return session.run_guest(options, options.command)
    except HarnessError as error:
        say(str(error))
        return session.STATUS_HARNESS
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    finally:
        if sys.stdin.isatty():
            subprocess.run(["stty", "sane"], check=False)
