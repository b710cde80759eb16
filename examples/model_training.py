"""A model trained on a stream, with its parameters in state: savepoints hold it, a crash costs nothing of it.

Readings are y = 3 x - 2 and a little noise. Each one moves weight and bias a step down the gradient; the error curve
goes to `error_curve.svg`, or to the file named on the command line.
"""

import random
import sys

import numpy as np

from tidemark.common import Types
from tidemark.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor

READINGS, RATE, EVERY = 400, 0.1, 40


def readings():
    chance = random.Random(7)
    for _ in range(READINGS):
        x = chance.uniform(-1, 1)
        yield "sensor", x, 3 * x - 2 + chance.gauss(0, 0.05)


class Train(KeyedProcessFunction):
    """Weight and bias of one model for each key."""

    def open(self, runtime_context: RuntimeContext):
        self.model = runtime_context.get_state(
            ValueStateDescriptor("model", Types.NUMPY_ARRAY(np.float64, (2,)))
        )
        self.errors = runtime_context.get_state(
            ValueStateDescriptor("errors", Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
        )

    def process_element(self, reading, ctx: "KeyedProcessFunction.Context"):
        _name, x, y = reading
        model = self.model.value()
        model = np.zeros(2) if model is None else model
        inputs = np.array([x, 1.0])
        error = float(model @ inputs - y)
        model = model - RATE * error * inputs
        self.model.update(model)
        count, squares = self.errors.value() or (0, 0.0)
        count, squares = count + 1, squares + error * error
        if count % EVERY == 0:
            yield count, squares / EVERY, float(model[0]), float(model[1])
            squares = 0.0
        self.errors.update((count, squares))


def curve(points):
    """The error over the readings as a picture."""
    most = max(error for _count, error, _weight, _bias in points)
    path = " ".join(
        f"{40 + 440 * n / READINGS:.0f},{20 + 200 * (1 - e / most):.0f}" for n, e, _w, _b in points
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 500 260" font-family="sans-serif" font-size="12">'
        f'<rect width="500" height="260" fill="white"/>'
        f'<text x="40" y="14">mean squared error, {most:.2f} at first</text>'
        '<path d="M40 20V220H480" fill="none" stroke="gray"/>'
        f'<polyline points="{path}" fill="none" stroke="teal" stroke-width="2"/>'
        f'<text x="400" y="240">{READINGS} readings</text></svg>\n'
    )


def main(picture):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    stream = env.from_collection(
        list(readings()), Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.DOUBLE()])
    )
    point = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.DOUBLE(), Types.DOUBLE()])
    trained = stream.key_by(lambda reading: reading[0], Types.STRING()).process(Train(), point).uid("model")
    points = list(trained.execute_and_collect("model training"))
    for count, error, weight, bias in points:
        print(f"{count:4} readings: error {error:6.3f}, y = {weight:.1f} x {bias:+.1f}")
    with open(picture, "w", encoding="utf-8") as file:
        file.write(curve(points))


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "error_curve.svg")
