"""Keyed state of every kind in one function: the average of every two values, and what it saw."""

from tidemark.common import Types
from tidemark.datastream import (
    AggregateFunction,
    FlatMapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from tidemark.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)


class Mean(AggregateFunction):
    """Mean of integers."""

    def create_accumulator(self):
        """Count and sum."""
        return 0, 0

    def add(self, value, accumulator):
        """Add one value."""
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        """Rounded down."""
        return accumulator[1] // accumulator[0]

    def merge(self, a, b):
        """Add the parts."""
        return a[0] + b[0], a[1] + b[1]


class CountWindowAverage(FlatMapFunction):
    """Emits the average of every second pair; the other states only watch."""

    def __init__(self):
        """The states exist once the function is open."""
        self.sum = self.seen = self.times = self.largest = self.mean = None

    def open(self, runtime_context: RuntimeContext):
        """Register every state under its name."""
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.sum = runtime_context.get_state(ValueStateDescriptor("average", pair))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.times = runtime_context.get_map_state(MapStateDescriptor("times", Types.LONG(), Types.INT()))
        self.largest = runtime_context.get_reducing_state(
            ReducingStateDescriptor("largest", max, Types.LONG())
        )
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), pair))

    def flat_map(self, value):
        """Key and value in, averages out."""
        number = value[1]
        count, total = self.sum.value() or (0, 0)
        count, total = count + 1, total + number
        self.seen.add(number)
        self.times.put(number, (self.times.get(number) or 0) + 1)
        self.largest.add(number)
        self.mean.add(number)
        if count < 2:
            self.sum.update((count, total))
            return
        self.sum.clear()
        yield value[0], total // count, list(self.seen), sorted(self.times.items()), self.largest.get()


def main():
    """The worked example of keyed state, with its friends."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    (
        env.from_collection([(1, 3), (1, 5), (1, 7), (2, 9), (1, 4), (1, 2), (2, 9)])
        .key_by(lambda value: value[0])
        .flat_map(CountWindowAverage())
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
