"""`AsyncDataStream`: many calls of a coroutine at a time, for what waits for somebody else most of the time."""

from __future__ import annotations

import inspect
from typing import Any

from tidemark.api.builder import optional_type
from tidemark.api.functions import AsyncFunction, AsyncRetryStrategy
from tidemark.api.functions.async_retry import NO_RETRY_STRATEGY
from tidemark.api.specs import AsyncWaitSpec
from tidemark.api.stream import DataStream
from tidemark.errors import ConfigError
from tidemark.types.time import TimeLike, to_millis

__all__ = ["AsyncDataStream"]


class AsyncDataStream:
    """Applies an `AsyncFunction` to a stream.

    Elements under way are part of every snapshot and are begun again after a restore. A watermark waits for the
    elements in front of it.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results as they come.

        Args:
            data_stream: The elements.
            async_function: Called for each of them.
            timeout: After which `AsyncFunction.timeout` says what is emitted; 0 for none.
            capacity: Elements under way in each subtask at most.
            output_type: Type of the results.

        Raises:
            TypeError: Not a stream or not an `AsyncFunction` with a coroutine.
            ConfigError: A capacity below 1 or a negative timeout.
        """
        return _wait(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, False)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results as they come; calls may be tried again until the timeout, which there must be.

        Raises:
            TypeError: As `unordered_wait`, or not an `AsyncRetryStrategy`.
            ConfigError: As `unordered_wait`, or no timeout.
        """
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, False)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results in the order of their elements.

        Raises:
            TypeError: As `unordered_wait`.
            ConfigError: As `unordered_wait`.
        """
        return _wait(data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, True)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: TimeLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Emit results in the order of their elements; calls may be tried again until the timeout.

        Raises:
            TypeError: As `unordered_wait_with_retry`.
            ConfigError: As `unordered_wait_with_retry`.
        """
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, True)


def _wait(
    stream: Any, function: Any, timeout: TimeLike, retry: Any, capacity: int, output_type: Any, ordered: bool
) -> DataStream:
    if not isinstance(stream, DataStream):
        raise TypeError(f"AsyncDataStream needs a DataStream, not {stream!r}.")
    if not isinstance(function, AsyncFunction):
        raise TypeError(f"AsyncDataStream needs an AsyncFunction, not {function!r}.")
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise TypeError(f"async_invoke of {type(function).__name__} must be declared as 'async def'.")
    if not isinstance(retry, AsyncRetryStrategy):
        raise TypeError(f"Expected an AsyncRetryStrategy, not {retry!r}.")
    timeout_ms = to_millis(timeout, "timeout")
    if timeout_ms < 0 or (timeout_ms == 0 and retry is not NO_RETRY_STRATEGY):
        raise ConfigError(f"The timeout must be positive where calls are tried again, not {timeout_ms} ms.")
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ConfigError(f"capacity must be a positive number, not {capacity!r}.")
    spec = AsyncWaitSpec(function, timeout_ms, capacity, retry, ordered)
    return stream._values()._operator("Async Wait", spec, optional_type(output_type))
