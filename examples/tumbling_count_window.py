"""Windows of two elements per key."""

from collections.abc import Iterable

from tidemark.common import Types
from tidemark.datastream import StreamExecutionEnvironment
from tidemark.datastream.functions import WindowFunction
from tidemark.datastream.window import CountWindow


class Total(WindowFunction[tuple, tuple, str, CountWindow]):
    """Key and sum of a window."""

    def apply(self, key: str, window: CountWindow, inputs: Iterable[tuple]):
        """Called for every full window."""
        yield key, sum(value for value, _ in inputs)


def main():
    """Windows that are not full at the end of input are not emitted."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    values = env.from_collection(
        [(1, "x"), (2, "y"), (3, "x"), (4, "y"), (5, "x"), (6, "y"), (7, "x")],
        type_info=Types.TUPLE([Types.INT(), Types.STRING()]),
    )

    (
        values.key_by(lambda value: value[1], key_type=Types.STRING())
        .count_window(2)
        .apply(Total(), Types.TUPLE([Types.STRING(), Types.INT()]))
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
