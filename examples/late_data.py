"""Lateness: a window fires again for an element that is a little late; later ones go to a side output."""

import threading

from tidemark.common import Time, Types
from tidemark.datastream import OutputTag, StreamExecutionEnvironment
from tidemark.datastream.functions import SourceFunction
from tidemark.datastream.window import TumblingEventTimeWindows

KIND = Types.TUPLE([Types.STRING(), Types.INT()])
LATE = OutputTag("late", KIND)


class Readings(SourceFunction):
    """Emits elements and watermarks, and waits for each watermark to arrive."""

    def run(self, ctx):
        """Play the script."""
        self.go = threading.Event()
        for value, timestamp in [(1, 2), (2, 5)]:
            ctx.collect_with_timestamp(("a", value), timestamp)
        ctx.emit_watermark(12)
        self.go.wait(0.4)
        ctx.collect_with_timestamp(("a", 10), 7)
        ctx.emit_watermark(30)
        self.go.wait(0.4)
        ctx.collect_with_timestamp(("a", 100), 8)

    def cancel(self):
        """Wake up."""
        self.go.set()


def main():
    """[0, 10) fires at watermark 12, again for the element of time 7, and is gone at watermark 30."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    sums = (
        env.add_source(Readings(), type_info=KIND)
        .key_by(lambda reading: reading[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(10)
        .side_output_late_data(LATE)
        .reduce(lambda left, right: (left[0], left[1] + right[1]))
    )
    sums.print("sum")
    sums.get_side_output(LATE).print("late")

    env.execute()


if __name__ == "__main__":
    main()
