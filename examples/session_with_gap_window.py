"""Sessions that end after five quiet milliseconds."""

from collections.abc import Iterable

from tidemark.common import Time, Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import StreamExecutionEnvironment
from tidemark.datastream.functions import ProcessWindowFunction
from tidemark.datastream.window import EventTimeSessionWindows, TimeWindow


class SecondField(TimestampAssigner):
    """The timestamp is in the element."""

    def extract_timestamp(self, value, record_timestamp) -> int:
        """Milliseconds."""
        return int(value[1])


class Count(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    """Key, start and end of the window, and how many elements it held."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple]
    ):
        """Called once per key and window."""
        return [(key, context.window().start, context.window().end, len(list(elements)))]

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """Nothing is kept per window."""


def main():
    """Count the elements of each window."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    readings = env.from_collection(
        [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("a", 5), ("b", 8), ("a", 9), ("a", 15)],
        type_info=Types.TUPLE([Types.STRING(), Types.INT()]),
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())

    (
        readings.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda reading: reading[0], key_type=Types.STRING())
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
        .process(Count(), Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()]))
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
