"""The page's own modules, in the browser they are written for: virtual DOM, layout of graphs, numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import Complaints
from tests.browser.fixture_server import FixtureServer

SIZE = {"along": 200, "across": 100, "gapAlong": 50, "gapAcross": 20}


@pytest.fixture(scope="module")
def module(browser: Browser) -> Iterator[Any]:
    """Evaluates an expression that may use `m`, the module of that name; all in one page."""
    complaints = Complaints()
    page = complaints.watch(browser.new_page())
    with FixtureServer() as site:

        def run(name: str, expression: str, argument: Any = None) -> Any:
            script = f"async (argument) => {{ const m = await import('/static/js/{name}.js'); return ({expression}); }}"
            return page.evaluate(script, argument)

        page.goto(f"{site.url}/login")
        yield run
    page.close()
    assert complaints == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("m.count(1234567)", "1,234,567"),
        ("m.count(null)", "–"),
        ("m.short(999.6)", "1 k"),
        ("m.rate(4438.2)", "4.44 k/s"),
        ("m.bytes(0)", "0 B"),
        ("m.bytes(1323456)", "1.32 MB"),
        ("m.bytes(-1)", "–"),
        ("m.duration(340)", "340 ms"),
        ("m.duration(59_960)", "1 min"),
        ("m.duration(125_000)", "2 min 5 s"),
        ("m.duration(97_200_000)", "1 d 3 h"),
        ("m.duration(-1)", "–"),
        ("m.elapsed(20)", "0 s"),
        ("m.watermark('-9223372036854775808', 0)", "none yet"),
        ("m.watermark('9223372036854775807', 0)", "end of input"),
        ("m.watermark(1_700_000_000_000, 1_700_000_002_500)", "2 s behind"),
        ("m.percent(0.625)", "63 %"),
        ("m.words('EXACTLY_ONCE')", "exactly once"),
    ],
)
def test_numbers_read_as_a_person_would_write_them(module: Any, call: str, expected: str) -> None:
    assert module("format", call) == expected


def test_children_with_keys_move_and_stay_themselves(module: Any) -> None:
    result = module(
        "vdom",
        """(() => {
            const host = document.createElement("ul");
            document.body.append(host);
            const show = (keys) => m.render(host, keys.map((key) => m.h("li", { key }, key)));
            const texts = () => [...host.children].map((each) => each.textContent);
            show(["a", "b", "c", "d"]);
            const [a, b, c, d] = host.children;
            show(["d", "x", "b", "a"]);
            const kept = host.children[0] === d && host.children[2] === b && host.children[3] === a && !c.isConnected;
            const first = texts();
            show(["c", "a"]);
            return [first, kept, texts(), host.children[1] === a];
        })()""",
    )
    assert result == [["d", "x", "b", "a"], True, ["c", "a"], True]


def test_random_changes_of_children_always_end_at_what_was_described(module: Any) -> None:
    pick = random.Random(4711)
    lists = [pick.sample("abcdefgh", pick.randint(0, 8)) for _ in range(200)]
    wrong = module(
        "vdom",
        """argument.filter((keys) => {
            globalThis.host ||= document.createElement("div");
            // Every second one without a key, as views mix them.
            m.render(host, keys.map((key) => m.h("p", "aceg".includes(key) ? { key } : {}, key)));
            return [...host.children].map((each) => each.textContent).join() !== keys.join();
        })""",
        lists,
    )
    assert wrong == []


def test_hooks_are_called_once_when_elements_come_and_go(module: Any) -> None:
    calls = module(
        "vdom",
        """(() => {
            const host = document.createElement("div");
            document.body.append(host);
            const calls = [];
            const child = m.h("i", { mount: () => calls.push("mount"), unmount: () => calls.push("unmount") });
            m.render(host, m.h("div", {}, child));
            m.render(host, m.h("div", {}, child));
            m.render(host);
            return calls;
        })()""",
    )
    assert calls == ["mount", "unmount"]


def layout_of(module: Any, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    laid = (
        "(({ nodes, edges, along, across }) => ({ nodes: Object.fromEntries(nodes), edges, along, across }))"
    )
    found: dict[str, Any] = module("layout", f"{laid}(m.layered(argument[0], argument[1]))", [nodes, SIZE])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_no_two_vertices_of_any_graph_overlap_and_records_flow_one_way(module: Any, seed: int) -> None:
    pick = random.Random(seed)
    number = pick.randint(1, 60)
    nodes = [
        {"id": str(i), "inputs": [str(n) for n in pick.sample(range(i), min(i, pick.randint(0, 3)))]}
        for i in range(number)
    ]
    laid = layout_of(module, nodes)
    places = sorted((place["along"], place["across"]) for place in laid["nodes"].values())
    assert len(places) == number
    for (layer, here), (next_layer, there) in itertools.pairwise(places):
        assert layer != next_layer or there - here >= SIZE["across"] + SIZE["gapAcross"] - 1e-6
    for node in nodes:
        for source in node["inputs"]:
            assert laid["nodes"][source]["along"] < laid["nodes"][node["id"]]["along"]
    assert all(0 <= along <= laid["along"] and -1e-6 <= across <= laid["across"] for along, across in places)


def test_an_iteration_does_not_confuse_the_layout(module: Any) -> None:
    nodes = [{"id": "a", "inputs": []}, {"id": "b", "inputs": ["a", "c"]}, {"id": "c", "inputs": ["b", "c"]}]
    laid = layout_of(module, nodes)
    assert set(laid["nodes"]) == {"a", "b", "c"}
    assert [(edge["from"], edge["to"]) for edge in laid["edges"]] == [("a", "b"), ("c", "b"), ("b", "c")]
