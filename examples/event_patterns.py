"""A search for event patterns: a small payment and then a large one within a minute, by the same card.

State says how far a card is in the pattern, a timer lets it start again when the minute is over.
"""

from tidemark.common import Types, WatermarkStrategy
from tidemark.common.watermark_strategy import TimestampAssigner
from tidemark.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor

PAYMENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
PAYMENTS = [  # card, milliseconds, amount
    ("4711", 1_000, 0.8),
    ("0815", 2_000, 0.5),
    ("4711", 40_000, 700.0),
    ("0815", 90_000, 900.0),
    ("4711", 95_000, 800.0),
    ("0815", 96_000, 0.2),
    ("0815", 97_000, 650.0),
]
SMALL, LARGE, WITHIN_MS = 1.0, 500.0, 60_000


class PaymentTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class SmallThenLarge(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.until = runtime_context.get_state(ValueStateDescriptor("small until", Types.LONG()))

    def process_element(self, payment, ctx: "KeyedProcessFunction.Context"):
        card, at, amount = payment
        until = self.until.value()
        # Event time may be behind: the timer says when to forget, not what counts.
        if until is not None and at <= until and amount >= LARGE:
            yield f"card {card}: {amount:.2f} within a minute of a small payment"
            self._forget(ctx)
        if amount < SMALL:
            self._forget(ctx)
            self.until.update(at + WITHIN_MS)
            ctx.timer_service().register_event_time_timer(at + WITHIN_MS)

    def on_timer(self, timestamp, ctx: "KeyedProcessFunction.OnTimerContext"):
        self.until.clear()

    def _forget(self, ctx):
        if self.until.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.until.value())
            self.until.clear()


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    payments = env.from_collection(PAYMENTS, PAYMENT).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(PaymentTime())
    )
    alarms = payments.key_by(lambda payment: payment[0], Types.STRING()).process(
        SmallThenLarge(), Types.STRING()
    )
    alarms.uid("small then large").print()
    env.execute("event patterns")


if __name__ == "__main__":
    main()
