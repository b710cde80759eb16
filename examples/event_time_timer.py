"""A timer per element, two seconds later in event time."""

from tidemark.common import Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import KeyedProcessFunction, StreamExecutionEnvironment


class Alarm(KeyedProcessFunction):
    """Registers a timer for every element, deletes the one of element 3."""

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        """Say what came and what event time it was then."""
        service = ctx.timer_service()
        service.register_event_time_timer(ctx.timestamp() + 2000)
        if value[0] == 3:
            service.delete_event_time_timer(ctx.timestamp() + 2000)
        yield f"element {value[0]} at {ctx.timestamp()}, watermark {service.current_watermark()}"

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        """Say which timer fired."""
        yield f"timer {timestamp} of key {ctx.get_current_key()}"


class SecondField(TimestampAssigner):
    """The timestamp is in the element."""

    def extract_timestamp(self, value, record_timestamp):
        """Milliseconds."""
        return value[1]


def main():
    """A short bounded stream sees its first watermark at its end."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    stream = env.from_collection(
        [(1, 1000), (2, 2000), (3, 3500), (4, 2500)],
        type_info=Types.TUPLE([Types.INT(), Types.LONG()]),
    )

    (
        stream.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
        )
        .key_by(lambda value: value[0] % 2, key_type=Types.INT())
        .process(Alarm())
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
