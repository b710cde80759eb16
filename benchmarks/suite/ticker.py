"""A source of events that carry the time of their creation: lines `key,microseconds` on a TCP port.

`python ticker.py RATE SECONDS KEYS [FILL]` prints its port, waits for one reader, sends RATE events per second, prints
how many it has sent, and keeps the connection until the reader is gone. FILL events `key,0` come first, one of each
key, as fast as the reader takes them: they make state and have no age.
"""

from __future__ import annotations

import socket
import sys
import time


def main() -> None:
    rate, seconds, keys, fill, *_ = (int(argument) for argument in [*sys.argv[1:], "0"])
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sent = 0
    try:
        for first in range(0, fill, 1000):
            connection.sendall("".join(f"{n},0\n" for n in range(first, min(fill, first + 1000))).encode())
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            due = int(elapsed * rate)
            if due > sent:
                now = time.time_ns() // 1000
                connection.sendall("".join(f"{n % keys},{now}\n" for n in range(sent, due)).encode())
                sent = due
            time.sleep(0.001)
        print(sent, flush=True)
        connection.recv(1)
    except OSError:
        sys.exit("The reader is gone.")


if __name__ == "__main__":
    main()
