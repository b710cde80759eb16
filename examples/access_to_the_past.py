"""Access to the past: what was the price of an article when it was ordered, however late the order comes?

Every article keeps its prices by the time from which they held, until no order can ask for them any more.
"""

from tidemark.common import Types
from tidemark.datastream import KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.state import MapStateDescriptor

KEPT_MS = 100_000
ENTRY = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
PRICES = [
    ("tea", 0, 300),
    ("tea", 50_000, 350),
    ("tea", 120_000, 400),
    ("jam", 10_000, 200),
]  # article, from, cents
ORDERS = [("tea", 60_000, 2), ("tea", 130_000, 1), ("tea", 1_000, 1), ("jam", 5_000, 1), ("jam", 99_000, 3)]


class PriceThen(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.prices = runtime_context.get_map_state(MapStateDescriptor("prices", Types.LONG(), Types.LONG()))

    def process_element1(self, price, ctx: "KeyedCoProcessFunction.Context"):
        _article, since, cents = price
        self.prices.put(since, cents)
        # The newest price that held at the beginning of what is kept, and all later ones.
        old = sorted(at for at in self.prices if at <= since - KEPT_MS)
        for at in old[:-1]:
            self.prices.remove(at)

    def process_element2(self, order, ctx: "KeyedCoProcessFunction.Context"):
        article, at, count = order
        held = [since for since in self.prices if since <= at]
        if held:
            yield f"{count} {article} ordered at {at // 1000} s: {count * self.prices.get(max(held))} cents"
        else:
            yield f"{count} {article} ordered at {at // 1000} s: it had no price yet"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    prices = env.from_collection(PRICES, ENTRY)
    orders = env.from_collection(ORDERS, ENTRY)
    (
        prices.connect(orders)
        .key_by(lambda price: price[0], lambda order: order[0], Types.STRING())
        .process(PriceThen(), Types.STRING())
        .uid("price then")
        .print()
    )
    env.execute("access to the past")


if __name__ == "__main__":
    main()
