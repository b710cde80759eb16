"""Windows by column: several aggregations at once, combined a batch at a time, late sales on the side."""

from tidemark import (
    OutputTag,
    Row,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    avg,
    count,
    field,
    max_,
    sum_,
)

SALE = Types.ROW_NAMED(["shop", "cents", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])


def main():
    """What shops sell per second."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    sales = [("york", 500, 10), ("york", 300, 990), ("york", 50, 1_000), ("york", None, 1_700)]
    late = OutputTag("late", SALE)

    totals = (
        env.from_collection([Row(shop=shop, cents=cents, at=at) for shop, cents, at in sales], SALE)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(field("at"))
        )
        .key_by(field("shop"), Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .side_output_late_data(late)
        .aggregate(
            n=count(), priced=count("cents"), total=sum_("cents"), most=max_("cents"), mean=avg("cents")
        )
    )
    totals.print()
    totals.get_side_output(late).print("late")
    env.execute("window totals")


if __name__ == "__main__":
    main()
