"""The audit: each check on numbers written by hand, what matches a listed anomaly, and the committed page."""

from dataclasses import replace

import pytest

from fedflat.analysis.published.numbers import papers
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError
from studies.papers import anomalies, audit_arithmetic, audit_repeats
from studies.papers.anomalies import KINDS, Anomaly, listed
from studies.papers.audit import CHECKS, DAMAGE, page
from studies.papers.printed_numbers import PrintedNumber, method_title, printed_numbers
from tests.commands import run

PRINTED = PrintedNumber(
    paper="fedtoga", table="1", method="fedsam", dataset="cifar10", model="lenet", partition="dirichlet",
    partition_param="0.6", n_clients="100", active_clients="10", rounds="800", metric="test_accuracy", value="80.00",
    std="0.20", variant="", note="",
)  # fmt: skip


def printed(**changes: str) -> PrintedNumber:
    return replace(PRINTED, **changes)


def says(findings) -> list[tuple[str, str]]:
    return [(finding.says_a, finding.says_b) for finding in findings]


@pytest.fixture(scope="module")
def generated() -> str:
    return page()


def test_the_committed_page_is_what_the_code_generates(generated):
    committed = (PAPER_TABLES / "audit.md").read_text(encoding="utf-8")
    assert committed == generated, "run: python -m studies.papers.audit"


def test_the_page_has_every_anomaly_that_is_not_damage_of_the_text(generated):
    text = generated.replace(r"\|", "|")
    for paper in papers():
        for anomaly in listed(paper):
            if anomaly.place_b != DAMAGE:
                assert f"| {anomaly.says_a} |" in text
                assert f"| {anomaly.what} |" in text
    assert all(f"## {title} (" in text for title in KINDS.values())


def test_places_are_reported_in_words():
    assert PRINTED.place == "fedtoga table 1, CIFAR-10, dirichlet 0.6, 10 of 100 clients, FedSAM"
    flat = printed(partition="lda", active_clients="", metric="lambda_max", variant="upper")
    assert flat.where == "CIFAR-10, alpha 0.6, 100 clients, lambda_max"
    assert method_title("fedlesam_d") == "FedLESAM-D"
    assert method_title("centralized+sam+swa") == "centralised+SAM+SWA"


def test_every_method_has_a_title():
    assert all(method_title(method) for method in {number.method for number in printed_numbers()})


def test_what_is_the_same_quantity():
    assert PRINTED.same_as(printed(paper="fedlesam", table="2", variant="upper"))
    assert PRINTED.same_as(printed(active_clients="")), "not stated"
    assert not PRINTED.same_as(printed(n_clients="200"))
    assert not PRINTED.same_as(printed(variant="epoch=2"))
    assert printed(method="fedgf", variant="c=0").same_as(PRINTED), "FedGF with c = 0 is FedSAM"


def test_a_number_that_is_quoted_otherwise_is_found_once():
    earlier = [printed(paper="fedlesam", table=table, value="81.00") for table in ("2", "3")]
    assert says(audit_repeats.quoted_otherwise([PRINTED, *earlier])) == [("80.00", "81.00")]
    assert says(audit_repeats.quoted_otherwise([printed(paper="fedlesam", std="0.30"), PRINTED])) == [
        ("80.00 ± 0.20", "80.00 ± 0.30")
    ]
    assert not list(audit_repeats.quoted_otherwise([PRINTED, printed(paper="fedlesam")]))
    assert not list(audit_repeats.quoted_otherwise([PRINTED, printed(paper="fedgf", value="81.00")])), (
        "fedtoga quotes others"
    )


def test_a_quantity_that_is_printed_twice():
    again = printed(table="10", variant="modules=sam", value="80.10", std="")
    [found] = audit_repeats.printed_twice([PRINTED, again])
    assert (found.says_a, found.says_b, found.what) == ("80.00", "80.10", "another number (-0.10)")
    assert not list(audit_repeats.printed_twice([PRINTED, printed(table="10", std="")]))


@pytest.mark.parametrize(
    ("value", "std", "what"),
    [
        ("81.00", "0.20", None),
        ("80.00", "0.10", "is to show the better run, and shows the worse"),
        ("80.50", "0.10", "shows neither of the two runs"),
        ("81.00", "0.10", "same value, another deviation"),
    ],
)
def test_the_better_of_two_runs(value, std, what):
    runs = [printed(table="7", variant="old", std="0.10"), printed(table="7", variant="new", value="81.00")]
    found = list(audit_repeats.better_of_two([printed(table="2", value=value, std=std), *runs]))
    assert [finding.what for finding in found] == ([] if what is None else [what])


def row(values: str, **changes: str) -> list[PrintedNumber]:
    """A row of a table over partitions."""
    return [printed(value=value, partition_param=f"{k}", std="", **changes) for k, value in enumerate(values.split())]


def test_rows_that_repeat():
    first = row("80.01 81.02 82.03 83.04")
    assert says(audit_repeats.repeated_rows([*first, *row("80.01 81.02 82.03 70.00", method="fedcm")])) == [
        ("80.01 81.02 82.03", "80.01 81.02 82.03")
    ]
    halves = [*first, *row("80.01 81.02 82.03 83.04", n_clients="200", active_clients="20")]
    assert len(list(audit_repeats.repeated_rows(halves))) == 1, "the same method with other clients"
    assert not list(audit_repeats.repeated_rows([*first, *row("80.01 81.02 70.00 71.00", method="fedcm")]))
    assert not list(audit_repeats.repeated_rows([*first, *row("80.01 81.02 82.03 83.04", table="2")])), "the same row"
    chance = row("10.00 10.00 10.00", note="chance_level")
    assert not list(audit_repeats.repeated_rows([*chance, *(replace(c, method="fedcm") for c in chance)]))


def test_deviations_that_repeat():
    first = [replace(c, std=f"0.1{k}") for k, c in enumerate(row("80.01 81.02 82.03 83.04"))]
    second = [replace(c, method="fedcm", value="70.00") for c in first]
    [found] = audit_repeats.repeated_rows([*first, *second])
    assert found.what == "4 of 4 deviations are equal, place by place"
    assert not list(audit_repeats.repeated_rows([*first[:3], *second[:3]])), "three may be chance"


def test_columns_that_repeat():
    methods = ("fedavg", "fedsam", "fedasam", "fedgf")
    first = [printed(method=name, metric="lambda_max", value=f"1{k}.5", std="") for k, name in enumerate(methods)]
    second = [replace(c, table="8", dataset="cifar100") for c in first]
    assert says(audit_repeats.repeated_columns([*first, *second])) == [("10.5 11.5 12.5 13.5", "10.5 11.5 12.5 13.5")]


def test_one_deviation_for_all_methods():
    column = [printed(method=name) for name in ("fedavg", "fedsam", "fedcm", "fedsmoo", "fedlesam", "feddyn")]
    [found] = audit_repeats.uniform_deviations([*column, printed(method="fedgamma", std="0.30")])
    assert found.what == "one deviation for 6 of 7 methods"
    assert not list(audit_repeats.uniform_deviations(column[:4]))


def test_averages():
    parts = [*row("80.00 81.00", paper="fedlesam", table="2"), *row("70.00", paper="fedlesam", dataset="cifar100")]
    average = printed(paper="fedlesam", table="4", partition="", variant="average_over_settings", value="80.50")
    assert not list(audit_arithmetic.averages([*parts, average]))
    assert says(audit_arithmetic.averages([*parts, replace(average, value="80.52")])) == [("80.52", "80.500")]


def test_gains():
    base = printed(paper="fedsam_caldarola", table="5", method="fedavg", value="50.00")
    own = replace(base, method="fedsam", value="55.00")
    gain = replace(own, metric="accuracy_gain_abs", value="5.00", variant="relative_to=fedavg")
    relative = replace(gain, metric="accuracy_gain_rel_pct", value="10.00")
    assert not list(audit_arithmetic.gains([base, own, gain, relative]))
    wrong = [replace(gain, value="2.00"), replace(relative, value="4.00")]
    assert says(audit_arithmetic.gains([base, own, *wrong])) == [
        ("2.00", "55.00 against 50.00: +5.00"),
        ("4.00", "55.00 against 50.00: +10.00"),
    ]


def test_multiples():
    base = printed(method="fedtoga", metric="rounds_to_target", value="100", std="", variant="target=0.80")
    own = replace(base, method="fedsam", value="250")
    multiple = replace(own, metric="comm_cost_x", value="2.5", variant="target=0.80;relative_to=fedtoga")
    assert not list(audit_arithmetic.multiples([base, own, multiple]))
    assert says(audit_arithmetic.multiples([base, own, replace(multiple, value="2.6")])) == [
        ("2.6", "250 / 100 = 2.50")
    ]


def test_traffic_and_time_of_fedlesams_tables():
    common = {"paper": "fedlesam", "std": "", "method": "fedlesam_d"}
    per_round = printed(**common, table="7", metric="comm_cost_x", value="2", variant="relative_to=fedavg")
    rounds, traffic, time = [], [], []
    for target, seconds in zip(("0.68", "0.70", "0.72"), ("0.90", "0.90", "0.45"), strict=True):
        target_of = {**common, "table": "5", "variant": f"target={target}"}
        rounds.append(printed(**target_of, metric="rounds_to_target_x", value="0.50"))
        traffic.append(printed(**target_of, metric="comm_cost_x", value="1.00" if target == "0.68" else "1.03"))
        time.append(printed(**target_of, metric="compute_time_x", value=seconds))
    assert [a for a, _ in says(audit_arithmetic.traffic([per_round, *rounds, *traffic]))] == ["1.03", "1.03"]
    assert says(audit_arithmetic.time_per_round([*rounds, *time])) == [
        ("0.45x, 0.90 per round", "0.90x, 1.80 per round")
    ]


@pytest.mark.parametrize(
    ("rounds", "note", "accuracy", "found"),
    [
        ("300", "", "79.90", True),
        ("300", "", "80.10", False),
        ("800", "censored", "80.10", True),
        ("800", "censored", "79.90", False),
    ],
)
def test_targets(rounds, note, accuracy, found):
    reached = printed(metric="rounds_to_target", value=rounds, note=note, std="", variant="target=0.80")
    assert bool(list(audit_arithmetic.targets([reached, printed(value=accuracy)]))) is found


FINDING = Anomaly(
    "quoted_changed", "fedtoga table 2, CIFAR-10, dirichlet 0.6, 10 of 100 clients, FedSAM", "81.46",
    "fedlesam table 2, CIFAR-10, dirichlet 0.6, 10 of 100 clients, FedSAM", "80.10", "another number (+1.36)",
)  # fmt: skip
LISTED = Anomaly(
    "quoted_changed", "fedtoga table 2, FedSAM, CIFAR-10, u 0.6, 100 clients", "81.46",
    "fedlesam table 2, FedSAM, CIFAR-10, u 0.6, 100 clients", "80.10", "a rerun",
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"says_a": "81.46 / 77.03", "says_b": "80.10 / 76.86"}, True),
        ({"place_a": LISTED.place_b, "says_a": "80.10", "place_b": LISTED.place_a, "says_b": "81.46"}, True),
        ({"says_b": "80.20"}, False),
        ({"place_a": "fedtoga table 2, FedCM, CIFAR-10, u 0.6, 100 clients"}, False),
        ({"place_a": LISTED.place_a.replace("100", "200"), "place_b": LISTED.place_b.replace("100", "200")}, False),
        ({"place_a": "fedtoga section 2"}, False),
        ({"says_a": "eight numbers", "says_b": "the same eight"}, True),
        ({"kind": "inside", "says_a": "eight numbers", "says_b": "the same eight"}, False),
    ],
)
def test_what_a_finding_is_reported_by(changes, same):
    assert FINDING.is_reported_by(replace(LISTED, **changes)) is same


def test_damaged_lists_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(anomalies, "PAPER_TABLES", tmp_path)
    (tmp_path / "some").mkdir()
    file = tmp_path / "some" / "anomalies.csv"
    for text, message in [
        ("kind,place\n", "has the columns kind, place"),
        ("kind,place_a,says_a,place_b,says_b,what\nrepaeted,a,b,c,d,e\n", "did you mean 'repeated'?"),
        ("kind,place_a,says_a,place_b,says_b,what\nrepeated,a,b,c,,e\n", "a has an empty column"),
    ]:
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=message.replace("?", r"\?")):
            listed("some")


def test_every_check_says_what_it_is_for():
    assert all(check.__doc__ for check in CHECKS)


def test_the_command_writes_the_page(generated, tmp_path):
    file = tmp_path / "some" / "audit.md"
    assert run(["python", "-m", "studies.papers.audit", "--out", str(file)]).stdout == f"{file}\n"
    assert file.read_text(encoding="utf-8") == generated
