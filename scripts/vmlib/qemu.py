# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Starts QEMU and speaks with it: command line, choice of the accelerator, NMI and end."""

import json
import os
import pathlib
import platform
import select
import socket
import subprocess
import tempfile
import time
from typing import NamedTuple

from . import guest
from .paths import PROJECT, VM, locked, say, write_atomically

PROBE_SECONDS = 20

COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic panic_print=0x41 mitigations=off tsc=reliable no_timer_check "
    "nokaslr random.trust_cpu=on cryptomgr.notests audit=0 lsm= raid=noautodetect 8250.nr_uarts=1 "
    "init_on_alloc=0 net.ifnames=0 modprobe.blacklist=pcspkr rdinit=/init"
)


class Nic(NamedTuple):
    """A network device of a guest, and what QEMU joins it to: perhaps a socket that it inherits."""
    device: str
    backend: str
    fd: int | None = None


def wire(device_a, device_b):
    """((Nic of one guest, its socket), (Nic of the other, ...)) joined by a stream, which loses nothing by itself."""
    pair = socket.socketpair()
    return [(Nic(device, f"socket,fd={end.fileno()}", end.fileno()), end)
            for device, end in zip((device_a, device_b), pair)]


#: A NIC that is connected to nothing: the one netdev of the guest that outlives its namespace.
NOWHERE = Nic("virtio-net-pci", "user,restrict=on")


class Machine:
    """A running QEMU. `frames` and `console` are the read ends of pipes with the port's and the console's bytes."""

    def __init__(self, kernel, strings, accelerator, memory=2048, processors=2, interactive=False, nics=(NOWHERE,)):
        self._scratch = tempfile.TemporaryDirectory(prefix="usiw-vm-")
        scratch = pathlib.Path(self._scratch.name)
        initrd = scratch / "initrd"
        with open(initrd, "wb") as out:
            out.write(kernel.initramfs.read_bytes())
            out.write(guest.run_archive(strings))
        self._qmp_path = scratch / "qmp"
        self._errors = open(scratch / "errors", "w+b")  # pylint: disable=consider-using-with
        self.frames, frames_in = os.pipe()
        self.console, console_in = os.pipe()
        # setpriv: the guest does not outlive this process, however that ends.
        argv = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot",
                "-display", "none",
                "-machine", f"{kernel.machine},usb=off,hpet=off,i8042=on", "-m", str(memory), "-smp", str(processors),
                "-kernel", kernel.image, "-initrd", initrd, "-append", f"{COMMAND_LINE} {kernel.command_line}".strip(),
                *ACCELERATORS[accelerator],
                "-chardev", f"file,id=console,path=/proc/self/fd/{console_in},append=on", "-serial", "chardev:console",
                "-device", "virtio-serial-pci,id=ports,max_ports=4",
                "-chardev", f"file,id=frames,path=/proc/self/fd/{frames_in},append=on",
                "-device", f"virtserialport,bus=ports.0,nr=2,chardev=frames,name={guest.PORT_NAME}",
                "-qmp", f"unix:{self._qmp_path},server=on,wait=off",
                *share("host", "/", "readonly=on"), *share("project", PROJECT, "readonly=off")]
        for number, nic in enumerate(nics):
            argv += ["-netdev", f"{nic.backend},id=nic{number}", "-device", f"{nic.device},netdev=nic{number},romfile="]
        if interactive:
            argv += ["-chardev", "stdio,id=tty,signal=off", "-device", "virtconsole,bus=ports.0,nr=1,chardev=tty"]
        inherited = (frames_in, console_in, *(nic.fd for nic in nics if nic.fd is not None))
        self.process = subprocess.Popen([str(word) for word in argv], pass_fds=inherited,
                                        stdin=None if interactive else subprocess.DEVNULL, stderr=self._errors,
                                        stdout=None if interactive else self._errors,
                                        start_new_session=not interactive)
        os.close(frames_in)
        os.close(console_in)

    def inject_nmi(self):
        """Has the guest print the stacks of all its tasks; nothing happens if QEMU does not answer."""
        try:
            with socket.socket(socket.AF_UNIX) as monitor:
                monitor.settimeout(5)
                monitor.connect(str(self._qmp_path))
                stream = monitor.makefile("rw")
                stream.readline()
                for command in ("qmp_capabilities", "inject-nmi"):
                    stream.write(json.dumps({"execute": command}) + "\n")
                    stream.flush()
                    stream.readline()
        except OSError:
            pass

    def errors(self):
        """What QEMU itself has printed."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def end(self):
        """Stops QEMU at once and waits for it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def close(self):
        """Releases what belongs to the machine; the pipes must have been read before."""
        self.end()
        os.close(self.frames)
        os.close(self.console)
        self._errors.close()
        self._scratch.cleanup()


ACCELERATORS = {
    # Without what is quick in hardware only: "rep movsb" of any length (here a loop of bytes, by which the kernel would
    # clear and copy all pages), a fifth level of page tables, protection keys of pages.
    "tcg": ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,-erms,-la57,-pku"),
    "kvm": ("-accel", "kvm", "-cpu", "host"),
}


def share(tag, path, mode):
    """QEMU arguments for a 9p share."""
    return ("-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap,{mode}",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")


def choose_accelerator(kernel):
    """"kvm" if a guest boots with it on this machine, else "tcg". Probed once for each boot of the host."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    key = f"{boot} {platform.release()} {kernel.version}"
    cache = VM / f"accelerator-{kernel.version}"
    with locked(VM / "accelerator.lock"):
        if cache.exists():
            known, _, answer = cache.read_text(encoding="ascii").rpartition(" ")
            if known == key:
                return answer
        say(f"/dev/kvm exists: trying whether a guest boots with it (at most {PROBE_SECONDS} s, once)")
        answer = "kvm" if _boots_with_kvm(kernel) else "tcg"
        say(f"using {answer}")
        write_atomically(cache, f"{key} {answer}".encode())
        return answer


def _boots_with_kvm(kernel):
    strings = [f"base={path}" for path in kernel.initramfs_modules("base")] + ["probe=1"]
    machine = Machine(kernel, strings, "kvm", memory=512)
    try:
        reader = guest.FrameReader()
        deadline = time.monotonic() + PROBE_SECONDS
        while select.select([machine.frames], [], [], max(0, deadline - time.monotonic()))[0]:
            data = os.read(machine.frames, 65536)
            if not data:
                return False
            if any(frame == ("S", b"done") for frame in reader.feed(data)):
                return True
        return False
    finally:
        machine.close()
