"""Tasks that wait for a core: whether there is one, or will be."""

from __future__ import annotations

import pytest

from tidemark.runtime.continuous.cores import ExecutorLoad, may_all_start

LOCAL = {"spark.master": "local[4]"}
CLUSTER = {"spark.master": "spark://host:7077", "spark.executor.cores": "2"}
DYNAMIC = {**CLUSTER, "spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("started", "executors", "spark", "may"),
    [
        pytest.param(0, [ExecutorLoad(4, 0)], LOCAL, True, id="free cores, slow to start"),
        pytest.param(1, [ExecutorLoad(4, 1)], LOCAL, True, id="one has begun"),
        pytest.param(1, [ExecutorLoad(4, 3)], LOCAL, True, id="others leave just enough"),
        pytest.param(1, [ExecutorLoad(4, 4)], LOCAL, False, id="others run"),
        pytest.param(1, [ExecutorLoad(1, 1)], LOCAL, False, id="too few cores"),
        pytest.param(1, [ExecutorLoad(4, 1)], {**LOCAL, "spark.task.cpus": "4"}, False, id="wide tasks"),
        pytest.param(
            1, [ExecutorLoad(1, 1)], {**LOCAL, "spark.executor.instances": "9"}, False, id="a machine alone"
        ),
        pytest.param(0, [], CLUSTER, False, id="no executors, none promised"),
        pytest.param(
            0, [ExecutorLoad(0, 0)], {**CLUSTER, "spark.executor.instances": "1"}, True, id="on their way"
        ),
        pytest.param(
            0,
            [ExecutorLoad(2, 2)],
            {**CLUSTER, "spark.executor.instances": "1"},
            False,
            id="all are here and busy",
        ),
        pytest.param(0, [], DYNAMIC, True, id="as many as are needed"),
        pytest.param(
            0,
            [ExecutorLoad(2, 2)],
            {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "1"},
            False,
            id="no more than one",
        ),
    ],
)
def test_two_tasks_may_start_where_there_is_or_will_be_room(
    started: int, executors: list[ExecutorLoad], spark: dict[str, str], may: bool
) -> None:
    assert may_all_start(2, started, executors, spark) is may
