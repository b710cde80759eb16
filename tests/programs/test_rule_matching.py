"""The rule-matching job: rules change while it runs, through crashes and rescaling."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.campaign import seeds

from tidemark.common import Types
from tidemark.datastream import EmbeddedRocksDBStateBackend
from tidemark.datastream.functions import KeyedBroadcastProcessFunction
from tidemark.datastream.state import MapStateDescriptor
from tidemark.testing import CHECKPOINT, CRASH, END, RESCALE, run_script

pytestmark = pytest.mark.modes("epochs", "continuous")

RULES = MapStateDescriptor("rules", Types.STRING(), Types.TUPLE([Types.STRING(), Types.STRING()]))
ITEM = Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()])


class Match(KeyedBroadcastProcessFunction):
    """Items of one colour; a rule of None is withdrawn, and so is what waits for it."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_map_state(
            MapStateDescriptor("waiting", Types.STRING(), Types.LIST(ITEM))
        )

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        name, shapes = value
        rules = ctx.get_broadcast_state(RULES)
        if shapes is not None:
            rules.put(name, shapes)
            return
        rules.remove(name)
        descriptor = MapStateDescriptor("waiting", Types.STRING(), Types.LIST(ITEM))
        ctx.apply_to_keyed_state(descriptor, lambda _colour, waiting: waiting.remove(name))

    def process_element(self, value: Any, ctx: Any) -> Any:
        for name, (first, second) in sorted(ctx.get_broadcast_state(RULES).items()):
            waiting = list(self.waiting.get(name) or [])
            if value[1] == second and waiting:
                for item in waiting:
                    yield f"{name}: {item[2]}-{value[2]}"
                waiting = []
            if value[1] == first:
                waiting.append(value)
            if waiting:
                self.waiting.put(name, waiting)
            else:
                self.waiting.remove(name)


def rule(name: str, *shapes: str) -> Any:
    return ("rule", (name, shapes or None))


def item(colour: str, shape: str, number: int) -> Any:
    return ("item", (colour, shape, number))


def build(stream: Any) -> Any:
    rules = stream.filter(lambda event: event[0] == "rule").map(lambda event: event[1]).broadcast(RULES)
    items = stream.filter(lambda event: event[0] == "item").map(lambda event: event[1], output_type=ITEM)
    return (
        items.key_by(lambda value: value[0], key_type=Types.STRING()).connect(rules).process(Match()).uid("m")
    )


def matches(events: list[Any]) -> list[str]:
    """The same in plain Python."""
    rules: dict[str, tuple[str, str]] = {}
    waiting: dict[tuple[str, str], list[int]] = {}
    found = []
    for kind, content in events:
        if kind == "rule":
            name, shapes = content
            if shapes is not None:
                rules[name] = shapes
            else:
                rules.pop(name, None)
                waiting = {key: value for key, value in waiting.items() if key[1] != name}
            continue
        colour, shape, number = content
        for name, (first, second) in sorted(rules.items()):
            held = waiting.pop((colour, name), [])
            if shape == second and held:
                found += [f"{name}: {earlier}-{number}" for earlier in held]
                held = []
            if shape == first:
                held.append(number)
            if held:
                waiting[colour, name] = held
    return found


def test_rules_change_while_the_job_runs() -> None:
    events = [
        item("red", "square", 1),
        rule("a", "square", "circle"),
        item("red", "square", 2),
        item("red", "circle", 3),
        rule("b", "circle", "circle"),
        item("red", "circle", 4),
        item("red", "circle", 5),
        rule("a"),
        item("red", "square", 6),
        item("red", "circle", 7),
    ]

    assert run_script(build, [*events, END]) == ["a: 2-3", "b: 4-5", "b: 5-7"] == matches(events)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_matches_survive_crashes_and_rescaling(parallelism: int) -> None:
    script = [
        rule("a", "square", "circle"),
        item("red", "square", 1),
        item("blue", "square", 2),
        CHECKPOINT,
        item("red", "circle", 3),
        CRASH,
        rule("b", "circle", "star"),
        RESCALE(4),
        item("blue", "circle", 4),
        item("blue", "star", 5),
        CHECKPOINT,
        RESCALE(1),
        item("green", "circle", 6),
        rule("b"),
        CRASH,
        item("green", "star", 7),
        RESCALE(3),
        rule("c", "star", "star"),
        item("green", "star", 8),
        CRASH,
        item("green", "star", 9),
        END,
    ]
    plain = [event for event in script if isinstance(event, tuple)]

    assert sorted(run_script(build, script, parallelism=parallelism)) == sorted(matches(plain))


@pytest.mark.parametrize("seed", seeds(6))
def test_random_rules_and_failures_give_what_plain_python_gives(seed: int) -> None:
    rng = random.Random(seed)
    shapes = ["square", "circle", "star"]
    script: list[Any] = []
    for number in range(60):
        roll = rng.random()
        if roll < 0.08:
            script.append(CHECKPOINT)
        elif roll < 0.13:
            script.append(CRASH)
        elif roll < 0.18:
            script.append(RESCALE(rng.randint(1, 5)))
        elif roll < 0.28:
            script.append(rule(rng.choice("abc"), *rng.choices(shapes, k=2)))
        elif roll < 0.31:
            script.append(rule(rng.choice("abc")))
        else:
            script.append(item(rng.choice(["red", "blue", "green"]), rng.choice(shapes), number))
    backend = EmbeddedRocksDBStateBackend() if seed % 2 else None

    got = run_script(build, [*script, END], parallelism=rng.randint(1, 4), state_backend=backend)

    assert sorted(got) == sorted(matches([event for event in script if isinstance(event, tuple)]))
