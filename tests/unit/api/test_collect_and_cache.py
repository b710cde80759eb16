from __future__ import annotations

import pickle
import threading

import pytest

from tidemark import Row, SourceFunction, Types
from tidemark.api.collect import CollectBuffer
from tidemark.api.graph import NodeKind
from tidemark.errors import ExecutionError, UnsupportedOperationException


class Endless(SourceFunction):
    def run(self, ctx):
        pass


def test_collected_elements_come_in_order(env):
    env.executor.outputs = [1, 2, 3]

    with env.from_collection([0]).execute_and_collect("mine") as elements:
        assert list(elements) == [1, 2, 3]

    assert env.executor.submitted[-1][1].job_name == "mine"


def test_a_limit_gives_a_list_and_cancels_what_still_runs(env):
    env.executor.outputs = [1, 2, 3]
    env.executor.finish = False

    assert env.from_collection([0]).execute_and_collect(limit=2) == [1, 2]
    with pytest.raises(ValueError, match="limit"):
        env.from_collection([0]).execute_and_collect(limit=0)


def test_closing_early_cancels_the_job(env):
    env.executor.outputs = [1, 2]
    env.executor.finish = False
    elements = env.from_collection([0]).execute_and_collect()

    assert next(elements) == 1
    elements.close()
    elements.close()

    assert elements.get_job_client().cancelled
    assert list(elements) == []


def test_the_failure_of_the_job_is_raised_after_the_last_element(env):
    env.executor.outputs = [1]
    env.executor.finish = False
    elements = env.from_collection([0]).execute_and_collect()
    elements.get_job_client().result.set_exception(ExecutionError("boom"))

    assert next(elements) == 1
    with pytest.raises(ExecutionError, match="boom"):
        next(elements)
    assert list(elements) == []


def test_a_keyed_stream_gives_rows_of_key_and_value(env):
    keyed = env.from_collection([("a", 1)]).key_by(lambda value: value[0])
    keyed.execute_and_collect()

    graph, _ = env.executor.submitted[-1]
    function = graph.nodes[2].spec.function
    assert function.map(("a", 1)) == Row("a", ("a", 1))


def test_a_buffer_waits_for_elements_of_another_thread():
    buffer = CollectBuffer()
    thread = threading.Thread(target=lambda: (buffer.add([1], [5]), buffer.end()))
    thread.start()

    assert buffer.take() == (1,)
    assert buffer.take() is None
    thread.join()


def test_a_pickled_buffer_is_empty():
    buffer = CollectBuffer()
    buffer.add([1, 2])

    copy = pickle.loads(pickle.dumps(buffer))

    assert copy.drain() == ([], [])
    assert buffer.drain() == ([1, 2], [None, None])


def test_the_first_job_fills_the_cache_and_later_ones_read_it(env):
    cached = env.from_collection([1], Types.INT()).map(str, Types.STRING()).cache()
    env.executor.outputs = ["a", "b"]

    cached.print()
    env.execute()
    first, _ = env.executor.submitted[-1]
    cached.filter(bool).print()
    env.execute()
    second, _ = env.executor.submitted[-1]

    assert [node.name for node in first.nodes.values()].count("Cache Writer") == 1
    assert set(second.nodes) == {3, 5, 6}
    assert second.nodes[3].kind is NodeKind.SOURCE
    assert second.nodes[3].spec.elements == ["a", "b"]
    assert second.nodes[3].spec.timestamps is None
    assert cached.get_type() == Types.STRING()


def test_invalidating_and_closing_forget_the_elements(env):
    cached = env.from_collection([1]).cache()
    cached.print()
    env.execute()

    cached.invalidate()
    cached.print()
    env.execute()
    assert env.executor.submitted[-1][0].nodes[2].kind is NodeKind.OPERATOR

    executor = env.executor
    env.close()
    env._executors["recording"] = executor
    cached.print()
    env.execute()
    assert executor.submitted[-1][0].nodes[2].kind is NodeKind.OPERATOR


def test_a_failed_job_fills_no_cache(env):
    cached = env.from_collection([1]).cache()
    cached.print()
    env.executor.finish = False
    client = env.execute_async()
    client.result.set_exception(ExecutionError("boom"))

    env.executor.finish = True
    cached.print()
    env.execute()

    assert env.executor.submitted[-1][0].nodes[2].kind is NodeKind.OPERATOR


def test_unbounded_streams_are_not_cached(env):
    with pytest.raises(UnsupportedOperationException, match="unbounded"):
        env.add_source(Endless()).map(str).cache()
