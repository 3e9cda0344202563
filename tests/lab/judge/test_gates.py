"""Stored results are compared and gated: what is certain fails, what is not says so."""

from xml.etree import ElementTree

import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.judge import StoredSide, Verdict, compare_stored, fingerprint_of
from steelyard.lab.judge.gate import GateStatus, junit_xml, parse_tolerances, pass_gate
from steelyard.lab.judge.tables import comparison_report, gate_report
from steelyard.lab.result import RunResult

from .results import made_up_run


def side(label: str, *runs: RunResult, **facts: str) -> StoredSide:
    return StoredSide(label, runs, fingerprint_of(runs, facts))


BASELINE = [made_up_run(f"b{n}", noise=0.01, seed=n) for n in range(8)]


def test_a_slowdown_of_a_tenth_is_found_between_single_runs() -> None:
    slow = made_up_run("s", factor=1.1, seed=50)
    comparison = compare_stored(side("a", BASELINE[0]), side("b", slow))
    assert comparison.verdict is Verdict.WORSE
    assert "itl_ms p50 +1" in comparison.words
    assert any("run to run" in caveat for caveat in comparison.caveats)


def test_equal_runs_are_not_worse() -> None:
    comparison = compare_stored(side("a", *BASELINE[:4]), side("b", *BASELINE[4:]))
    assert comparison.verdict in (Verdict.ALIKE, Verdict.UNDECIDED)
    assert not comparison.caveats


def test_unlike_results_are_refused_unless_told() -> None:
    left = side("a", BASELINE[0], engine_version="1", driver="1")
    right = side("b", BASELINE[1], engine_version="2", driver="1")
    with pytest.raises(InvalidRequest, match="engine_version: 1 against 2") as refused:
        compare_stored(left, right)
    assert refused.value.fix is not None
    assert "--unlike engine_version" in refused.value.fix
    for allowed in ("engine_version", "all"):
        comparison = compare_stored(left, right, allowed=frozenset({allowed}))
        assert comparison.unlike == ["engine_version: 1 against 2"]
    with pytest.raises(InvalidRequest, match="no part"):
        compare_stored(left, right, allowed=frozenset({"engin"}))


def test_other_loads_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="workload"):
        compare_stored(side("a", BASELINE[0]), side("b", made_up_run("x", rate=20)))


def test_a_run_that_failed_its_audit_makes_the_comparison_invalid() -> None:
    comparison = compare_stored(
        side("a", BASELINE[0]), side("b", made_up_run("x", reasons=("the clock jumped",)))
    )
    assert not comparison.is_valid
    assert comparison.reasons == ["b: the clock jumped"]
    assert comparison_report(comparison).verdict.startswith("INVALID")


def gate_of(factor: float, *, tolerance: float = 0.05, is_strict: bool = False):
    candidate = made_up_run("c", factor=factor, seed=77)
    comparison = compare_stored(side("baseline", *BASELINE), side("candidate", candidate))
    return pass_gate(comparison, {}, tolerance=tolerance, is_strict=is_strict)


def test_a_gate_lets_an_equal_result_pass() -> None:
    gate = gate_of(1.0)
    assert gate.is_passed
    assert not gate.named(GateStatus.REGRESSED)
    assert gate_report(gate).is_valid


def test_a_gate_stops_a_regression_and_says_which() -> None:
    gate = gate_of(1.2)
    assert not gate.is_passed
    assert "itl_ms p50" in [check.name for check in gate.named(GateStatus.REGRESSED)]
    assert gate_report(gate).verdict.startswith("regressed")


def test_a_certain_loss_within_the_tolerance_passes() -> None:
    gate = gate_of(1.2, tolerance=0.4)
    assert gate.is_passed
    assert len(gate.named(GateStatus.KEPT)) >= 4


def test_a_strict_gate_stops_what_nobody_can_say() -> None:
    lenient, strict = gate_of(1.0, tolerance=0.001), gate_of(1.0, tolerance=0.001, is_strict=True)
    assert lenient.named(GateStatus.UNCERTAIN)
    assert lenient.is_passed
    assert not strict.is_passed


def test_junit_counts_what_it_lists() -> None:
    for is_strict in (False, True):
        gate = gate_of(1.06, is_strict=is_strict)
        (suite,) = ElementTree.fromstring(junit_xml(gate))
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases) == len(gate.checks) + 1
        for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
            assert int(suite.get(attribute, "")) == len(suite.findall(f"testcase/{tag}"))
        assert (not suite.findall("testcase/failure")) == gate.is_passed


def test_tolerances_are_for_all_or_for_one() -> None:
    every, named = parse_tolerances(["10", "ttft_ms.p99=15%", "itl_ms=2"])
    assert every == pytest.approx(0.1)
    assert named == pytest.approx({"ttft_ms.p99": 0.15, "itl_ms": 0.02})
    for wrong in ("fast", "ttft=5", "ttft_ms.p98=5", "-1"):
        with pytest.raises(InvalidRequest):
            parse_tolerances([wrong])


def test_a_result_is_not_held_against_itself() -> None:
    own = side("c", BASELINE[0])
    assert len(side("set", *BASELINE).without(own).runs) == len(BASELINE) - 1
    with pytest.raises(InvalidRequest, match="alone"):
        own.without(own)
