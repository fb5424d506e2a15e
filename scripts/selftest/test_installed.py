# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What README says of a real machine, as far as `make install` goes, in a guest that has nothing of usiw. This machine
does the make, with DESTDIR: the kernel's own takes minutes in a guest."""

import shutil
import subprocess

from guests import vm
from vmlib import kernels
from vmlib.paths import BUILD, PROJECT

#: The guest's modules are those that the harness needs, and may not be written to.
INSTALL = """
mkdir /run/upper /run/work
mount -t overlay -o lowerdir=/lib/modules,upperdir=/run/upper,workdir=/run/work modules /lib/modules
tar -c -C $DESTDIR . | tar -x -C / --keep-directory-symlink
depmod -a
cd /
modprobe usiw
ip link add eth0 type veth peer name other
ip link set eth0 up
ip link set other up
ip addr add 192.0.2.1/24 dev eth0
rdma link add usiw0 type usiw netdev eth0
ibv_devinfo -d usiw0
"""

USE = """
rping -s -a 192.0.2.1 -v -C 10 & server=$!
for i in $(seq 100); do rdma resource show cm_id | grep -q LISTEN && break; sleep 0.1; done
rping -c -a 192.0.2.1 -v -C 10
wait $server
usiw stat
rdma link delete usiw0
rmmod usiw
modprobe usiw netdevs=eth0,lo
rdma link show
rmmod usiw
"""


def test_make_install():
    dest = BUILD / "vm" / "installed"
    shutil.rmtree(dest, ignore_errors=True)
    subprocess.run(["make", "install", f"DESTDIR={dest}", f"KVER={kernels.find('6.1').version}"], cwd=PROJECT,
                   check=True)
    script = f"set -ex; DESTDIR={dest}; {INSTALL} {USE}"
    done = vm("--no-module", "--topology", "none", "--timeout", "300", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hca_id:\tusiw0" in done.stdout
    assert "ping data: rdma-ping-9" in done.stdout
    assert "comp_ok" in done.stdout, "usiw stat shows the counters"
    assert [line.split()[-1] for line in done.stdout.splitlines() if " netdev " in line] == ["eth0", "lo"]
