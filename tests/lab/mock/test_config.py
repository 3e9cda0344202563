"""Configuration: one set of keys for file and flags, refused with their names."""

from pathlib import Path

import pytest

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock import BOTTLENECKS, MockConfig, load_config, make_config
from steelyard.lab.mock.config_file import config_keys


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "mock.yaml"
    file.write_text("bottleneck: queue\nttft_ms: gamma:70,0.2\nslots: 5\n")
    config = load_config(file, {"slots": "6"})
    assert (config.slots, str(config.ttft_ms)) == (6, "gamma:70,0.2")
    assert make_config({"bottleneck": "queue"}).slots == 4


@pytest.mark.parametrize("name", BOTTLENECKS)
def test_every_preset_is_a_valid_configuration(name: str) -> None:
    assert make_config({"bottleneck": name}).bottleneck == name


def test_every_key_is_described_with_its_default() -> None:
    keys = {key.name: key for key in config_keys()}
    assert list(keys) == list(MockConfig.__struct_fields__)
    assert all(key.description for key in keys.values())
    assert (keys["itl_ms"].default, keys["slots"].default) == ("20", "none")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"slots": 0}, "slots"),
        ({"itl_ms": "soon"}, "itl_ms"),
        ({"fault_429": 1.5}, "fault_429"),
        ({"usage": "sometimes"}, "usage"),
        ({"bottleneck": "luck"}, "bottleneck"),
        ({"port": 70_000}, "port"),
        ({"ttft": 3}, "ttft"),
        ({"fault_429": 0.6, "fault_500": 0.6}, None),
    ],
)
def test_impossible_values_are_refused_by_name(
    values: dict[str, object], named: str | None
) -> None:
    with pytest.raises(SettingsError) as refused:
        make_config(values)
    assert refused.value.param == named


def test_a_misspelt_key_gets_a_suggestion() -> None:
    with pytest.raises(SettingsError, match="ttft_ms"):
        make_config({"tfft_ms": 3})


@pytest.mark.parametrize("content", ["- a\n", "a: [", "1: 2\n", "x" * 100_000])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mock.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError) as refused:
        load_config(file, {})
    assert refused.value.param == str(file)
