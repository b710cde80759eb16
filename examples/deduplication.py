"""Deduplication: of deliveries with the same id the first goes on, and an id is remembered for an hour."""

from tidemark.common import Duration, Types
from tidemark.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.state import StateTtlConfig, ValueStateDescriptor

DELIVERIES = [
    ("id-1", "tea"),
    ("id-2", "jam"),
    ("id-1", "tea"),
    ("id-3", "tea"),
    ("id-2", "jam"),
    ("id-2", "jam"),
]


class First(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        seen = ValueStateDescriptor("seen", Types.BOOLEAN())
        # Without a time to live the state would grow with every id there ever was.
        seen.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
        self.seen = runtime_context.get_state(seen)

    def process_element(self, delivery, ctx: "KeyedProcessFunction.Context"):
        if not self.seen.value():
            self.seen.update(True)
            yield delivery


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    delivery = Types.TUPLE([Types.STRING(), Types.STRING()])
    once = env.from_collection(DELIVERIES, delivery).key_by(lambda one: one[0], Types.STRING())
    once.process(First(), delivery).uid("first").print()
    env.execute("deduplication")


if __name__ == "__main__":
    main()
