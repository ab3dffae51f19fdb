"""One situation at a time: which host, which is refused, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from locality.history import StateOnDisk
from locality.hosts import HostInfo
from locality.judging import Judgement, best, explain
from locality.question import PlacementQuestion, Sibling, Verdict
from locality.rules import RULES, Filter, closed_by
from standby.shared.model import Held, TaskId

TASK = TaskId("job", "main", 0)
OTHER = TaskId("job", "main", 1)

#: Two cells, each over two racks, with two zones across them.
H1 = HostInfo("h1", 1, "/r1", {"zone": "a"})
H2 = HostInfo("h2", 1, "/r2", {"zone": "b"})
H3 = HostInfo("h3", 2, "/r1", {"zone": "a"})
H4 = HostInfo("h4", 2, "/r2", {"zone": "b"})
HOSTS = (H1, H2, H3, H4)


def judge(question: PlacementQuestion, hosts: tuple[HostInfo, ...] = HOSTS) -> tuple[Verdict, ...]:
    return Judgement(question, hosts).verdicts()


def judge_one(question: PlacementQuestion, host: HostInfo, hosts: tuple[HostInfo, ...] = HOSTS) -> Verdict:
    others = tuple(each for each in hosts if (each.name, each.cell) != (host.name, host.cell))
    return Judgement(question, (*others, host)).verdict(host)


def names(question: PlacementQuestion, hosts: tuple[HostInfo, ...] = HOSTS) -> list[str]:
    return [each.host for each in judge(question, hosts) if each.is_allowed]


def near(host: HostInfo, copy: int = 0) -> Sibling:
    return Sibling(f"copy {copy}", host)


def test_a_first_deployment_goes_by_load_and_name() -> None:
    question = PlacementQuestion(loads={"h1": (2, 0), "h2": (1, 1), "h3": (1, 0)})
    assert names(question) == ["h4", "h3", "h2", "h1"]
    assert judge(question, HOSTS)[0].reasons == ("carries no copies",)
    assert judge(question, HOSTS)[2].reasons == ("carries 1 copy, 1 of the same role",)
    numbered = (HostInfo("h10"), HostInfo("h9"), HostInfo("h9", 2))
    assert names(PlacementQuestion(), numbered) == ["h9", "h9", "h10"], "as people sort them"


def test_every_reason_to_refuse_is_reported_in_the_order_of_the_rules() -> None:
    question = PlacementQuestion(
        siblings=(near(H1), near(H4, 1)),
        avoided={"h1": "is down", "h3": "is down"},
        drained={"h1": "is being drained", "h2": "is being drained"},
    )
    assert [(each.host, each.reasons) for each in judge(question, HOSTS)] == [
        (
            "h1",
            (
                "holds copy 0, a copy of the same tasks",
                "is being drained",
                "is down",
            ),
        ),
        ("h4", ("holds copy 1, a copy of the same tasks",)),
        ("h2", ("is being drained",)),
        ("h3", ("is down",)),
    ]
    assert best(question, HOSTS) is None


def test_another_cell_comes_before_another_rack() -> None:
    question = PlacementQuestion(siblings=(near(H1),))
    assert names(question) == ["h4", "h3", "h2"]
    assert judge(question, HOSTS)[0].reasons == ("carries no copies",)


def test_the_order_of_the_spread_is_the_jobs() -> None:
    assert names(PlacementQuestion(siblings=(near(H1),), spread=("rack", "cell"))) == ["h4", "h2", "h3"]
    assert names(PlacementQuestion(siblings=(near(H1),), spread=())) == ["h2", "h3", "h4"]
    there = replace(H2, attributes={"zone": "a"})
    assert names(PlacementQuestion(siblings=(near(H1),), spread=("zone",)), (H1, there, H4)) == ["h4", "h2"]


def test_spread_comes_before_state_and_state_before_load() -> None:
    question = PlacementQuestion(
        siblings=(near(H1),),
        histories={TASK: (Held("h2", 9, 50), Held("h3", 8, 40))},
        loads={"h3": (7, 7)},
        spread=("cell",),
    )
    assert names(question) == ["h3", "h4", "h2"]


def test_giving_up_a_rack_is_said_with_the_reason() -> None:
    near_h1 = PlacementQuestion(siblings=(near(H1),))
    down = replace(near_h1, avoided={"h2": "is down", "h4": "is down"})
    for question, hosts, why in (
        (down, HOSTS, "no host in another rack is allowed"),
        (near_h1, (H1, H2, H3), "hosts in another rack share more by cell"),
    ):
        found = best(question, hosts)
        assert found is not None
        assert (found.host, found.reasons[0]) == ("h3", f"shares its rack with copy 0: {why}")
    # In a cluster of one cell sharing it is not worth a word.
    assert judge(near_h1, (H1, H2))[0].reasons == ("carries no copies",)


def test_giving_up_cell_and_rack_is_said_of_both() -> None:
    question = PlacementQuestion(siblings=(near(H1),), spread=("cell", "rack"))
    fifth = HostInfo("h5", 1, "/r1")
    found = judge_one(question, fifth, (H1, fifth, H4))
    assert found.reasons[:2] == ("shares its cell with copy 0", "shares its rack with copy 0")
    question = replace(question, avoided={"h4": "is down"})
    found = judge_one(question, fifth, (H1, fifth, H4))
    assert found.reasons[:2] == (
        "shares its cell with copy 0: no host in another cell is allowed",
        "shares its rack with copy 0: no host in another rack is allowed",
    )


def test_the_fewest_copies_share_a_cell_and_many_are_counted_not_listed() -> None:
    question = PlacementQuestion(siblings=(near(H1), near(H2, 1), near(H4, 2)), spread=("cell",))
    assert names(question, (*HOSTS, HostInfo("h5", 1), HostInfo("h6", 2))) == ["h3", "h6", "h5"]
    told = judge_one(question, HostInfo("h5", 1), HOSTS).reasons[0]
    assert told == "shares its cell with copy 0 and copy 1"
    question = PlacementQuestion(siblings=tuple(near(H1, copy) for copy in range(4)), spread=("rack",))
    told = judge_one(question, H3, HOSTS).reasons[0]
    assert told == "shares its rack with copy 0 and copy 1 and 2 more"


def test_a_rack_that_is_not_known_is_shared_with_no_host() -> None:
    unknown = HostInfo("h5", 1, "")
    assert names(PlacementQuestion(siblings=(near(HostInfo("h6")),), spread=("rack",)), (unknown, H1)) == [
        "h1",
        "h5",
    ]
    assert names(PlacementQuestion(siblings=(near(H1),), spread=("rack",)), (unknown, H3)) == ["h5", "h3"]


def test_the_freshest_state_comes_first_then_the_last_host() -> None:
    question = PlacementQuestion(
        histories={TASK: (Held("h1", 9, 10), Held("h2", 5, 30), Held("h3", 8, None))}, preferred="h4"
    )
    assert names(question) == ["h2", "h1", "h3", "h4"]
    assert [each.reasons[0] for each in judge(question, HOSTS)] == [
        "holds its state",
        "holds its state, 20 records behind the freshest",
        "holds its state, 30 records behind the freshest",
        "is its last host",
    ]


def test_between_equal_states_the_latest_wins_and_between_equal_times_the_last_host() -> None:
    histories = {TASK: (Held("h1", 5, 10), Held("h2", 7, 10), Held("h3", 7, 10))}
    assert names(PlacementQuestion(histories=histories, preferred="h3")) == ["h3", "h2", "h1", "h4"]


def test_the_state_of_several_tasks_is_added_up() -> None:
    histories = {
        TASK: (Held("h1", 5, 100), Held("h2", 5, 90)),
        OTHER: (Held("h2", 5, 40), Held("h3", 5, 50)),
    }
    # h1 lacks 50 records, h2 lacks 10 + 10, h3 lacks 100.
    assert names(PlacementQuestion(histories=histories)) == ["h2", "h1", "h3", "h4"]
    assert judge(PlacementQuestion(histories=histories), HOSTS)[1].reasons[0] == (
        "holds the state of 1 of its tasks, 50 records behind the freshest"
    )


def test_what_was_seen_on_a_disk_after_the_copy_left_counts_more_than_what_is_remembered() -> None:
    question = PlacementQuestion(
        histories={TASK: (Held("h1", 9, 100), Held("h2", 9, 50))},
        leftovers={
            TASK: (StateOnDisk("h2", 120, 10), StateOnDisk("h3", 110, 1)),
            OTHER: (StateOnDisk("h4", 500, 1),),
        },
    )
    assert names(question) == ["h2", "h3", "h1", "h4"]
    assert [each.reasons[0] for each in judge(question)[:3]] == [
        "holds its state (seen on its disk)",
        "holds its state (seen on its disk), 10 records behind the freshest",
        "holds its state, 20 records behind the freshest",
    ]


def test_a_container_from_an_unknown_host_is_judged_like_any() -> None:
    stranger = HostInfo("h9", 2, "/r9")
    question = PlacementQuestion(siblings=(near(H1),), loads={"h9": (1, 0)})
    h3, h4 = (judge_one(question, each, HOSTS) for each in (H3, H4))
    verdict = judge_one(question, stranger, HOSTS)
    assert verdict.is_allowed
    assert h4.rank < verdict.rank < h3.rank
    assert verdict.reasons == ("carries 1 copy, 0 of the same role",)
    assert not judge_one(question, replace(stranger, name="h1"), HOSTS).is_allowed


def test_explaining_a_placed_copy() -> None:
    question = PlacementQuestion(
        siblings=(near(H1),),
        histories={TASK: (Held("h3", 9, 100),)},
        avoided={"h5": "is down"},
        loads={"h2": (3, 1)},
    )
    hosts = (*HOSTS, HostInfo("h5", 2, "/r2"))
    assert explain(question, hosts, H3) == (
        "h3: it is here: shares its rack with copy 0; holds its state; carries no copies",
        "h4: better now (spread): shares nothing with another copy",
        "h2: less good (spread): shares its cell with copy 0",
        "h1: refused: holds copy 0, a copy of the same tasks",
        "h5: refused: is down",
    )


def test_explaining_goes_by_the_first_rule_that_decides() -> None:
    question = PlacementQuestion(
        histories={TASK: (Held("h1", 9, 100), Held("h2", 9, 100))}, preferred="h2", loads={"h4": (1, 0)}
    )
    assert explain(question, HOSTS, H2) == (
        "h2: it is here: holds its state; is its last host; carries no copies",
        "h1: less good (preferred): is not its last host",
        "h3: less good (state): holds none of its state",
        "h4: less good (state): holds none of its state",
    )
    assert explain(PlacementQuestion(), (H1, H2), H1)[1] == "h2: less good (name): comes later by name"
    assert explain(PlacementQuestion(), (H1,), HostInfo("h9"))[0] == "h9: it is here: carries no copies", (
        "unknown"
    )


def test_explaining_a_copy_that_would_not_be_placed_there_now() -> None:
    """The refusal of a host that is in two cells is said once."""
    question = PlacementQuestion(drained={"h1": "is being drained"})
    again = replace(H1, cell=2)
    for hosts, here in (((H1, H2), H1), ((H1, again, H2), again)):
        assert explain(question, hosts, here) == (
            "h1: it is here, but would not be placed here now: is being drained",
            "h2: allowed: carries no copies",
        )


def test_explaining_names_the_cells_of_a_host_where_they_differ() -> None:
    both = tuple(replace(each, cell=cell) for each in (H1, H2, H3) for cell in (1, 2))
    question = PlacementQuestion(
        siblings=(near(H1),), drained={"h2": "is being drained"}, loads={"h3": (1, 0)}
    )
    assert explain(question, both, replace(H3, cell=1)) == (
        (
            "h3 in cell 1: it is here: shares its cell with copy 0; shares its rack with copy 0: no host in "
            "another rack is allowed; carries 1 copy, 0 of the same role"
        ),
        "h3 in cell 2: better now (spread): shares its rack with copy 0: no host in another rack is allowed",
        "h1: refused: holds copy 0, a copy of the same tasks",
        "h2: refused: is being drained",
    )


def test_explaining_says_the_same_of_two_cells_once() -> None:
    h1, h2 = (tuple(replace(each, cell=cell) for cell in (1, 2, 3)) for each in (H1, H2))
    assert explain(PlacementQuestion(loads={"h2": (1, 0)}), (*h1, *h2), h1[1]) == (
        "h1 in cell 2: it is here: carries no copies",
        "h1 in cell 1: better now (name): comes earlier by name",
        "h1 in cell 3: less good (name): comes later by name",
        "h2: less good (load): carries 1 copy, 0 of the same role",
    )


def test_explaining_a_copy_that_has_no_place() -> None:
    assert explain(PlacementQuestion(loads={"h1": (1, 0)}), (H1, H2), None) == (
        "h2: the best: carries no copies",
        "h1: less good (load): carries 1 copy, 0 of the same role",
    )
    assert explain(PlacementQuestion(siblings=(near(H1),)), (H1,), None) == (
        "h1: refused: holds copy 0, a copy of the same tasks",
    )
    assert explain(PlacementQuestion(), (), None) == ()


def test_a_host_with_another_cell_s_master_comes_after_those_without_and_after_the_spread() -> None:
    first, second = HostInfo("h1", 1, master_of=2), HostInfo("h2", 1)
    assert names(PlacementQuestion(loads={"h2": (3, 3)}), (first, second)) == ["h2", "h1"]
    assert judge_one(PlacementQuestion(), first, (first, second)).reasons[0] == "has the master of cell 2"
    sharing = PlacementQuestion(siblings=(near(HostInfo("h3", 1)),))
    assert names(sharing, (HostInfo("h4", 1), HostInfo("h5", 2, master_of=1))) == ["h5", "h4"]


def test_the_hard_rules_come_first_and_the_law_before_them_all() -> None:
    kinds = [isinstance(each, Filter) for each in RULES]
    assert kinds == sorted(kinds, reverse=True)
    assert RULES[0].name == "same-host"


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "locality.md").read_text(encoding="utf-8")
    rows = [
        f"| {number} | `{each.name}` | {'hard' if isinstance(each, Filter) else 'soft'} | {each.says} |"
        for number, each in enumerate(RULES, 1)
    ]
    assert "\n".join(rows) in page


def test_one_label_is_given_for_a_host_with_several_siblings() -> None:
    assert closed_by([near(H1, 2), near(H1, 0), near(H2, 1)]) == {
        "h1": "holds copy 0, a copy of the same tasks",
        "h2": "holds copy 1, a copy of the same tasks",
    }
