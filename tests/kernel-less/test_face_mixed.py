# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""rdma_cm between a program on the RoCE face and one on the iWARP face (docs/face.md): the wire is the same."""

import itertools
from typing import NamedTuple

import pytest

from hosts import A4, A6, B4, B6
from support.pairs import next_port
from support.procs import Proc


class Way(NamedTuple):
    """Where the server runs, its address and the client's, and the option --port of both programs."""
    where: str
    server: str
    client: str
    kind: str


WAYS = ["memory", "sockets", "packets-to-host", "sockets-to-host", "packets-to-host-by-ipv6"]
RDMA_CM = ["rping -v -V -C 20 -S 3000", "ucmatose -C 20 -S 4096 -c 4", "cmtime -c 20"]
#: Not ib_send_bw, whose end on an iWARP device writes credits, which the end on a RoCE device does not expect.
PERFTEST = ["ib_write_lat -R -F -n 200", "ib_read_lat -R -F -n 200", "ib_atomic_lat -R -F -n 200"]
CASES = [*itertools.product(WAYS, RDMA_CM), *itertools.product(["sockets"], PERFTEST)]


@pytest.fixture
def way(request):
    kind, _, other = request.param.partition("-to-")
    option = {"memory": "auto", "sockets": "socket", "packets": "packet"}[kind]
    if not other:
        return Way("", "127.0.0.1", "127.0.0.1", option)
    return Way(request.getfixturevalue("other_host"), *((B6, A6) if "ipv6" in other else (B4, A4)), option)


@pytest.mark.parametrize("way, command", CASES, indirect=["way"])
@pytest.mark.parametrize("faces", [("roce", "iwarp"), ("iwarp", "roce")], ids="-serves-".join)
def test_mixed(usiw_run, way, faces, command):
    """A server and a client, whose faces are these."""
    port = next_port()
    name, *options = [*command.split(), "-p", port]
    server_argv, client_argv = [name, *options], [name, *options]
    if name == "rping":
        server_argv += ["-s", "-a", way.server]
        client_argv += ["-c", "-a", way.server]
    elif name in ("ucmatose", "cmtime"):
        server_argv += ["-b", way.server]
        client_argv += ["-b", way.client, "-s", way.server]
    else:
        client_argv.append(way.server)

    def start(argv, face, where):
        return Proc([usiw_run.path, "--face", face, "--port", way.kind, *argv], where=where)
    server = start(server_argv, faces[0], way.where).wait_listening(port)
    client = start(client_argv, faces[1], "")
    try:
        client.expect(0, 20)
        if name == "cmtime":
            server.kill()  # it would serve the next client
        else:
            server.expect()
    except AssertionError as error:
        raise AssertionError(f"{error}\n--- the server printed:\n{server.output[-2000:]}") from error
