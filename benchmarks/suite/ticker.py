"""A source of events that carry the time of their creation: lines `key,microseconds` on a TCP port.

`python ticker.py RATE SECONDS KEYS` prints its port, waits for one reader, sends RATE events per second, prints how
many it has sent, and keeps the connection until the reader is gone.
"""

from __future__ import annotations

import socket
import sys
import time


def main() -> None:
    rate, seconds, keys = (int(argument) for argument in sys.argv[1:4])
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    started = time.perf_counter()
    sent = 0
    try:
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
