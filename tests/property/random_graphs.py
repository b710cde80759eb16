"""Random continuous jobs for the local engine, and what must come out of them, computed without the library.

A graph has several sources, each of several splits, and up to four layers of operators behind them, joined by unions
and diamonds. Every record carries the names of the operators it has passed, so the output alone says what was lost
or seen twice. Every keyed operator counts what it has seen in operator state; at a restore those counts and the
positions of the sources must fit together: that is what a consistent cut means.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from tidemark import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    Split,
    SplitReader,
    SplitSource,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

KEYS = 3
TOTALS = OutputTag("totals")
_FAR = 2**62

journals: dict[str, Journal] = {}
"""Functions are pickled on their way into a job but run in this process; they find their journal by its name."""


@dataclass
class Journal:
    """What sources and operators of one job say about themselves."""

    opened: dict[str, int] = field(default_factory=dict)
    """Split -> where its reader began in this attempt."""
    restored: dict[str, Counter] = field(default_factory=dict)
    """Operator -> source -> records it had seen when it was restored in this attempt."""
    late: list = field(default_factory=list)
    """Records that event time had overtaken."""

    def new_attempt(self):
        self.opened.clear()
        self.restored.clear()


@dataclass(frozen=True)
class Node:
    """An operator: keyed in slots, or fused into the tasks."""

    name: str
    inputs: tuple[str, ...]
    keyed: bool


@dataclass(frozen=True)
class Shape:
    """A graph as data."""

    sources: dict[str, tuple[int, ...]]
    """Source -> records of each of its splits."""
    nodes: tuple[Node, ...]

    def leaves(self):
        used = {name for node in self.nodes for name in node.inputs}
        return [node.name for node in self.nodes if node.name not in used]

    def paths(self):
        """Operator or source -> source -> every way from there to here, as text, without the end of the way."""
        paths = {source: {source: [""]} for source in self.sources}
        for node in self.nodes:
            into = {}
            for name in node.inputs:
                for source, ways in paths[name].items():
                    own = "" if name in self.sources else name
                    into.setdefault(source, []).extend(way + own for way in ways)
            paths[node.name] = into
        return paths

    def expected(self):
        """What comes out, as a multiset."""
        paths, out = self.paths(), Counter()
        numbers = {s: [n for size in splits for n in range(size)] for s, splits in self.sources.items()}
        for leaf in self.leaves():
            for source, ways in paths[leaf].items():
                out.update((source, n, way + leaf) for n in numbers[source] for way in ways)
        for node in self.nodes:
            if node.keyed:
                totals = Counter()
                for source, ways in paths[node.name].items():
                    for n in numbers[source]:
                        totals[n % KEYS] += len(ways)
                out.update(("total", key, f"{node.name}:{count}") for key, count in totals.items())
        return out

    def positions(self, opened):
        """Source -> records read before the attempt; a split that is not read again has been read to its end."""
        return {
            source: sum(opened.get(f"{source}-{n}", size) for n, size in enumerate(sizes))
            for source, sizes in self.sources.items()
        }

    def seen(self, positions):
        """Keyed operator -> source -> records it has seen if sources have come this far."""
        paths = self.paths()
        return {
            node.name: {s: len(ways) * positions[s] for s, ways in paths[node.name].items()}
            for node in self.nodes
            if node.keyed
        }


def random_shape(rng: random.Random) -> Shape:
    """One to three sources, up to four layers of one or two operators."""
    sources = {
        name: tuple(rng.randint(0, 9) for _ in range(rng.randint(1, 3)))
        for name in "rst"[: rng.randint(1, 3)]
    }
    names, nodes, unused = list(sources), [], list(sources)
    for _layer in range(rng.randint(1, 4)):
        above = list(names)
        for _ in range(rng.randint(1, 2)):
            first = unused.pop(0) if unused and unused[0] in above else rng.choice(above)
            inputs = [
                first,
                *rng.sample([n for n in above if n != first], min(rng.randint(0, 1), len(above) - 1)),
            ]
            node = Node("abcdefgh"[len(nodes)], tuple(inputs), rng.random() < 0.75)
            nodes.append(node)
            names.append(node.name)
            unused = [name for name in unused if name not in inputs]
    for name in unused:
        nodes.append(Node("uvw"["rst".index(name)], (name,), True))
    return Shape(sources, tuple(nodes))


def build(env, shape: Shape, journal: str, rng: random.Random):
    """The job of a shape; returns its result stream."""
    streams = {}
    for name, splits in shape.sources.items():
        timed = WatermarkStrategy.for_monotonous_timestamps()
        strategy = timed if rng.random() < 0.7 else WatermarkStrategy.no_watermarks()
        source = Numbers(journal, name, splits, rng.randint(1, 5))
        streams[name] = env.from_source(source, strategy, name).uid(name)
    results = []
    for node in shape.nodes:
        first, *others = (streams[name] for name in node.inputs)
        stream = first.union(*others) if others else first
        if node.keyed:
            keyed = stream.key_by(lambda record: record[1] % KEYS, Types.LONG())
            streams[node.name] = keyed.process(Seen(journal, node.name)).uid(node.name)
            results.append(streams[node.name].get_side_output(TOTALS))
        else:
            streams[node.name] = stream.map(lambda r, own=node.name: (r[0], r[1], r[2] + own)).uid(node.name)
    first, *others = [streams[name] for name in shape.leaves()] + results
    return first.union(*others) if others else first


class Numbers(SplitSource):
    """(name, n, "") for every n of every split, with n as its timestamp."""

    bounded = True

    def __init__(self, journal, name, sizes, at_once):
        self.journal, self.name, self.sizes, self.at_once = journal, name, sizes, at_once

    def enumerate(self):
        return [Split(f"{self.name}-{n}", size) for n, size in enumerate(self.sizes)]

    def open(self, split, position):
        journals[self.journal].opened[split.id] = position or 0
        return _Reader(self, split.data, position or 0)


class _Reader(SplitReader):
    def __init__(self, source, size, position):
        self.source, self.size, self.next = source, size, position
        self.first = position

    def read(self, max_records, timeout_ms):
        if self.next >= self.size:
            return None
        self.first, self.next = self.next, min(self.size, self.next + min(max_records, self.source.at_once))
        return [(self.source.name, n, "") for n in range(self.first, self.next)]

    def timestamps(self):
        return list(range(self.first, self.next))

    def position(self):
        return self.next


class Seen(KeyedProcessFunction, CheckpointedFunction):
    """Passes records on with its own name behind theirs; tells at the end how many it has seen of every key."""

    def __init__(self, journal, name):
        self.journal, self.name = journal, name

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.stored = store.get_list_state(ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY()))
        self.seen = Counter()
        for counts in self.stored.get():
            self.seen.update(counts)
        journals[self.journal].restored.setdefault(self.name, Counter()).update(self.seen)

    def snapshot_state(self, context):
        self.stored.update([dict(self.seen)])

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        source, n, way = value
        if ctx.timestamp() is not None and ctx.timestamp() <= ctx.timer_service().current_watermark():
            journals[self.journal].late.append((self.name, value, ctx.timer_service().current_watermark()))
        self.seen[source] += 1
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(_FAR)
        yield source, n, way + self.name

    def on_timer(self, timestamp, ctx):
        yield TOTALS, ("total", ctx.get_current_key(), f"{self.name}:{self.count.value()}")
