"""An executor that runs nothing: it remembers what it was handed and ends jobs as the test says."""

from __future__ import annotations

from tidemark.api.executor import JobSettings
from tidemark.api.graph import Graph
from tidemark.api.job import JobClient, JobExecutionResult, JobStatus
from tidemark.api.specs import CollectSinkSpec
from tidemark.futures import CompletableFuture
from tidemark.ids import new_job_id


class FakeClient(JobClient):
    def __init__(self):
        self.id = new_job_id()
        self.result = CompletableFuture()
        self.cancelled = False

    def get_job_id(self):
        return self.id

    def get_job_status(self):
        return CompletableFuture.completed(JobStatus.RUNNING)

    def cancel(self):
        self.cancelled = True
        return CompletableFuture.completed(None)

    def stop_with_savepoint(self, advance_to_end_of_event_time, savepoint_directory=None):
        return CompletableFuture.completed("savepoint")

    def trigger_savepoint(self, savepoint_directory=None):
        return CompletableFuture.completed("savepoint")

    def get_accumulators(self):
        return CompletableFuture.completed({})

    def get_job_execution_result(self):
        return self.result


class RecordingExecutor:
    """`outputs` go to every collect sink; then the job finishes, unless `finish` is False."""

    outputs: list = []
    finish = True

    def __init__(self):
        self.submitted: list[tuple[Graph, JobSettings]] = []
        self.closed = False

    def submit(self, graph, settings):
        self.submitted.append((graph, settings))
        client = FakeClient()
        for node in graph.nodes.values():
            if isinstance(node.spec, CollectSinkSpec):
                node.spec.buffer.add(list(self.outputs))
        if self.finish:
            client.result.set_result(JobExecutionResult(client.id, 5))
        return client

    def close(self):
        self.closed = True
