# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Server and client of the usual programs: server at B, client at A."""

import itertools
import signal
import time

from .cases import path_of
from .net import A, B
from .procs import Proc

_ports = itertools.count(20000)

#: Rest of a client of verified traffic after each round, in ms.
REST_MS = 5
#: Options of a client that sends without a rest: a test ends it in the middle of a message, or bulk mode needs the rate.
AT_FULL_SPEED = ("--pause-ms", 0)


def next_port():
    """A port that no test has used before."""
    return next(_ports)


def pair(server_argv, client_argv, port, server=B, client=A, timeout=60, server_timeout=20, spins=False):
    """Runs both to their ends, statuses 0; returns (server's output, client's output)."""
    s = Proc(server_argv, where=server.where).wait_listening(port, spins=spins)
    c = Proc(client_argv, where=client.where)
    try:
        out = c.expect(0, timeout)
        return s.expect(0, server_timeout), out
    except AssertionError as error:
        raise AssertionError(f"{error}\n--- the server said:\n{s.output[-2000:]}") from error
    finally:
        c.kill()
        s.kill()


def rping(*options, server_options=(), bind=None, server=B, client=A, count=10, size=64, timeout=60):
    """rping with verified data; returns (server's output, client's)."""
    port = next_port()
    common = ["-p", port, "-C", count, "-S", size, "-V", *options]
    return pair(["rping", "-s", "-a", bind or server.ip, *common, *server_options],
                ["rping", "-c", "-a", server.ip, "-I", client.ip, *common], port, server, client, timeout)


def perftest(tool, *options, server=B, client=A, timeout=45):
    """A perftest program with -R; returns the rows of its table as lists of numbers."""
    port = next_port()
    common = ["-R", "-p", port, "-F", *options]
    _, out = pair([tool, "-d", server.dev, *common],
                  [tool, "-d", client.dev, *common, server.ip], port,
                  server, client, timeout)
    rows = []
    for line in out.splitlines():
        words = line.partition("Correlation")[0].split()  # perftest about the host's clock, in the middle of a row
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            continue
        if len(numbers) >= 4:
            rows.append(numbers)
    assert rows, f"{tool} printed no numbers:\n{out}"
    return rows


class Server:
    """`traffic server` at a site, for any number of clients."""

    def __init__(self, site=B, *options, bind=None, env=None):
        self.site, self.env = site, env
        self.port = next_port()
        self.argv = [path_of("traffic"), "server", "--to", bind or site.ip, "--port", self.port, *options]
        self.start()

    def start(self):
        """Starts it, also once more at the same port when it has ended."""
        self.proc = Proc(self.argv, where=self.site.where, env=self.env)
        self.proc.wait_for(r"^listening \d+")

    def client(self, *options, site=A):
        """Starts `traffic client` and returns the Proc. A client that runs for a time rests after each round unless the
        options have --pause-ms, so that the machine has processor time left for what the test does meanwhile."""
        if "--seconds" in options and "--pause-ms" not in options:
            options = [*options, "--pause-ms", REST_MS]
        return Proc([path_of("traffic"), "client", "--from", site.ip, "--to", self.site.ip, "--port", self.port,
                     *options], where=site.where)

    @staticmethod
    def end_client(client, timeout=60):
        """Ends its time: what has disturbed it is over. The round that is under way then still has to be right."""
        time.sleep(0.5)
        client.signal(signal.SIGUSR1)
        client.expect(0, timeout)

    def stop(self):
        """Ends it in order; Failed unless it found all data right. Returns its last line."""
        self.proc.signal(15)
        output = self.proc.expect(0, 30)
        return output.splitlines()[-1]


def srq_pairs(program, *roles):
    """A server of `program` with an SRQ at B, and peers of these roles at A; the server listens."""
    server = Proc([path_of(program), "server", B.ip, len(roles)], where=B.where)
    port = server.wait_for(r"^listening (\d+)")[1]
    return server, [Proc([path_of(program), role, A.ip, B.ip, port], where=A.where) for role in roles]
