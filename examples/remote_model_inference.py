"""Asks a model behind HTTP about every comment, many requests at a time; refused requests are tried again."""

import asyncio
import functools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from tidemark.common import Row, Time, Types
from tidemark.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
    async_retry_predicates,
)


class Model(BaseHTTPRequestHandler):
    """Finds a comment positive if it is short; refuses the first request for each."""

    known: ClassVar = set()

    def do_GET(self):
        comment = self.path[1:]
        status = 200 if comment in self.known else 503
        self.known.add(comment)
        body = b"positive" if len(comment) < 6 else b"negative"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


class AsyncInference(AsyncFunction):
    def __init__(self, port):
        self.port = port

    async def async_invoke(self, value):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET /{value.comments} HTTP/1.0\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        if " 200 " not in answer.partition("\r\n")[0]:
            raise ConnectionError("The model is busy.")
        return [json.dumps({"user_id": value.user_id, "analysis_result": answer.rpartition("\r\n")[2]})]

    def timeout(self, value):
        return [json.dumps({"user_id": value.user_id, "analysis_result": None})]


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.enable_checkpointing(1000)
    comments = [Row(user_id=n, comments="good" if n % 2 else f"dreadful{n}") for n in range(6)]
    stream = env.from_collection(
        comments, Types.ROW_NAMED(["user_id", "comments"], [Types.INT(), Types.STRING()])
    )

    busy = functools.partial(
        async_retry_predicates.exception_type_predicate, expected_error_type=ConnectionError
    )
    results = AsyncDataStream.unordered_wait_with_retry(
        data_stream=stream,
        async_function=AsyncInference(server.server_address[1]),
        timeout=Time.seconds(600),
        async_retry_strategy=AsyncRetryStrategy.fixed_delay(
            max_attempts=100, backoff_time_millis=10, result_predicate=None, exception_predicate=busy
        ),
        capacity=1000,
        output_type=Types.STRING(),
    )
    results.uid("inference").print()
    env.execute()
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
