"""`KeyedProcessFunction`: a count with state, and a timer that tells the total at the end."""

from tidemark.common import Types
from tidemark.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    """Emits a row per timer, not per element."""

    def __init__(self):
        """The state exists once the function is open."""
        self.count = None

    def open(self, runtime_context: RuntimeContext):
        """One number per key."""
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        """Count; returning nothing emits nothing."""
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(2**63 - 1)

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        """The end of input."""
        yield ctx.get_current_key(), self.count.value()


def main():
    """Votes."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    (
        env.from_collection(["yes", "no", "yes", "yes", "no"], type_info=Types.STRING())
        .key_by(lambda vote: vote, key_type=Types.STRING())
        .process(Count(), Types.ROW([Types.STRING(), Types.LONG()]))
        .print("votes")
    )

    env.execute()


if __name__ == "__main__":
    main()
