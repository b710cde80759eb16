"""An incremental aggregate holds one accumulator per key and window; a window function adds the window."""

from collections.abc import Iterable

from tidemark.common import Time, Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import AggregateFunction, StreamExecutionEnvironment
from tidemark.datastream.functions import ProcessWindowFunction
from tidemark.datastream.window import TimeWindow, TumblingEventTimeWindows


class Average(AggregateFunction):
    """Average of the second field."""

    def create_accumulator(self):
        """Count and sum."""
        return 0, 0

    def add(self, value, accumulator):
        """Add one element."""
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator):
        """The average."""
        return accumulator[1] / accumulator[0]

    def merge(self, a, b):
        """Add the parts."""
        return a[0] + b[0], a[1] + b[1]


class WithWindow(ProcessWindowFunction[float, tuple, str, TimeWindow]):
    """Adds key and window to the average."""

    def process(self, key, context: ProcessWindowFunction.Context, elements: Iterable[float]):
        """There is one element: the result of the aggregate."""
        yield key, context.window().start, next(iter(elements))


class ThirdField(TimestampAssigner):
    """The timestamp is in the element."""

    def extract_timestamp(self, value, record_timestamp) -> int:
        """Milliseconds."""
        return value[2]


def main():
    """Averages per sensor and ten milliseconds."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    (
        env.from_collection(
            [("x", 10, 1), ("y", 3, 2), ("x", 20, 8), ("x", 5, 11), ("y", 4, 12), ("y", 7, 19)],
            type_info=Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]),
        )
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ThirdField())
        )
        .key_by(lambda reading: reading[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .aggregate(
            Average(),
            window_function=WithWindow(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
            output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()]),
        )
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
