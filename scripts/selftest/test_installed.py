# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What README says of a real machine, as far as `make install` goes, in a guest that has nothing of usiw."""

from guests import vm
from vmlib.paths import PROJECT

#: The guest's modules are those that the harness needs, without the link to the headers, and may not be written to.
OWN_MODULES = """
cp -a /lib/modules /run/modules
mount --bind /run/modules /lib/modules
ln -s /usr/src/linux-headers-$(uname -r) /lib/modules/$(uname -r)/build
"""

INSTALL = """
make install
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
    script = f"set -ex; cd {PROJECT}; {OWN_MODULES} {INSTALL} {USE}"
    done = vm("--no-module", "--topology", "none", "--timeout", "900", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hca_id:\tusiw0" in done.stdout
    assert "ping data: rdma-ping-9" in done.stdout
    assert "comp_ok" in done.stdout, "usiw stat shows the counters"
    assert [line.split()[-1] for line in done.stdout.splitlines() if " netdev " in line] == ["eth0", "lo"]
