"""Without alignment an operator works on behind a barrier: what it emits may come twice, but is never lost."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tidemark import (
    Configuration,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    StreamExecutionEnvironment,
    Types,
)
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.storage.memory import MemoryStorage
from tidemark.clock import ManualClock
from tidemark.operators.base import Output, RestoredState
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import dump_functions
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.channels import ChannelAnswer, ChannelHeader, FrameKind
from tidemark.protocol.codec import codec_for
from tidemark.protocol.deployment import Deployment
from tidemark.protocol.frames import EMPTY, CutRequest
from tidemark.slot.host import SlotHost
from tidemark.slot.overtaken_output import OvertakenOutput
from tidemark.state.serializers.registry import serializer_for

TAG = OutputTag("side", Types.STRING())


class Pairs(KeyedProcessFunction):
    """Gathers two, then emits both and forgets them."""

    def open(self, runtime_context: Any) -> None:
        self.gathered = runtime_context.get_list_state(ListStateDescriptor("gathered", Types.STRING()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.gathered.add(value)
        both = list(self.gathered.get())
        if len(both) == 2:
            self.gathered.clear()
            yield tuple(both)


class Slot:
    """One subtask of `Pairs` with two channels."""

    def __init__(self, directory: Path, *, aligned: bool) -> None:
        environment = StreamExecutionEnvironment.get_execution_environment(Configuration())
        environment.set_parallelism(1)
        stream = environment.from_collection(["a"]).key_by(lambda v: "key", Types.STRING())
        stream.process(Pairs()).uid("pairs").print()
        graph, settings, _ = environment._prepared("job")
        vertex = build_plan(graph, settings, "0" * 32).in_slots()[0]
        self.vertex = vertex.id
        self.host = SlotHost(ManualClock(), MemoryStorage(), directory)
        self.cut: list[CutRequest] = []
        self.host.on_cut = self.cut.append
        functions = dump_functions([vertex])
        self.host.deploy(Deployment("0" * 32, 0, 0, functions, channels=2, aligned=aligned))
        self.sent = [0, 0]

    def offer(self, channel: int, kind: FrameKind, flags: int, body: Any) -> Any:
        header = ChannelHeader(
            kind, self.vertex, 0, channel, self.sent[channel], 0, MIN_WATERMARK, False, flags
        )
        answer = self.host.offer(list(header), body)
        if answer is not None:
            self.sent[channel] += 1
        return answer

    def record(self, channel: int, value: str) -> list[Any] | None:
        codec = codec_for(None, serializer_for(Types.STRING()))
        flags, body = codec.encode(Batch([value], None, ["key"]))
        answer = self.offer(channel, FrameKind.RECORDS, flags, body)
        if answer is None:
            return None
        header, data = ChannelAnswer(*answer[0]), answer[1]
        assert header.kind == "ok", pickle.loads(data)
        return pickle.loads(data)[0] if header.sections else []

    def barrier(self, channel: int, checkpoint_id: int) -> None:
        request = CutRequest(checkpoint_id, 0, savepoint_location("/savepoint"))
        answer = self.offer(channel, FrameKind.BARRIER, EMPTY, pickle.dumps(request))
        assert answer[0][0] == "ok"


def test_an_aligned_channel_is_held_behind_its_barrier(tmp_path):
    slot = Slot(tmp_path, aligned=True)
    assert slot.record(0, "a") == []
    slot.barrier(0, 1)

    assert slot.record(0, "b") is None
    assert slot.record(1, "c") == [("a", "c")]
    slot.barrier(1, 1)
    assert [request.checkpoint_id for request in slot.cut] == [1]
    assert slot.record(0, "b") == []


def test_what_a_record_from_behind_the_barrier_sets_free_is_in_the_cut(tmp_path):
    slot = Slot(tmp_path, aligned=False)
    slot.record(0, "a")
    slot.barrier(0, 1)
    assert slot.record(0, "b") == [("a", "b")]
    slot.barrier(1, 1)
    states = slot.host.write(slot.cut[0])

    # "a" was read in front of the barrier and is not in the list any more: the pair is all that is left of it.
    assert "_overtaken_output" in {part.name for part in states["pairs"].operator}


@pytest.mark.parametrize("tag", [None, TAG.tag_id])
def test_overtaken_output_comes_out_of_a_restore(tag):
    overtaken, out = OvertakenOutput(), Output()
    (out.emit("b", 5) if tag is None else out.emit_side(tag, "b", 5))
    overtaken.add(2, out)
    parts = overtaken.cut(2)

    again = Output()
    state = OvertakenOutput().taken_from(RestoredState(operator=parts), again)
    stream = again if tag is None else again.side[tag]
    assert (stream.values, stream.timestamps) == (["b"], [5])
    assert state.operator == []


def test_output_behind_two_barriers_is_in_the_cuts_of_both():
    overtaken, out = OvertakenOutput(), Output()
    out.emit("b", None)
    overtaken.add(3, out)

    assert overtaken.cut(1)
    assert overtaken.cut(2)
    assert overtaken.cut(3)
    assert not overtaken.cut(4)


def test_output_in_front_of_a_barrier_is_not_in_its_cut():
    overtaken, out = OvertakenOutput(), Output()
    out.emit("b", None)
    overtaken.add(1, out)

    assert not overtaken.cut(2)
