from __future__ import annotations

import asyncio
import concurrent.futures

import pytest

from tidemark import CompletableFuture, JobExecutionResult, JobID, JobStatus, MemorySize, SlotSharingGroup


def test_then_accept_runs_on_success_only():
    seen = []
    future = CompletableFuture()
    following = future.then_accept(seen.append)
    assert not following.done()

    future.set_result(5)

    assert seen == [5]
    assert following.result() is None
    failed = CompletableFuture.failed(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.then_accept(seen.append).result()
    assert seen == [5]


def test_then_apply_passes_values_and_failures_on():
    assert CompletableFuture.completed(2).then_apply(lambda v: v + 1).get() == 3
    with pytest.raises(ZeroDivisionError):
        CompletableFuture.completed(0).then_apply(lambda v: 1 // v).result()


def test_a_future_is_completed_once():
    future = CompletableFuture()

    assert future.set_result(1)
    assert not future.set_result(2)
    assert not future.set_exception(ValueError())
    assert future.result() == 1
    assert future.exception() is None


def test_a_cancelled_future_has_no_value():
    future = CompletableFuture()
    following = future.then_apply(str)

    assert future.cancel()
    assert future.cancelled()
    assert following.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()


def test_a_future_can_be_awaited():
    async def wait():
        return await CompletableFuture.wrap(CompletableFuture.completed(7)._future)

    assert asyncio.run(wait()) == 7


def test_results_of_jobs():
    result = JobExecutionResult(JobID("ab" * 16), 12, {"n": 3})

    assert result.get_job_id() == "ab" * 16
    assert result.is_job_execution_result()
    assert result.get_accumulator_result("n") == 3
    assert result.get_accumulator_result("m") is None
    assert result.get_all_accumulator_results() == {"n": 3}
    assert "12 ms" in str(result)


def test_terminal_states():
    terminal = [status.name for status in JobStatus if status.is_globally_terminal_state()]

    assert sorted(terminal) == ["CANCELED", "FAILED", "FINISHED"]
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert not JobStatus.RESTARTING.is_terminal_state()


def test_slot_sharing_groups_keep_what_they_are_told():
    group = (
        SlotSharingGroup.builder("g")
        .set_cpu_cores(2)
        .set_task_heap_memory_mb(1)
        .set_task_off_heap_memory_mb(2)
        .set_managed_memory_mb(3)
        .set_external_resource("gpu", 1)
        .build()
    )

    assert group.get_name() == "g"
    assert group.get_cpu_cores() == 2.0
    assert group.get_task_heap_memory() == MemorySize.of_mebi_bytes(1)
    assert group.get_task_off_heap_memory() == MemorySize.of_mebi_bytes(2)
    assert group.get_managed_memory() == MemorySize.of_mebi_bytes(3)
    assert group.get_external_resources() == {"gpu": 1.0}
    with pytest.raises(ValueError, match="name"):
        SlotSharingGroup.builder("")
