"""Map, flat map, filter, key by and rolling aggregates on rows of JSON text."""

import json

from tidemark.common import Types
from tidemark.datastream import StreamExecutionEnvironment

ORDERS = [
    (1, '{"city": "Oslo", "amount": 25, "items": ["tea", "cup"]}'),
    (2, '{"city": "Rome", "amount": 40, "items": ["tea"]}'),
    (3, '{"city": "Oslo", "amount": 15, "items": []}'),
    (4, '{"city": "Bern", "amount": 60, "items": ["pot", "cup", "tea"]}'),
]


def show(environment, stream):
    """Run what leads to `stream` and print it."""
    stream.print()
    environment.execute()


def main():
    """One small job per operation."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = env.from_collection(
        ORDERS, type_info=Types.ROW_NAMED(["id", "info"], [Types.INT(), Types.STRING()])
    )

    # Declared types decide how elements look when they are printed.
    amounts = orders.map(
        lambda order: (order.id, json.loads(order.info)["amount"]),
        output_type=Types.TUPLE([Types.INT(), Types.INT()]),
    )
    show(env, amounts)

    show(env, orders.filter(lambda order: order.id % 2 == 0))

    def items(order):
        for item in json.loads(order.info)["items"]:
            yield order.id, item

    show(env, orders.flat_map(items))

    totals = (
        orders.map(lambda order: (json.loads(order.info)["city"], json.loads(order.info)["amount"]))
        .key_by(lambda order: order[0], key_type=Types.STRING())
        .sum(1)
    )
    show(env, totals)


if __name__ == "__main__":
    main()
