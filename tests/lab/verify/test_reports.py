"""Reports hold everything, can be read by other programs, and hide what must not be shown."""

import json
from xml.etree import ElementTree

from steelyard.lab.verify import Finding, Report, Status, TargetReport, junit_xml, to_json
from steelyard.lab.verify.exchange import Exchange, HttpRequest, Piece
from steelyard.lab.verify.findings import evidence_of
from steelyard.lab.verify.http_answer import AnswerHead

NASTY = "\x1b[31mred\x00\ud800\uffff<&>"


def finding(status: Status, name: str = "area.claim") -> Finding:
    problems = () if status is Status.PASSED else ("first", "second")
    head = AnswerHead(200, True, (("content-type", "application/json"),))
    one = Exchange(
        HttpRequest("GET", "/x"),
        head,
        (Piece(NASTY.encode("utf-8", "surrogatepass"), 0.1),),
        (),
        0.1,
    )
    return Finding(
        check=name,
        proves="It works.",
        status=status,
        problems=problems,
        hint="Look there.",
        evidence=evidence_of([one]),
        elapsed_s=0.5,
    )


def report(*findings: Finding) -> Report:
    target = TargetReport(
        url="http://x",
        server="s 1",
        model="m",
        models=("m",),
        context_tokens=None,
        paths=(),
        unchecked_paths=(),
        findings=findings,
        elapsed_s=1.0,
    )
    return Report(version="1", started="now", tie_nats=0.3, targets=(target,))


def test_the_json_names_its_schema_and_holds_every_finding() -> None:
    decoded = json.loads(to_json(report(*map(finding, Status))))
    assert decoded["schema"] == "steelyard.verify/1"
    statuses = [one["status"] for one in decoded["targets"][0]["findings"]]
    assert statuses == ["passed", "failed", "skipped", "broken"]


def test_the_xml_can_be_read_whatever_the_server_said() -> None:
    root = ElementTree.fromstring(junit_xml(report(*map(finding, Status))))
    (suite,) = root
    assert suite.attrib | {"name": "", "time": ""} == {
        "name": "",
        "time": "",
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    outcomes = [[child.tag for child in case] for case in suite]
    assert outcomes == [[], ["failure"], ["skipped"], ["error"]]
    failure = suite[1][0]
    assert failure.get("message") == "first"
    assert "- second" in (failure.text or "") and "Look there." in (failure.text or "")


def test_nothing_a_server_says_can_steer_a_terminal() -> None:
    shown = finding(Status.FAILED).evidence[0].answer
    assert "\x1b" not in shown and "\x00" not in shown
    assert "\\x1b[31mred" in shown


def test_the_verdict_needs_a_proof_and_no_counterexample() -> None:
    passed, failed, skipped, broken = map(finding, Status)
    assert report(passed, skipped).is_passed
    assert not report(skipped).is_passed
    assert not report(passed, failed).is_passed
    assert not report(passed, broken).is_passed
