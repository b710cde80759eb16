from __future__ import annotations

import pytest

from tidemark import errors
from tidemark.api import functions as f
from tidemark.api.context import OnTimerContext, ProcessWindowContext
from tidemark.common.serializer import TypeSerializer
from tidemark.datastream.state import ListState, MapState, ValueState
from tidemark.datastream.window import Trigger, WindowAssigner


class NoSuperInit(f.MapFunction):
    def __init__(self, factor):
        self.factor = factor

    def map(self, value):
        return value * self.factor


def test_a_function_that_skips_the_base_constructor_has_no_context_until_one_is_attached():
    function = NoSuperInit(2)
    with pytest.raises(errors.IllegalStateError, match="runtime context"):
        function.get_runtime_context()

    marker = object()
    function.set_runtime_context(marker)

    assert function.get_runtime_context() is marker
    assert function.map(3) == 6


def test_rich_functions_are_the_plain_ones():
    assert f.RichMapFunction is f.MapFunction
    assert f.RichFlatMapFunction is f.FlatMapFunction
    assert f.RichFilterFunction is f.FilterFunction
    assert f.RichCoFlatMapFunction is f.CoFlatMapFunction
    assert f.RichSinkFunction is f.SinkFunction
    assert f.RichSourceFunction is f.SourceFunction
    assert f.RichFunction is f.Function


@pytest.mark.parametrize("cls", [f.SourceFunction, f.SinkFunction])
def test_java_class_names_are_refused(cls):
    with pytest.raises(errors.UnsupportedOperationException, match="Java"):
        cls("org.example.Thing")


def test_a_source_of_the_users_may_have_constructor_arguments():
    class Numbers(f.SourceFunction):
        def __init__(self, count):
            self.count = count

        def run(self, ctx):
            for number in range(self.count):
                ctx.collect(number)

    source = Numbers(3)
    source.cancel()

    assert source.count == 3


def test_abstract_methods_must_be_written():
    with pytest.raises(TypeError):
        f.MapFunction()
    with pytest.raises(TypeError):
        f.SourceFunction()


def test_on_timer_is_optional():
    class OnlyElements(f.KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield value

    assert OnlyElements().on_timer(1, None) is None


@pytest.mark.parametrize(
    ("generic", "arity"),
    [
        (f.ProcessWindowFunction, 4),
        (f.ProcessWindowFunction.Context, 1),
        (f.WindowFunction, 4),
        (f.AllWindowFunction, 3),
        (f.ProcessAllWindowFunction, 3),
        (f.BroadcastProcessFunction, 3),
        (f.KeyedBroadcastProcessFunction, 4),
        (f.AsyncFunction, 2),
        (MapState, 2),
        (ValueState, 1),
        (ListState, 1),
        (TypeSerializer, 1),
        (Trigger, 2),
        (WindowAssigner, 2),
    ],
)
def test_generic_classes_are_subscriptable_as_in_pyflink(generic, arity):
    arguments = (int, str, float, bytes)[:arity]

    assert generic[arguments if arity > 1 else int] is not None


def test_contexts_are_nested_as_in_pyflink():
    assert f.KeyedProcessFunction.OnTimerContext is OnTimerContext
    assert f.ProcessWindowFunction.Context is ProcessWindowContext
    assert issubclass(
        f.KeyedBroadcastProcessFunction.OnTimerContext, f.KeyedBroadcastProcessFunction.ReadOnlyContext
    )
    assert f.SourceFunction.SourceContext.__name__ == "SourceContext"


def test_an_async_function_times_out_with_an_error_by_default():
    class Lookup(f.AsyncFunction):
        async def async_invoke(self, value):
            return [value]

    with pytest.raises(TimeoutError):
        Lookup().timeout(1)


def test_a_listener_may_implement_one_notification_only():
    class Listener(f.CheckpointListener):
        pass

    assert Listener().notify_checkpoint_complete(1) is None
    assert Listener().notify_checkpoint_aborted(1) is None
