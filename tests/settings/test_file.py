"""A deployment file is plain YAML of bounded size; what it cannot be is said with file and line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.settings import examine

from .conftest import Examiner, WriteFile


def test_names_that_yaml_1_1_takes_for_other_things_stay_names(examined: Examiner) -> None:
    for text in ("no", "on", "2024-01-01", "12:30", "0x10"):
        resolved = examined(f"model: {text}\n").resolved
        assert resolved is not None
        assert resolved.deployment.model == text


def test_leading_zeros_are_not_octal(examined: Examiner) -> None:
    problem = examined.problem("gateway:\n  port: 010\n")
    assert problem.path == "gateway.port"
    assert "'010'" in problem.reason


def test_an_empty_file_and_an_empty_section_change_nothing(examined: Examiner) -> None:
    for text in ("", "# nothing\n", "---\n", "gateway:\n", "gateway:\n  # port: 1\nengine: {}\n"):
        resolved = examined(text).resolved
        assert resolved is not None
        assert not resolved.sources


def test_a_byte_order_mark_is_no_problem(examined: Examiner) -> None:
    assert examined(b"\xef\xbb\xbfmodel: a\n").resolved is not None


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("model: [1\n", 2, "is not YAML"),
        ("model: a\n\tengine: {}\n", 2, "is not YAML"),
        ("- a\n- b\n", 1, "is not a list of keys with values"),
        ("just text\n", 1, "is not a list of keys with values"),
        ("a: &x {b: 1}\nengine: *x\n", 2, "alias"),
        ("a: &x [*x]\n", 1, "alias"),
        ("model: a\n---\nmodel: b\n", 2, "is not YAML"),
        (b"model: a\nserved_name: \xff\n", 2, "is not UTF-8"),
        ("[" * 20_000, 0, "nested too deeply"),
        ("model: \x00\n", 0, "characters YAML does not allow"),
        ("a: b\n" * 60_000, 0, "larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_line(
    examined: Examiner, content: str | bytes, line: int, says: str
) -> None:
    problem = examined.problem(content)
    assert says in problem.reason
    assert problem.path.endswith("deploy.yaml")
    assert problem.where == (f"{problem.path}:{line}" if line else "")


def test_a_key_set_twice_is_refused_with_both_lines(examined: Examiner) -> None:
    problem = examined.problem("gateway:\n  port: 1\n  host: localhost\n  port: 2\n")
    assert problem.path == "gateway.port"
    assert "line 2" in problem.reason
    assert problem.where.endswith("deploy.yaml:4")


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch pwned']",
        "!!python/name:os.system",
        "!custom x",
        "!!int zwei",
        "!!timestamp 2024-13-45",
    ],
)
def test_tags_never_run_or_build_anything(
    examined: Examiner, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert examined.problem(f"served_name: {tag}\n").path == "served_name"
    assert not (tmp_path / "pwned").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (problem,) = examine(file=tmp_path / "none.yaml", environ={}).problems
    assert problem.path == str(tmp_path / "none.yaml")
    assert "does not exist" in problem.reason


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (problem,) = examine(file=tmp_path, environ={}).problems
    assert "cannot be read" in problem.reason


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_no_content_raises_anything(write_file: WriteFile, content: bytes) -> None:
    examine(file=write_file(content), environ={})


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["model", "gateway", "engine", "kv_cache", "telemetry", "x"]),
        st.dictionaries(
            st.sampled_from(["port", "cors", "memory", "log", "threads", "limits"]), _ANYTHING
        )
        | _ANYTHING,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_any_tree_of_values_is_accepted_or_refused_in_words(
    write_file: WriteFile, tree: object
) -> None:
    import json

    examination = examine(file=write_file(json.dumps(tree)), environ={})
    assert (examination.resolved is None) == bool(examination.problems)
    for problem in examination.problems:
        assert problem.reason
        assert problem.fix
