"""State by column: a batch function keeps running totals for all keys of a batch at once."""

from tidemark import (
    BatchProcessFunction,
    Row,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    field,
)

PAYMENT = Types.ROW_NAMED(["user", "cents"], [Types.STRING(), Types.LONG()])


class RunningTotal(BatchProcessFunction):
    """Replaces each amount by the sum so far of its user; users without money left are forgotten."""

    def open(self, runtime_context):
        """One number per user."""
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_batch(self, batch, keys, ctx):
        """A row per row, one read and one write for all users."""
        sums = keys.running_sum(batch["cents"], self.total.read(keys))
        last = keys.last(sums)
        self.total.write(keys, last)
        self.total.clear(keys[last == 0])
        return {"user": batch["user"], "cents": sums}


def main():
    """Payments of three users."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    payments = [("ann", 500), ("bob", 70), ("ann", -500), ("bob", 30), ("cho", 1)]
    env.from_collection([Row(user=user, cents=cents) for user, cents in payments], PAYMENT).key_by(
        field("user"), Types.STRING()
    ).process_batch(RunningTotal()).print()
    env.execute("batch totals")


if __name__ == "__main__":
    main()
