"""What a subtask emitted on channels that are past a barrier for which it is not cut yet (at least once).

Under at least once nothing is held back, so a record from behind barrier k may make an operator emit and forget what
it had gathered in front of it. The cut of k then holds neither what was gathered nor what was emitted, which is on its
way behind the barrier. So the cut holds the emission, too, and a restore lets it out again: twice perhaps, lost never.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from tidemark.operators.base import Output, RestoredState
from tidemark.protocol.batch import Batch
from tidemark.state.descriptors import ListStateDescriptor
from tidemark.state.operator_state import OperatorStateStore
from tidemark.state.snapshot import OperatorStatePart
from tidemark.types.typeinfo import Types

__all__ = ["OvertakenOutput"]

_STATE = ListStateDescriptor("_overtaken_output", Types.PICKLED_BYTE_ARRAY())
"""One element per record: (side output or None, value, timestamp)."""


class OvertakenOutput:
    """Of one subtask."""

    def __init__(self) -> None:
        """Nothing was overtaken."""
        self._records: list[tuple[int, bytes]] = []
        """Newest barrier in front of each record."""

    def add(self, barrier: int, out: Output) -> None:
        """Remember what is about to be sent on a channel that has delivered `barrier`."""
        streams = [(None, out), *out.side.items()]
        for tag, stream in streams:
            for part in [*stream.done, Batch(stream.values, stream.timestamps)]:
                batch = part if isinstance(part, Batch) else part.batch()
                stamps = batch.timestamps or [None] * len(batch)
                self._records += [
                    (barrier, pickle.dumps((tag, value, stamp), 5))
                    for value, stamp in zip(batch.values, stamps, strict=True)
                ]

    def cut(self, checkpoint_id: int) -> list[OperatorStatePart]:
        """What the cut of a checkpoint holds of it; what lies behind later barriers is kept for their cuts."""
        held = [record for barrier, record in self._records if barrier >= checkpoint_id]
        self._records = [entry for entry in self._records if entry[0] > checkpoint_id]
        if not held:
            return []
        store = OperatorStateStore()
        store.get_list_state(_STATE).update([pickle.loads(record) for record in held])
        return store.cut()

    def taken_from(self, state: RestoredState, out: Output) -> RestoredState:
        """Emit what a cut held; the state without it."""
        mine = [part for part in state.operator if part.name == _STATE.name]
        if not mine:
            return state
        for tag, value, stamp in OperatorStateStore(mine).get_list_state(_STATE).get():
            if tag is None:
                out.emit(value, stamp)
            else:
                out.emit_side(tag, value, stamp)
        return replace(state, operator=[part for part in state.operator if part.name != _STATE.name])
