from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.unit.queryablestate.cluster import JOB, TOKEN, Cluster, queryable

from tidemark.errors import (
    IllegalStateError,
    QueryError,
    SerializationError,
    UnknownKeyOrNamespaceException,
    UnknownKvStateError,
    UnsupportedOperationException,
)
from tidemark.queryablestate import QueryableStateClient
from tidemark.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidemark.types.typeinfo import Types


class Mean:
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


@dataclass
class Cart:
    items: int
    owner: str


def descriptors():
    return [
        queryable(ValueStateDescriptor("value", Types.STRING())),
        queryable(ListStateDescriptor("list", Types.LONG())),
        queryable(MapStateDescriptor("map", Types.STRING(), Types.STRING())),
        queryable(ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG())),
        queryable(
            AggregatingStateDescriptor("aggregating", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        ),
        queryable(FoldingStateDescriptor("folding", "", lambda a, b: f"{a}{b}", Types.STRING())),
        queryable(ValueStateDescriptor("cart", Types.DATACLASS(Cart))),
    ]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(descriptors()) as cluster:
        cluster.change(1, "value", lambda s: s.update("one"))
        cluster.change(1, "list", lambda s: s.update([3, 1, 2]))
        cluster.change(1, "map", lambda s: s.put_all({"a": "x", "b": None}))
        for number in (2, 4):
            cluster.change(1, "reducing", lambda s, number=number: s.add(number))
            cluster.change(1, "aggregating", lambda s, number=number: s.add(number))
            cluster.change(1, "folding", lambda s, number=number: s.add(number))
        cluster.change(1, "cart", lambda s: s.update(Cart(2, "me")))
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    with QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN, timeout=60) as client:
        yield client


def read(client, name, key=1):
    (descriptor,) = [d for d in descriptors() if d.name == name]
    return client.get_kv_state(JOB, name, key, Types.LONG(), descriptor).get(60)


def test_value_state_has_value_and_get(client):
    state = read(client, "value")
    assert state.value() == "one"
    assert state.get() == "one"


def test_list_state_keeps_order_and_hands_out_a_list_of_the_callers_own(client):
    state = read(client, "list")
    state.get().append(99)
    assert state.get() == [3, 1, 2]
    assert list(state) == [3, 1, 2]


def test_map_state_can_be_read_in_every_way(client):
    state = read(client, "map")
    assert state.get("a") == state["a"] == "x"
    assert state.get("missing") is None
    assert state.contains("b")
    assert "b" in state
    assert state["b"] is None
    assert dict(state.items()) == dict(state.entries()) == {"a": "x", "b": None}
    assert set(state.keys()) == set(state) == {"a", "b"}
    assert list(state.values()) == ["x", None]
    assert not state.is_empty()


def test_reducing_aggregating_and_folding_state_give_what_get_gives_in_the_job(client):
    assert read(client, "reducing").get() == 6
    assert read(client, "aggregating").get() == 3.0
    assert read(client, "folding").get() == "24"


def test_dataclass_values_are_read(client):
    assert read(client, "cart").value() == Cart(2, "me")


WRITES = {
    "value": [lambda s: s.update("x"), lambda s: s.clear()],
    "list": [lambda s: s.add(1), lambda s: s.add_all([1]), lambda s: s.update([1]), lambda s: s.clear()],
    "map": [
        lambda s: s.put("a", "b"),
        lambda s: s.put_all({}),
        lambda s: s.remove("a"),
        lambda s: s.clear(),
        lambda s: s.__setitem__("a", "b"),
        lambda s: s.__delitem__("a"),
    ],
    "reducing": [lambda s: s.add(1), lambda s: s.clear()],
    "aggregating": [lambda s: s.add(1), lambda s: s.clear()],
    "folding": [lambda s: s.add(1), lambda s: s.clear()],
}


@pytest.mark.parametrize("kind", WRITES)
def test_results_refuse_every_write(client, kind):
    state = read(client, kind)
    for write in WRITES[kind]:
        with pytest.raises(UnsupportedOperationException, match="read-only"):
            write(state)


def test_a_default_shows_only_where_none_is_stored(client):
    descriptor = ValueStateDescriptor("value", Types.STRING(), "fallback")
    assert client.get_kv_state(JOB, "value", 1, Types.LONG(), descriptor).get(60).value() == "one"
    with pytest.raises(UnknownKeyOrNamespaceException):
        client.get_kv_state(JOB, "value", 2, Types.LONG(), descriptor).get(60)


def test_a_key_without_value_fails_with_the_key_in_the_text(client):
    with pytest.raises(UnknownKeyOrNamespaceException, match=r"'value'.*holds no value for key 77") as caught:
        read(client, "value", 77)
    assert caught.value.job_id == JOB
    assert caught.value.name == "value"


def test_an_unknown_name_fails_and_lists_the_published_ones(client):
    with pytest.raises(UnknownKvStateError, match=r"publishes no state as 'nothing'.*published: .*reducing"):
        client.get_kv_state(JOB, "nothing", 1, Types.LONG(), ValueStateDescriptor("x", Types.LONG())).get(60)


def test_an_unknown_job_fails(client):
    with pytest.raises(UnknownKvStateError, match="No job 'ffff' runs here"):
        client.get_kv_state("ffff", "value", 1, Types.LONG(), ValueStateDescriptor("x", Types.STRING())).get(
            20
        )


@pytest.mark.parametrize(
    ("key_type", "descriptor", "text"),
    [
        (
            Types.STRING(),
            ValueStateDescriptor("x", Types.STRING()),
            "keys are LONG but was asked for as STRING",
        ),
        (Types.LONG(), ValueStateDescriptor("x", Types.INT()), "values are STRING but was asked for as INT"),
        (Types.LONG(), ListStateDescriptor("x", Types.STRING()), "kind value but was asked for as list"),
        (None, ValueStateDescriptor("x", Types.STRING()), "keys are LONG but was asked for as PICKLED"),
    ],
)
def test_other_types_than_the_jobs_are_refused_with_both_in_the_text(client, key_type, descriptor, text):
    key = "1" if key_type == Types.STRING() else 1
    with pytest.raises(QueryError, match=text):
        client.get_kv_state(JOB, "value", key, key_type, descriptor).get(60)


def test_a_map_with_other_key_types_is_refused(client):
    with pytest.raises(QueryError, match="map keys are STRING but was asked for as LONG"):
        client.get_kv_state(
            JOB, "map", 1, Types.LONG(), MapStateDescriptor("x", Types.LONG(), Types.STRING())
        ).get(60)


def test_a_key_that_does_not_fit_its_type_fails_on_the_client(client):
    with pytest.raises(SerializationError):
        read(client, "value", "not a number")


def test_many_keys_are_read_in_one_message_in_the_order_asked_for(cluster, client):
    for key in range(100, 700):
        cluster.change(key, "reducing", lambda s, key=key: s.add(key))
    keys = [*range(100, 700), 5_000, *range(100, 110)]
    descriptor = ReducingStateDescriptor("reducing", max, Types.LONG())
    states = client.get_kv_states(JOB, "reducing", keys, Types.LONG(), descriptor).get(60)
    assert [None if s is None else s.get() for s in states] == [
        *range(100, 700),
        None,
        *range(100, 110),
    ]
    assert client.get_kv_states(JOB, "reducing", [], Types.LONG(), descriptor).get(60) == []


def test_more_keys_than_a_slot_reads_at_once_are_read_whole(cluster, client):
    for key in range(3000):
        cluster.change(key, "folding", lambda s, key=key: s.add(key))
    descriptor = descriptors()[5]
    states = client.get_kv_states(JOB, "folding", range(2, 3000), Types.LONG(), descriptor).get(60)
    assert [s.get() for s in states] == [str(key) for key in range(2, 3000)]


def test_a_large_value_is_read(cluster, client):
    cluster.change(9, "value", lambda s: s.update("x" * 200_000))
    assert len(read(client, "value", 9).value()) == 200_000


def test_keys_of_ranges_of_key_groups_are_all_keys_each_once(cluster, client):
    for key in range(200, 260):
        cluster.change(key, "reducing", lambda s: s.add(1))
    descriptor = descriptors()[3]
    (description,) = [each for each in client.list_states(JOB).get(60) if each.name == "reducing"]
    last = description.max_parallelism - 1

    def keys(*groups):
        return client.keys(JOB, "reducing", Types.LONG(), descriptor, groups).get(60)

    whole, halves = keys(0, last), [*keys(0, last // 2), *keys(last // 2 + 1, last)]
    assert sorted(whole) == sorted(halves)
    assert len(whole) == len(set(whole))
    assert set(range(200, 260)) < set(whole)
    assert keys(last + 1, last + 9) == keys(5, 4) == []
    with pytest.raises(QueryError, match="keys are LONG"):
        client.keys(JOB, "reducing", Types.STRING(), descriptor, (0, last)).get(60)


def test_a_scan_reads_up_to_its_limit(cluster, client):
    for key in range(20):
        cluster.change(key, "list", lambda s, key=key: s.update([key]))
    descriptor = ListStateDescriptor("list", Types.LONG())
    everything = client.scan(JOB, "list", Types.LONG(), descriptor, limit=1000).get(60)
    assert {key: state.get() for key, state in everything} == {key: [key] for key in range(20)}
    assert len(client.scan(JOB, "list", Types.LONG(), descriptor, limit=3).get(60)) == 3
    assert client.scan(JOB, "list", Types.LONG(), descriptor, limit=0).get(60) == []
    cluster.change(1, "list", lambda s: s.update([3, 1, 2]))


def test_published_states_are_described_well_enough_to_read_them(client):
    states = {state.name: state for state in client.list_states(JOB).get(60)}
    assert sorted(states) == ["aggregating", "cart", "folding", "list", "map", "reducing", "value"]
    assert states["map"].map_key_type == "STRING"
    assert states["value"].operator_uid == "operator"

    def content(name):
        state = states[name]
        found = client.get_kv_state(JOB, name, 1, state.key_serializer(), state.descriptor()).get(60)
        return dict(found.items()) if name == "map" else found.get()

    assert content("value") == "one"
    assert content("aggregating") == (6, 2)
    assert content("map") == {"a": "x", "b": None}
    assert content("list") == [3, 1, 2]
    assert content("reducing") == 6
    assert content("folding").endswith("1")
    assert content("cart") == Cart(2, "me")


def test_reading_changes_nothing(cluster, client):
    before = [slot.backend.num_entries() for slot in cluster.slots]
    for key in (1, 123_456):
        client.get_kv_states(JOB, "map", [key], Types.LONG(), descriptors()[2]).get(60)
    assert [slot.backend.num_entries() for slot in cluster.slots] == before


def test_keys_without_a_declared_type_are_found_with_the_clients_type_and_values_are_never_unpickled_unasked():
    states = [queryable(ValueStateDescriptor("v", Types.PICKLED_BYTE_ARRAY()))]
    with (
        Cluster(states, Types.PICKLED_BYTE_ARRAY()) as cluster,
        QueryableStateClient("localhost", cluster.proxy.port, token=TOKEN) as client,
    ):
        cluster.change(("a", 1), "v", lambda s: s.update((1, "x")))
        key_type = Types.TUPLE([Types.STRING(), Types.LONG()])
        descriptor = ValueStateDescriptor("v", Types.TUPLE([Types.LONG(), Types.STRING()]))
        with pytest.raises(QueryError, match=r"values are PICKLED.* Types\.PICKLED_BYTE_ARRAY\(\)"):
            client.get_kv_state(JOB, "v", ("a", 1), key_type, descriptor).get(60)
        untyped = ValueStateDescriptor("v", Types.PICKLED_BYTE_ARRAY())
        for type_of_keys in (key_type, None, key_type):
            found = client.get_kv_state(JOB, "v", ("a", 1), type_of_keys, untyped).get(60)
            assert found.value() == (1, "x")
        with pytest.raises(QueryError, match="keys are PICKLED"):
            client.scan(JOB, "v", key_type, untyped).get(60)
        assert client.scan(JOB, "v", None, untyped).get(60)[0][0] == ("a", 1)
        with pytest.raises(QueryError, match="kind value"):
            client.get_kv_state(JOB, "v", ("a", 1), key_type, ListStateDescriptor("v", Types.LONG())).get(60)


def test_composite_keys_find_their_slot():
    key_type = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.LONG()])
    from tidemark.types.row import Row

    with (
        Cluster([queryable(ValueStateDescriptor("v", Types.LONG()))], key_type, 3) as cluster,
        QueryableStateClient("localhost", cluster.proxy.port, token=TOKEN) as client,
    ):
        keys = [Row(a=str(n), b=n) for n in range(30)]
        for n, key in enumerate(keys):
            cluster.change(key, "v", lambda s, n=n: s.update(n))
        descriptor = ValueStateDescriptor("v", Types.LONG())
        found = client.get_kv_states(JOB, "v", keys, key_type, descriptor).get(60)
        assert [state.value() for state in found] == list(range(30))
        scanned = client.scan(JOB, "v", key_type, descriptor).get(60)
        assert {key["b"]: state.value() for key, state in scanned} == {n: n for n in range(30)}


def test_a_state_that_a_slot_has_not_registered_yet_holds_nothing_there():
    descriptor = queryable(ValueStateDescriptor("v", Types.LONG()))
    with (
        Cluster([descriptor]) as cluster,
        QueryableStateClient("localhost", cluster.proxy.port, token=TOKEN) as client,
    ):
        for key in range(50):
            cluster.change(key, "v", lambda s, key=key: s.update(key))
        held = cluster.slots[1].queryable
        cluster.slots[1].queryable = {}
        few = client.get_kv_states(JOB, "v", range(50), Types.LONG(), descriptor).get(60)
        assert 0 < sum(state is None for state in few) < 50
        cluster.slots[1].queryable = held
        everything = client.get_kv_states(JOB, "v", range(50), Types.LONG(), descriptor).get(60)
        assert [state.value() for state in everything] == list(range(50))


def test_a_client_that_was_shut_down_answers_with_an_error(cluster):
    client = QueryableStateClient("127.0.0.1", cluster.proxy.port, token=TOKEN)
    assert read(client, "value").value() == "one"
    client.shutdown()
    client.shutdown_and_wait()
    with pytest.raises(IllegalStateError, match="shut down"):
        read(client, "value")
