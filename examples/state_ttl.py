"""State that forgets: a session counter whose value lives for a while after its last write."""

import time

from tidemark.common import Time, Types
from tidemark.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.functions import SourceFunction
from tidemark.datastream.state import StateTtlConfig, ValueStateDescriptor


class Visits(SourceFunction):
    """Two visits at once, a long pause, one more."""

    def run(self, ctx):
        """Emit and wait."""
        ctx.collect("ann")
        ctx.collect("ann")
        time.sleep(0.6)
        ctx.collect("ann")

    def cancel(self):
        """It ends soon by itself."""


class CountVisits(KeyedProcessFunction):
    """Counts visits; starts again when the last one is 0.3 s old."""

    def __init__(self):
        """The state exists once the function is open."""
        self.visits = None

    def open(self, runtime_context: RuntimeContext):
        """Register the state with a time to live."""
        descriptor = ValueStateDescriptor("visits", Types.INT())
        ttl = (
            StateTtlConfig.new_builder(Time.milliseconds(300))
            .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .build()
        )
        descriptor.enable_time_to_live(ttl)
        self.visits = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        """Count."""
        count = (self.visits.value() or 0) + 1
        self.visits.update(count)
        yield value, count


def main():
    """The third visit finds no state."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    env.add_source(Visits()).key_by(lambda name: name).process(CountVisits()).print()

    env.execute()


if __name__ == "__main__":
    main()
