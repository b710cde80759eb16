"""Fraud detection with rules that change while the job runs: rules are broadcast, spending is kept for each card.

A rule says how much may be spent within how many payments; one without a limit withdraws it.
"""

from tidemark.common import Types
from tidemark.datastream import RuntimeContext, RuntimeExecutionMode, StreamExecutionEnvironment
from tidemark.datastream.functions import KeyedBroadcastProcessFunction
from tidemark.datastream.state import ListStateDescriptor, MapStateDescriptor

RULE = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.TUPLE([Types.INT(), Types.INT()]))
LONGEST = 10
"""No rule looks at more payments than this."""

GIVEN = [
    ("burst", 3, 500),
    ("spree", 5, 900),
    ("old rule", 1, 10),
    ("old rule", 0, 0),
]  # name, payments, limit
PAYMENTS = [
    ("4711", 200),
    ("0815", 90),
    ("4711", 250),
    ("4711", 100),
    ("4711", 10),
    ("4711", 400),
    ("0815", 20),
]


class Judge(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.last = runtime_context.get_list_state(ListStateDescriptor("last payments", Types.INT()))

    def process_broadcast_element(self, rule, ctx: "KeyedBroadcastProcessFunction.Context"):
        name, payments, limit = rule
        rules = ctx.get_broadcast_state(RULES)
        if payments:
            rules.put(name, (min(payments, LONGEST), limit))
        else:
            rules.remove(name)

    def process_element(self, payment, ctx: "KeyedBroadcastProcessFunction.ReadOnlyContext"):
        card, amount = payment
        last = [*(self.last.get() or []), amount][-LONGEST:]
        self.last.update(last)
        for name, (payments, limit) in sorted(ctx.get_broadcast_state(RULES).items()):
            spent = sum(last[-payments:])
            if spent > limit:
                yield f"{card}: {spent} in the last {len(last[-payments:])} payments, rule '{name}' allows {limit}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    # In batch mode all rules are there before the first payment.
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)
    rules = env.from_collection(GIVEN, RULE).broadcast(RULES)
    payments = env.from_collection(PAYMENTS, Types.TUPLE([Types.STRING(), Types.INT()]))
    judged = (
        payments.key_by(lambda payment: payment[0], Types.STRING())
        .connect(rules)
        .process(Judge(), Types.STRING())
    )
    judged.uid("judge").print()
    env.execute("fraud detection")


if __name__ == "__main__":
    main()
