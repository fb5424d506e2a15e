# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A world to be destroyed: two network namespaces with a netdev and a device each, verified traffic in both directions,
what can happen to all that, and how it is made whole again.

The netdevs are a veth pair; with the ends in two guests (topology hosts) a namespace in each of them, and VLANs of the
one wire."""

import os
import pathlib
import random
import struct
import subprocess
import tempfile
import time

from . import there
from .cases import PROGRAMS, path_of
from .net import A, B, HOSTS, Site, rdma_links
from .pairs import next_port
from .procs import PATIENCE, Failed, Proc, until
from .traces import Traces

#: Exit statuses of `traffic` (programs/traffic.h).
FINE, GONE = 0, 4

#: What programs have their datagrams go by, and how often it is drawn.
PORTS = {"auto": 2, "socket": 1, "packet": 1}

USIW_RUN = pathlib.Path(PROGRAMS).parents[1] / "run" / "usiw-run"


def drawn_port(rng):
    """The variables of a program that says how its datagrams go, with the module and under usiw-run."""
    port = rng.choices(list(PORTS), list(PORTS.values()))[0]
    return {"USIW_PORT": port, "USIW_RUN_PORT": port}


def drawn_waiting(rng, share_that_polls):
    """The options that say how a program waits. A program that polls slows all others down."""
    return [] if rng.random() < share_that_polls else ["--events"]


def _tool(argv, text, check):
    """Runs a command that reads a batch; its exec costs more than its work."""
    Proc.started_total += 1
    done = subprocess.run(argv, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60 * PATIENCE, check=False)
    if check and done.returncode:
        raise Failed(f"{' '.join(argv)}: exit status {done.returncode}\n{text}\n{done.stdout}")
    return done


def on_host(site, *argv, text="", check=True):
    """Runs a command there."""
    return _tool([*site.host.split(), *argv], text, check)


def ip(site, *lines, ns=None, check=True):
    """ip -batch with these lines in the site's namespace, or another one of its host; "": the one in which it began."""
    ns = site.ns if ns is None else ns
    return on_host(site, "ip", *(["-n", ns] if ns else []), "-batch", "-", text="\n".join(lines) + "\n", check=check)


def tc(site, line):
    """tc -batch with a line about the root of the site's netdev: VERB and the rest."""
    verb, _, rest = line.partition(" ")
    on_host(site, "tc", "-n", site.ns, "-batch", "-", text=f"qdisc {verb} dev {site.netdev} root {rest}\n")


class Persist:
    """One process `traffic persist` and what it has counted."""

    CONNECTIONS = 2

    def __init__(self, site, to, port, path, *options, env=None):
        self.path, self.where = path, site.where
        if there.is_remote(self.where):
            there.ask(["sh", "-c", f"mkdir -p {os.path.dirname(path)}; rm -f {path}; truncate -s 192 {path}"],
                      self.where)
        else:
            with open(path, "wb") as f:
                f.write(bytes(3 * 8 * 8))
        self.proc = Proc([
            path_of("traffic"), "persist", "--progress", path, "--from", site.ip, "--to", to.ip, "--port", port,
            "--connections", self.CONNECTIONS, *options
        ],
                         where=site.where, env=env)

    def counters(self):
        """(rounds, connects, failures), each a list by connection."""
        if there.is_remote(self.where):
            values = [int(word) for word in there.ask(["od", "-An", "-v", "-tu8", self.path], self.where).split()]
        else:
            with open(self.path, "rb") as f:
                values = struct.unpack("24Q", f.read())
        return tuple(list(values[i:i + self.CONNECTIONS]) for i in (0, 8, 16))


class Client:
    """`traffic persist` at a site, again and again."""

    def __init__(self, site, to, port, directory, rng):
        self.site, self.to, self.port, self.rng = site, to, port, rng
        self.path = os.path.join(directory, f"{site.netdev}-{to.netdev}")
        self.traces = Traces(site, f"{directory}/trace-client-{site.netdev}")
        self.finished = [0, 0, 0]  # rounds, connects, failures of processes that have ended
        self.outcomes = {}
        self.killed = False
        self.run = self.base = None
        self.start()

    @property
    def proc(self):
        """The present process."""
        return self.run.proc

    def start(self):
        """Starts the program; its counters begin at 0."""
        self.killed = False
        self.base = [0] * Persist.CONNECTIONS
        self.run = Persist(self.site, self.to, self.port, self.path, "--size", self.rng.choice([300, 3000, 20000]),
                           "--pause-ms", int(20 * PATIENCE), *drawn_waiting(self.rng, 0.1),
                           env={**drawn_port(self.rng), **self.traces.begin()})

    def ended(self):
        """Adds up what the process has done."""
        for i, values in enumerate(self.run.counters()):
            self.finished[i] += sum(values)
        for line in self.proc.output.splitlines():
            what, _, times = line.rpartition(": ")
            if times.isdigit():
                self.outcomes[what] = self.outcomes.get(what, 0) + int(times)

    def total(self):
        """Rounds, connects, failures so far."""
        return [done + sum(now) for done, now in zip(self.finished, self.run.counters())]

    def mark(self):
        """Progress is counted from now on."""
        self.base = self.run.counters()[0]

    def moved(self, rounds):
        """True when every connection has done so many rounds since mark()."""
        return all(now >= before + rounds for now, before in zip(self.run.counters()[0], self.base))


class Server:
    """`traffic server` at a site."""

    def __init__(self, site, directory, rng):
        self.site, self.rng = site, rng
        self.port = next_port()
        self.traces = Traces(site, f"{directory}/trace-server-{site.netdev}")
        self.outcomes = {}
        self.killed = False
        self.proc = None
        self.start()

    def start(self):
        """Starts it and waits until it listens."""
        self.killed = False
        self.proc = Proc(
            [path_of("traffic"), "server", "--strict", "--to", self.site.ip, "--port", self.port,
             *drawn_waiting(self.rng, 0.05)],
            where=self.site.where, env={**drawn_port(self.rng), **self.traces.begin()})
        self.proc.wait_for(r"^listening \d+")

    def ended(self):
        """Nothing to add up."""


class World:
    """Sites X and Y, each with a server and a client of the other's. With `without_module` the programs of Y are under
    usiw-run, and it has no device."""

    MTU, MOST = 1500, 9000
    VLAN = 77

    def __init__(self, seed, device_type, without_module=False):
        self.rng = random.Random(seed)
        self.type = device_type
        self.directory = tempfile.mkdtemp(prefix="storm-")
        self.sites = [
            Site(f"{device_type}-{n}", f"10.77.0.{i + 1}", "", f"storm{n}", f"storm-{n}",
                 f"{HOSTS[i % len(HOSTS)]} ip netns exec storm-{n}".lstrip()) for i, n in enumerate("xy")
        ]
        if without_module:
            self.sites[1] = self.sites[1]._replace(
                dev="", where=f"{self.sites[1].where} {USIW_RUN} --address {self.sites[1].ip}")
        self.device_goes = False  # programs may say so and end
        if self.apart:
            self.set_wire_mtu(self.MOST)
        for site in self.sites:
            ip(site, f"netns add {site.ns}", ns="")
        self.build_link()
        self.servers = [Server(site, self.directory, self.rng) for site in self.sites]
        self.clients = [Client(self.sites[i], self.sites[1 - i], self.servers[1 - i].port, self.directory, self.rng)
                        for i in range(2)]

    @property
    def with_device(self):
        """The sites whose programs use the module."""
        return [site for site in self.sites if site.dev]

    @property
    def apart(self):
        """The sites are on two hosts."""
        return len(HOSTS) > 1

    @property
    def actors(self):
        """All processes, servers first."""
        return [*self.servers, *self.clients]

    # ---- What the world consists of ----

    def set_wire_mtu(self, value):
        """Of the netdevs that have the VLANs."""
        for site, end in zip(self.sites, (A, B)):
            ip(site, f"link set {end.netdev} mtu {value}", ns="")

    def has_netdev(self, site):
        """Its namespace has it."""
        return on_host(site, "ip", "-n", site.ns, "link", "show", site.netdev, check=False).returncode == 0

    def build_link(self):
        """What is missing of the netdevs, with addresses and a device at either end; the namespaces are there."""
        x, y = self.sites
        missing = [site for site in self.sites if not self.has_netdev(site)]
        if not self.apart and missing:
            ip(x, f"link add {x.netdev} mtu {self.MTU} netns {x.ns} type veth peer name {y.netdev} mtu {self.MTU} "
               f"netns {y.ns}", ns="")
        for site in missing if self.apart else []:
            # With a MAC of its own, by which rdma_cm tells its device from the one below (docs/rdma-cm.md).
            vlan = (f"link add link {(A, B)[self.sites.index(site)].netdev} name {site.netdev} "
                    f"address 02:77:00:00:00:0{site.ip[-1]} mtu {self.MTU} type vlan id {self.VLAN}")
            until(lambda site=site, vlan=vlan: ip(site, vlan, ns="", check=False).returncode == 0,
                  "the VLAN of a namespace that was deleted being gone", timeout=60, every=0.3)
            ip(site, f"link set {site.netdev} netns {site.ns}", ns="")
        for site in missing:
            ip(site, f"addr add {site.ip}/24 dev {site.netdev}", "link set lo up", f"link set {site.netdev} up")
        self.add_devices()

    def add_devices(self):
        """The RDMA devices that are missing."""
        links = rdma_links()
        for site in self.with_device:
            if site.dev not in links:
                _tool([*site.where.split(), "rdma", "-b", "-"],
                      f"link add {site.dev} type {self.type} netdev {site.netdev}\n", True)
        until(lambda: all(rdma_links().get(site.dev, {}).get("state") == "ACTIVE" for site in self.with_device),
              "the devices being active", timeout=30, every=0.3)
        self.refresh_neighbours()

    def wait_devices_gone(self, behind=None):
        """They go behind their netdevs' backs: with that of site `behind` goes its peer of a veth pair."""
        sites = self.sites if behind is None or not self.apart else [behind]
        until(lambda: not {site.dev
                           for site in sites} & rdma_links().keys(),
              "the devices going with their netdevs",
              timeout=60,
              every=0.3)

    def refresh_neighbours(self):
        """rdma_cm misses a neighbour's answer that comes at once; see conftest.neighbours."""
        for here, other in zip(self.sites, reversed(self.sites)):
            subprocess.run([*here.where.split(), "ping", "-q", "-c", "1", "-w", "5", other.ip],
                           stdout=subprocess.DEVNULL,
                           check=False,
                           timeout=30 * PATIENCE)

    # ---- Processes ----

    def kill(self, actor, signal=9):
        """Ends a process, which is then no surprise."""
        actor.killed = True
        actor.proc.signal(signal)

    def mend(self):
        """Starts what has ended; raises when it ended as it may not."""
        for actor in self.actors:
            status = actor.proc.status
            if status is None:
                continue
            if not (actor.killed and status in (-9, -15, FINE, GONE)) and not (self.device_goes and status == GONE):
                actor.proc.fail(f"ended with status {status}")
            actor.ended()
            actor.proc.kill()
            actor.start()

    def wait_traffic(self, rounds=2, timeout=150):
        """Waits until every connection moves data again."""
        for client in self.clients:
            client.mark()
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            self.mend()
            if all(client.moved(rounds) for client in self.clients):
                return
            if time.monotonic() > deadline:
                said = "\n".join(f"--- {' '.join(a.proc.argv)}\n{a.proc.kernel_stack()}\n{a.proc.output[-1500:]}"
                                 for a in self.actors)
                state = "\n".join(f"{c.site.netdev}: {c.run.counters()} since {c.base}" for c in self.clients)
                raise Failed(f"traffic does not go on within {timeout} s\n{state}\n{said}")
            time.sleep(0.1)

    def totals(self):
        """Rounds, connects, failures of all clients."""
        return [sum(values) for values in zip(*(client.total() for client in self.clients))]

    def end_in_order(self):
        """Clients first, then servers, each with status 0; returns {outcome: count}."""
        self.device_goes = False
        for group in (self.clients, self.servers):
            for actor in group:
                actor.proc.signal(15)
            for actor in group:
                actor.proc.expect(FINE, 90)
                actor.ended()
        outcomes = {}
        for client in self.clients:
            for what, times in client.outcomes.items():
                outcomes[what] = outcomes.get(what, 0) + times
        return outcomes

    def sockets_left(self):
        """UDP, packet and raw sockets in both namespaces."""
        text = ""
        for site in self.sites:
            done = subprocess.run(
                [*site.where.split(), "sh", "-c", "tail -qn +2 /proc/net/udp /proc/net/packet /proc/net/raw"],
                stdout=subprocess.PIPE,
                text=True,
                timeout=30 * PATIENCE,
                check=False)
            text += done.stdout
        return text

    def destroy(self):
        """Ends everything, whatever state it is in."""
        for actor in self.actors:
            actor.proc.kill()
        for site in self.sites:
            ip(site, f"netns del {site.ns}", ns="", check=False)
            on_host(site, "rm", "-rf", self.directory)
        self.wait_devices_gone()
        if self.apart:
            self.set_wire_mtu(self.MTU)


# ---- Disturbances ----
# Each is a generator: what it does, `yield SECONDS` for as long as it lasts, and what makes the world whole again.

def kill_client(world, rng):
    """kill -9."""
    world.kill(rng.choice(world.clients))
    yield 0


def kill_server(world, rng):
    """kill -9."""
    world.kill(rng.choice(world.servers))
    yield 0


def kill_all(world, rng):
    """Every process in random order."""
    for actor in rng.sample(world.actors, 4):
        world.kill(actor)
    yield 0


def terminate(world, rng):
    """SIGTERM: a client ends in order, the server destroys what it has."""
    world.kill(rng.choice(world.actors), 15)
    yield rng.uniform(0, 1)


def stop(world, rng):
    """SIGSTOP for seconds."""
    chosen = rng.sample(world.actors, rng.randint(1, 2))
    for actor in chosen:
        actor.proc.signal(19)
    yield rng.uniform(0.3, 6)
    for actor in chosen:
        actor.proc.signal(18)


def stop_and_kill(world, rng):
    """A stopped process is killed."""
    actor = rng.choice(world.actors)
    actor.proc.signal(19)
    yield rng.uniform(0.1, 2)
    world.kill(actor)


def link_down(world, rng):
    """The netdev of one end goes down and comes up."""
    site = rng.choice(world.sites)
    ip(site, f"link set {site.netdev} down")
    yield rng.choice([0, 0.3, 2, 6])
    ip(site, f"link set {site.netdev} up")


def address_removed(world, rng):
    """Its address is taken from an end, and given back."""
    site = rng.choice(world.sites)
    ip(site, f"addr del {site.ip}/24 dev {site.netdev}")
    yield rng.choice([0, 0.5, 3])
    ip(site, f"addr add {site.ip}/24 dev {site.netdev}")


def mtu(world, rng):
    """Another MTU at one or both ends."""
    chosen = rng.sample(world.sites, rng.randint(1, 2))
    value = rng.choice([576, 700, 1400, 4000, 9000])
    for site in chosen:
        ip(site, f"link set {site.netdev} mtu {value}")
    yield rng.choice([0, 1, 2.5])
    for site in chosen:
        ip(site, f"link set {site.netdev} mtu {world.MTU}")


def mac(world, rng):
    """Another MAC address, which the other end learns."""
    site = rng.choice(world.sites)
    address = "02:" + ":".join(f"{rng.randrange(256):02x}" for _ in range(5))
    ip(site, f"link set {site.netdev} address {address}")
    yield rng.choice([0, 0.5])
    for other in world.sites:
        ip(other, f"neigh flush dev {other.netdev}")


def neighbours_lost(world, rng):
    """The neighbour tables are emptied a few times."""
    for _ in range(rng.randint(1, 4)):
        for site in world.sites:
            ip(site, f"neigh flush dev {site.netdev}")
        yield 0.2


NETEM = ["loss 1%", "loss 20%", "loss 100%", "loss gemodel 2% 20% 70% 1%", "delay 20ms 15ms distribution normal",
         "delay 200ms", "delay 5ms reorder 30% 50%", "duplicate 30%", "corrupt 10%", "rate 3mbit limit 30",
         "loss 3% duplicate 5% corrupt 3% delay 2ms 2ms reorder 20%", "slot 20ms 60ms"]


def netem(world, rng):
    """A bad wire, of one kind after another, in one or both directions."""
    chosen = rng.sample(world.sites, rng.randint(1, 2))
    for _ in range(rng.randint(1, 2)):
        kind = rng.choice(NETEM)
        for site in chosen:
            tc(site, f"replace netem {kind if 'limit' in kind else 'limit 2000 ' + kind}")
        yield rng.uniform(0.5, 3 if kind != "loss 100%" else 6)
    for site in chosen:
        tc(site, "del")


def qdisc(world, rng):
    """Other queueing disciplines come and go, with what is queued in them."""
    site = rng.choice(world.sites)
    for kind in rng.sample(["tbf rate 20mbit burst 10kb limit 20kb", "pfifo limit 3", "fq_codel", "prio"], 2):
        tc(site, f"replace {kind}")
        yield 0.7
    tc(site, "del")


def rmmod(world, rng):
    """Is refused for as long as it is used."""
    for _ in range(rng.randint(1, 3)):
        done = on_host(rng.choice(world.sites), "rmmod", world.type, check=False)
        if done.returncode == 0 or "in use" not in done.stdout:
            raise Failed(f"rmmod of a module in use: status {done.returncode}, {done.stdout}")
        yield 0.1


def link_delete(world, rng):
    """`rdma link delete` of one device or both."""
    world.device_goes = True
    for site in rng.sample(world.with_device, rng.randint(1, len(world.with_device))):
        on_host(site, "rdma", "-b", "-", text=f"link delete {site.dev}\n")
    yield rng.choice([0, 0, 1, 3])
    world.add_devices()


def netdev_deleted(world, rng):
    """A netdev is deleted below its device, and of a veth pair the other one with it."""
    world.device_goes = True
    site = rng.choice(world.sites)
    ip(site, f"link del {site.netdev}")
    yield rng.choice([0, 1])
    world.wait_devices_gone(site)
    world.build_link()


def netdev_moves(world, rng):
    """A netdev goes into another namespace: its device goes, and is made again when it is back."""
    world.device_goes = True
    site, other = rng.sample(world.sites, 2)
    away = "" if world.apart else other.ns
    ip(site, f"link set {site.netdev} netns {away or 1}")
    yield rng.choice([0, 1])
    until(lambda: site.dev not in rdma_links(), "the device going", timeout=60, every=0.3)
    if away:
        ip(site, f"link set {site.netdev} netns 1", ns=away)
    ip(site, f"link set {site.netdev} netns {site.ns}", ns="")
    ip(site, f"addr add {site.ip}/24 dev {site.netdev}", f"link set {site.netdev} up")
    world.add_devices()


def netns_deleted(world, rng):
    """A namespace loses its name under traffic, then its processes: it goes with its netdev and its device."""
    world.device_goes = True
    site = rng.choice(world.sites)
    actors = [actor for actor in world.actors if actor.site is site]
    steps = [lambda: ip(site, f"netns del {site.ns}", ns=""), *(lambda a=actor: world.kill(a) for actor in actors)]
    rng.shuffle(steps)
    for step in steps:
        step()
        yield rng.choice([0, 0.2, 0.5])
    for actor in actors:
        actor.proc.wait(30)
    world.wait_devices_gone(site)
    ip(site, f"netns add {site.ns}", ns="")
    world.build_link()


#: What changes something and puts it back, with how often it is drawn.
GENTLE = {
    kill_client: 5,
    kill_server: 4,
    kill_all: 1,
    terminate: 2,
    stop: 4,
    stop_and_kill: 2,
    link_down: 4,
    address_removed: 3,
    mtu: 3,
    mac: 2,
    neighbours_lost: 1,
    netem: 8,
    qdisc: 2,
    rmmod: 2
}
#: What takes devices away.
HARSH = {link_delete: 5, netdev_deleted: 2, netdev_moves: 2, netns_deleted: 3}


def draw(rng):
    """One step: the functions of disturbances that happen together, in the order in which they begin."""
    weights = {**GENTLE, **HARSH}
    first = rng.choices(list(weights), list(weights.values()))[0]
    if rng.random() > 0.3:
        return [first]
    # The second one must not ask for a device or netdev that the first one has taken away.
    processes = [kill_client, kill_server, kill_all, stop, rmmod]
    second = rng.choice(processes if first in HARSH or first not in (netem, qdisc, mtu) else [*processes, link_delete])
    return [first, second] if second is not first else [first]


def disturb(world, names, seed):
    """Carries a step out: all disturbances begin, one after another they go on and end."""
    rng = random.Random(seed)
    running = [function(world, rng) for function in names]
    while running:
        for disturbance in list(running):
            try:
                time.sleep(next(disturbance))
            except StopIteration:
                running.remove(disturbance)
