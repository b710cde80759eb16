"""Aggregates per minute, hour and day: each level is made from the one below, so that a record is added up once."""

from tidemark.common import Time, Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from tidemark.datastream.window import TumblingEventTimeWindows

MINUTE, HOUR = 60_000, 3_600_000
TOTAL = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()])
READINGS = [  # meter, milliseconds, how many, kilowatt-hours
    ("m1", 5 * MINUTE, 1, 0.5),
    ("m1", 5 * MINUTE + 30_000, 1, 0.25),
    ("m1", 6 * MINUTE, 1, 1.0),
    ("m1", HOUR, 1, 2.0),
    ("m1", 25 * HOUR, 1, 4.0),
]
LEVELS = (("minute", Time.minutes(1)), ("hour", Time.hours(1)), ("day", Time.days(1)))


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class WithStart(ProcessWindowFunction):
    """Puts the beginning of the window in place of the time of the reading."""

    def process(self, key, context: "ProcessWindowFunction.Context", elements):
        for meter, _at, count, energy in elements:
            yield meter, context.window().start, count, energy


def plus(left, right):
    return left[0], left[1], left[2] + right[2], left[3] + right[3]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    level = env.from_collection(READINGS, TOTAL).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ReadingTime())
    )
    for name, period in LEVELS:
        level = (
            level.key_by(lambda total: total[0], Types.STRING())
            .window(TumblingEventTimeWindows.of(period))
            .reduce(plus, WithStart(), output_type=TOTAL)
            .uid(f"per {name}")
        )
        level.map(
            lambda total, name=name: (
                f"{name} from {total[1] // MINUTE} min: {total[2]} readings, {total[3]} kWh"
            ),
            Types.STRING(),
        ).print()
    env.execute("aggregates by period")


if __name__ == "__main__":
    main()
