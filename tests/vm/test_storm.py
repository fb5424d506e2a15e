# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A storm: disturbances of every kind in random order under verified traffic on several connections.

    make chaos SEED=7 STEPS=200

After each step the world is made whole and every connection has to move data again in bounded time. Only a lost
connection may be an outcome of a step: programs/traffic_persist.cc says what that is.
"""

import random
import subprocess
import time

import pytest

from support import storm, watch
from support.net import A, B, HOSTS, PEER
from support.pairs import Server, rping
from support.procs import run, until
from support.traces import Traces
from test_chaos import reload_module

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(bool(PEER), reason="what others do here is their business")]


class Witness:
    """Traffic between the guest's usual ends, which the storm does not concern: not one connection may be lost."""

    def __init__(self, directory):
        self.traces = [Traces(site, f"{directory}/trace-{role}", "stop-on-error")
                       for site, role in ((B, "server"), (A, "client"))]
        self.server = Server(B, "--events", "--strict", env=self.traces[0].begin())
        self.client = storm.Persist(A, B, self.server.port, f"{directory}/witness", "--size", 5000, "--events",
                                    "--pause-ms", 100, env=self.traces[1].begin())

    def stop(self):
        """Ends it and returns how many rounds it has done."""
        self.client.proc.signal(15)
        output = self.client.proc.expect(0, 60)
        rounds, connects, failures = self.client.counters()
        assert not any(failures) and connects == [1] * len(connects), (connects, failures, output)
        self.server.stop()
        return sum(rounds)


def kernel_of(host):
    """What `scripts/vm --kernel` calls the one of a guest."""
    release = run("uname", "-r", where=host)
    return "debug" if "debug" in release else ".".join(release.split(".")[:2])


def test_storm(request, tmp_path, capsys, expected):
    expected.messages.append(watch.TOO_LONG)
    seed, steps = request.config.getoption("--storm-seed"), request.config.getoption("--storm-steps")
    without_module = request.config.getoption("--storm-without-module")
    kernels = [kernel_of(host) for host in HOSTS]
    replay = (f"make chaos SEED={seed} STEPS={steps} KERNEL={kernels[0]}" +
              (f" GUEST='--topology hosts --kernel-b {kernels[1]}'" if len(HOSTS) > 1 else "") +
              (" STORM=--storm-without-module" if without_module else ""))
    with capsys.disabled():
        print(f"\nstorm: {replay}", flush=True)
    rng = random.Random(seed)
    plan = [(storm.draw(rng), rng.randrange(1 << 30)) for _ in range(steps)]
    world = storm.World(seed, "usiw", without_module)
    number, step, witness = 0, [], None
    try:
        witness = Witness(str(tmp_path))
        world.wait_traffic()
        before = None
        for number, (step, step_seed) in enumerate(plan, 1):
            if number == 6:  # caches of the kernel have their sizes by now
                before = watch.kernel_memory_kb()
            start = time.monotonic()
            names = " + ".join(function.__name__ for function in step)
            storm.disturb(world, step, step_seed)
            whole = time.monotonic()
            world.wait_traffic()
            world.device_goes = False
            now = time.monotonic()
            with capsys.disabled():
                print(f"storm: {number:3} {names:32} {whole - start:5.1f} s, traffic again after {now - whole:4.1f} s, "
                      f"{world.totals()[0]} rounds", flush=True)
        outcomes = world.end_in_order()
        rounds, connects, failures = (sum(values) for values in zip(*(client.finished for client in world.clients)))
        until(lambda: not world.sockets_left(), "the sockets of the namespaces being gone", timeout=30)
        calm = witness.stop()
        with capsys.disabled():
            print(
                f"storm: {rounds} rounds (4 messages each) verified on {connects} connections, "
                f"{failures} lost or refused; "
                f"{calm} rounds of the bystander on 2",
                flush=True)
            for what in sorted(outcomes):
                print(f"storm:   {outcomes[what]:5} {what}", flush=True)
    except AssertionError as error:
        traces = [*(witness.traces if witness else []), *(actor.traces for actor in world.actors)]
        raise AssertionError(f"step {number} ({', '.join(f.__name__ for f in step)}): {error}\n"
                             f"{''.join(trace.text() for trace in traces)}\nagain: {replay}") from error
    finally:
        world.destroy()
    resources = {
        device: {key: n
                 for key, n in counts.items() if n}
        for device, counts in watch.rdma_resources().items()
    }
    assert not any(resources.values()), resources
    if before:
        for which, limit, what in ((0, 12000, "unreclaimable slab"), (1, 50000, "memory")):
            until(lambda: watch.kernel_memory_kb()[which] < before[which] + limit + watch.KEPT_KB,
                  f"{what} as before: {before[which]} kB, {watch.kernel_memory_kb()[which]} kB", timeout=60, every=2)
    if len(HOSTS) > 1:
        return  # both guests unload the module when they end, and scripts/vm judges it
    for site in (A, B):
        subprocess.run(["rdma", "link", "delete", site.dev], check=True, timeout=30)
    until(lambda: subprocess.run(["rmmod", "usiw"], capture_output=True, check=False).returncode == 0,
          "rmmod",
          timeout=30,
          every=0.3)
    reload_module()
    rping(count=3)
