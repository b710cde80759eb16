"""What a snapshot may list as staged files of a sink: every shape that a sink does not write itself is refused."""

from __future__ import annotations

import pytest

from tidemark.errors import MetadataError
from tidemark.runtime.sinks.staged_files import StagedFile, is_inside, locate

BASE, CLAIM = "/data/out", ".tidemark-abc"
EARLIER, PRESENT = ".area-1-0123456789abcdef", ".area-2-fedcba9876543210"
AREA = f"{CLAIM}/{PRESENT}"
JOB = "0123456789abcdef"
OLD = f"part-0-{JOB[:12]}-1-0-7-00c0ffee"
"""A name that a job of 0.1.0 gave."""


def listed(staged: str, final: str) -> StagedFile:
    return StagedFile(staged, final, 1, 1, "")


def held(area: str, name: str) -> str:
    return f"{BASE}/{CLAIM}/{area}/.{name}.inprogress"


@pytest.mark.parametrize(
    ("staged", "final", "inside"),
    [
        (f"{BASE}/x/.a.inprogress", f"{BASE}/x/a", True),
        ("/elsewhere/.a.inprogress", "/elsewhere/a", False),
        (f"{BASE}more/.a.inprogress", f"{BASE}more/a", False),
    ],
)
def test_a_file_belongs_to_the_sink_that_both_of_its_paths_lie_below(staged, final, inside) -> None:
    assert is_inside(BASE, listed(staged, final)) is inside


def test_a_base_path_is_the_same_one_whether_relative_or_absolute(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert is_inside("out", listed(f"{tmp_path}/out/x/.a.inprogress", f"{tmp_path}/out/x/a"))
    assert not is_inside("out", listed("/elsewhere/out/x/.a.inprogress", "/elsewhere/out/x/a"))


@pytest.mark.parametrize(
    ("staged", "final"),
    [
        ("/elsewhere/\0.inprogress", "/elsewhere/a"),
        ("/elsewhere/.a.inprogress", "/elsewhere/a\0"),
        (f"{BASE}/a\0", f"{BASE}/a"),
        (f"{BASE}/../.a.inprogress", f"{BASE}/../a"),
        ("/elsewhere/../etc/.a.inprogress", "/elsewhere/../etc/a"),
        (f"{BASE}/./.a.inprogress", f"{BASE}/./a"),
        (f"{BASE}//.a.inprogress", f"{BASE}//a"),
        (f"{BASE}/.a.inprogress", "/elsewhere/a"),
        ("/elsewhere/.a.inprogress", f"{BASE}/a"),
    ],
)
def test_paths_that_are_no_proper_ones_or_lie_in_two_places_are_refused(staged, final) -> None:
    with pytest.raises(MetadataError, match="do not restore snapshots you do not trust"):
        is_inside(BASE, listed(staged, final))


def test_a_file_of_an_earlier_holder_is_in_the_area_of_the_present_one() -> None:
    found = locate(BASE, CLAIM, AREA, listed(held(EARLIER, "a"), f"{BASE}/day/a"))

    assert found == (f"{AREA}/.a.inprogress", "day/a")


def test_a_file_of_a_job_of_the_first_release_is_staged_beside_where_it_will_be() -> None:
    file = listed(f"{BASE}/day/.{OLD}.inprogress", f"{BASE}/day/{OLD}")

    assert locate(BASE, CLAIM, AREA, file, JOB) == (f"day/.{OLD}.inprogress", f"day/{OLD}")


@pytest.mark.parametrize(
    ("staged", "final", "job"),
    [
        ("/elsewhere/.a.inprogress", f"{BASE}/a", ""),
        (held(EARLIER, "a"), "/elsewhere/a", ""),
        (held(EARLIER, "a"), f"{BASE}/b", ""),
        (held(EARLIER, "a"), f"{BASE}/.tidemark-other/a", ""),
        (f"{BASE}/.tidemark-other/{EARLIER}/.a.inprogress", f"{BASE}/a", ""),
        (held(f"{EARLIER}/deeper", "a"), f"{BASE}/a", ""),
        (f"{BASE}/.a.inprogress", f"{BASE}/a", ""),
        (f"{BASE}/day/.{OLD}.inprogress", f"{BASE}/day/{OLD}", ""),
        (f"{BASE}/other/.{OLD}.inprogress", f"{BASE}/day/{OLD}", JOB),
        (f"{BASE}/day/.a.inprogress", f"{BASE}/day/a", JOB),
    ],
)
def test_a_listed_file_of_a_shape_that_no_sink_here_writes_is_refused(staged, final, job) -> None:
    with pytest.raises(MetadataError):
        locate(BASE, CLAIM, AREA, listed(staged, final), job)
