"""Two streams, one function, one keyed state: orders wait for their payment."""

from tidemark.common import Types
from tidemark.datastream import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor


class Settle(KeyedCoProcessFunction):
    """Emits an order once it is paid; a timer at the end of input reports what stays open."""

    def __init__(self):
        """The states exist once the function is open."""
        self.order = self.payment = None

    def open(self, runtime_context: RuntimeContext):
        """Both inputs see the same state."""
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.STRING()))
        self.payment = runtime_context.get_state(ValueStateDescriptor("payment", Types.INT()))

    def process_element1(self, value, ctx: "KeyedCoProcessFunction.Context"):
        """An order."""
        self.order.update(value[1])
        ctx.timer_service().register_event_time_timer(1)
        yield from self.settled(value[0])

    def process_element2(self, value, ctx: "KeyedCoProcessFunction.Context"):
        """A payment."""
        self.payment.update(value[1])
        yield from self.settled(value[0])

    def settled(self, number):
        """Both have come."""
        if self.order.value() is not None and self.payment.value() is not None:
            yield f"{number}: {self.order.value()} paid with {self.payment.value()}"
            self.order.clear()
            self.payment.clear()

    def on_timer(self, timestamp: int, ctx: "KeyedCoProcessFunction.OnTimerContext"):
        """The end of input."""
        if self.order.value() is not None:
            yield f"{ctx.get_current_key()}: {self.order.value()} was never paid"


def main():
    """Orders first, payments second."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = env.from_collection([(1, "tea"), (2, "pot"), (3, "cup")])
    payments = env.from_collection([(3, 4), (1, 9)])

    (
        orders.connect(payments)
        .key_by(lambda order: order[0], lambda payment: payment[0], key_type=Types.INT())
        .process(Settle())
        .print()
    )

    env.execute()


if __name__ == "__main__":
    main()
