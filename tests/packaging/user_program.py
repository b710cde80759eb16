"""A program as a user writes it, with types: `make lint` checks it, and the installed wheel is checked with it.

The `type: ignore` are half of the test. mypy complains about those it does not need, which it would not if it took the
package's names for untyped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tidemark import (
    KeyedProcessFunction,
    RuntimeContext,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Types,
    ValueState,
    ValueStateDescriptor,
)


class Count(KeyedProcessFunction):
    """Counts a key's elements, forgetting it after a day."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(timedelta(days=1)).build())
        self.seen: ValueState[int] = runtime_context.get_state(descriptor)

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        """Count one more."""
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield seen


def main() -> None:
    """Run it."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.enable_checkpointing(1000)
    words = env.from_collection(["a", "b", "a"], Types.STRING())
    words.key_by(lambda word: word, Types.STRING()).process(Count(), Types.LONG()).uid("count").print()
    env.execute("typed")
    with words.execute_and_collect() as found:
        first: str = next(found)
    some: list[str] = words.execute_and_collect("some", limit=2)
    print(first, len(some))


def wrong(env: StreamExecutionEnvironment, count: ValueState[int]) -> None:
    """What a type checker must not let pass."""
    env.set_parallelism("two")  # type: ignore[arg-type]
    count.update("three")  # type: ignore[arg-type]
    env.enable_chekpointing(1000)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
