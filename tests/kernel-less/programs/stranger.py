# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""A process that is no peer of anybody has a UDP port, for IPv4 and IPv6: stranger.py PORT silent|garbage|echo

Prints "bound". Receives datagrams, and answers them in its way. For each line of its input it prints how many came."""

import errno
import os
import select
import socket
import sys
import time

#: The port may still have sockets of its last owner for a moment.
TRIES, PAUSE = 200, 0.02


def bind(sock, port):
    for _ in range(TRIES):
        try:
            return sock.bind(("::", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        time.sleep(PAUSE)
    return sys.exit(f"port {port} stays in use")


def answer(how, data):
    """Returns a datagram, or None."""
    if how == "echo":
        return data
    # A header that begins as the datagram did, and then random bytes.
    return data[:len(data) // 2] + os.urandom(200) if how == "garbage" else None


def main():
    port, how = int(sys.argv[1]), sys.argv[2]
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    bind(sock, port)
    print("bound", flush=True)
    number = 0
    while True:
        ready, _, _ = select.select([sock, sys.stdin], [], [])
        if sys.stdin in ready:
            sys.stdin.readline()
            print("datagrams:", number, flush=True)
        if sock not in ready:
            continue
        data, sender = sock.recvfrom(65536)
        number += 1
        reply = answer(how, data)
        if reply is not None:
            sock.sendto(reply, sender)


main()
