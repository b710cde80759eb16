"""State that lives by event time, and says when it has gone: sessions that end by expiring."""

from tidemark.common import Duration, Types
from tidemark.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.functions import SourceFunction
from tidemark.datastream.state import ExpiredState, StateTtlConfig, ValueStateDescriptor


class Clicks(SourceFunction):
    """Clicks in the order of event time."""

    def run(self, ctx):
        """A watermark follows each click."""
        for name, at in [("ann", 1_000), ("bob", 2_000), ("ann", 5_000), ("bob", 30_000), ("cid", 60_000)]:
            ctx.collect_with_timestamp(name, at)
            ctx.emit_watermark(at)

    def cancel(self):
        """It ends soon by itself."""


class Sessions(KeyedProcessFunction):
    """Counts clicks; ten seconds of event time without one end a session."""

    def open(self, runtime_context: RuntimeContext):
        """Register a state that expires in event time and reports it."""
        ttl = (
            StateTtlConfig.new_builder(Duration.of_seconds(10)).use_event_time().on_expiry(self.ended).build()
        )
        descriptor = ValueStateDescriptor("clicks", Types.LONG())
        descriptor.enable_time_to_live(ttl)
        self.clicks = runtime_context.get_state(descriptor)

    def ended(self, expired: ExpiredState):
        """Called once for each session that is over; what it yields is emitted."""
        yield f"{expired.key} clicked {expired.value} times until {expired.last_access}"

    def process_element(self, value, ctx):
        """Count."""
        self.clicks.update((self.clicks.value() or 0) + 1)


def main():
    """The end of input is the end of event time: it expires the last session."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    env.add_source(Clicks()).key_by(lambda name: name, Types.STRING()).process(Sessions()).print()

    env.execute()


if __name__ == "__main__":
    main()
