"""The table of metrics follows Prometheus' conventions and is the whole truth."""

import re

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from steelyard.telemetry import CATALOGUE, Kind, Metrics
from steelyard.telemetry.catalogue import OPEN_LABELS

_OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def test_names_are_unique_ours_and_well_formed() -> None:
    names = [spec.name for spec in CATALOGUE]
    assert len(set(names)) == len(names)
    for spec in CATALOGUE:
        assert re.fullmatch(r"steelyard_[a-z][a-z0-9_]*", spec.name)
        assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER)
        assert not re.search(r"_(ms|millis|kb|mb|mib|percent|count|sum|bucket)$", spec.name)
        assert spec.help.endswith(".")


def test_only_histograms_have_buckets_and_these_rise() -> None:
    for spec in CATALOGUE:
        assert bool(spec.buckets) == (spec.kind is Kind.HISTOGRAM)
        assert list(spec.buckets) == sorted(set(spec.buckets))


def test_no_metric_multiplies_two_labels_that_others_choose() -> None:
    for spec in CATALOGUE:
        assert len(OPEN_LABELS & set(spec.labels)) <= 1
        assert "le" not in spec.labels


def test_everything_exposed_is_in_the_catalogue_and_all_of_it_is_exposed() -> None:
    text, content_type = Metrics().exposition()
    assert content_type.startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert families.keys() == {spec.name.removesuffix("_total") for spec in CATALOGUE}
    for spec in CATALOGUE:
        family = families[spec.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (spec.kind.value, spec.help)


def test_a_client_that_asks_for_open_metrics_gets_it() -> None:
    text, content_type = Metrics(models=["small"]).exposition(_OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name: family for family in open_metrics_families(text.decode())}  # type: ignore[no-untyped-call]
    assert families["steelyard_time_to_first_token_seconds"].unit == "seconds"
    assert len(families) == len(CATALOGUE)


def test_series_of_served_models_exist_before_the_first_request() -> None:
    text, _ = Metrics(models=["small"]).exposition()
    assert b'steelyard_requests_received_total{model="small"} 0.0' in text
    assert b'steelyard_time_to_first_token_seconds_count{model="small"} 0.0' in text
