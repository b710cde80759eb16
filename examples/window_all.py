"""Windows over a stream without keys."""

from collections.abc import Iterable

from tidemark.common import Time, Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import StreamExecutionEnvironment
from tidemark.datastream.functions import ProcessAllWindowFunction
from tidemark.datastream.window import TimeWindow, TumblingEventTimeWindows


class FirstField(TimestampAssigner):
    """The timestamp is in the element."""

    def extract_timestamp(self, value, record_timestamp) -> int:
        """Milliseconds."""
        return value[0]


class Range(ProcessAllWindowFunction[tuple, tuple, TimeWindow]):
    """Smallest and largest value of a window."""

    def process(self, context: ProcessAllWindowFunction.Context, elements: Iterable[tuple]):
        """Called once per window."""
        values = [value for _, value in elements]
        yield context.window().start, min(values), max(values)


def main():
    """Parallelism 1, whatever the rest of the job has."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    (
        env.from_collection([(1, 20), (4, 22), (9, 19), (12, 25), (15, 24), (33, 18)])
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(FirstField())
        )
        .window_all(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .process(Range(), Types.TUPLE([Types.LONG(), Types.INT(), Types.INT()]))
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
