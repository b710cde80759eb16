"""Plans and links without slots for tests of continuous tasks: frames are noted, the test answers."""

from __future__ import annotations

import pickle
from typing import Any

from tidemark import StreamExecutionEnvironment
from tidemark.plan.job_plan import JobPlan, build_plan
from tidemark.protocol.batch import MIN_WATERMARK, Batch
from tidemark.protocol.channels import ChannelAnswer, FrameKind
from tidemark.protocol.codec import codec_for
from tidemark.protocol.failure import FailureInfo
from tidemark.wire import WireClosed


def plan_of(build: Any, parallelism: int = 1) -> JobPlan:
    """The plan of the job that `build` makes of an environment."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    build(env)
    graph, settings, _ = env._prepared("job")
    return build_plan(graph, settings, "0" * 32)


class FakeLink:
    """A link whose answers are those the test gives."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.bodies: list[Any] = []
        self.answers: list[Any] = []
        self.broken = self.closed = False

    def send(self, header: Any, body: Any = b"") -> None:
        if self.broken:
            raise WireClosed("gone")
        assert len(self.sent) == self.taken, "one frame in flight"
        self.sent.append(header)
        self.bodies.append(body)

    taken = 0

    def poll(self) -> Any:
        if self.broken:
            raise WireClosed("gone")
        if not self.answers:
            return None
        self.taken += 1
        return self.answers.pop(0)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.closed = True

    def kinds(self) -> list[FrameKind]:
        return [FrameKind(header.kind) for header in self.sent]

    def answer(self, *values: Any, watermark: int = MIN_WATERMARK, **more: Any) -> None:
        """Answer the frame in flight."""
        sections: list[Any] = []
        body: Any = b""
        if values:
            flags, body = codec_for(None).encode(Batch(list(values)))
            sections = [(None, flags, memoryview(body).nbytes)]
        self.answers.append((ChannelAnswer("ok", watermark=watermark, sections=sections, **more), body))

    def fail(self, exc: Exception) -> None:
        self.answers.append((ChannelAnswer("error"), pickle.dumps(FailureInfo.of(exc))))
