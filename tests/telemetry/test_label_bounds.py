"""Names that clients make up cannot fill the memory of this process or of Prometheus."""

from steelyard.telemetry import Metrics
from steelyard.telemetry._instruments import MAX_LABEL_VALUES, OTHER

from .conftest import Scrape


def test_a_flood_of_names_is_counted_under_other() -> None:
    metrics = Metrics(models=["small"])
    for number in range(MAX_LABEL_VALUES + 500):
        metrics.request(f"made-up-{number}", tenant=f"tenant-{number}").cancelled("disconnect")
    scrape = Scrape(metrics)
    assert len(scrape.labels("requests_received_total", "model")) == MAX_LABEL_VALUES + 1
    assert len(scrape.labels("tenant_requests_ended_total", "tenant")) == MAX_LABEL_VALUES + 1
    assert scrape.value("requests_received_total", model=OTHER) == 501
    assert scrape.value("requests_received_total") == MAX_LABEL_VALUES + 500
    assert len(metrics._models) == MAX_LABEL_VALUES + 1


def test_a_flood_does_not_crowd_out_a_served_model() -> None:
    metrics = Metrics(models=["small"])
    for number in range(MAX_LABEL_VALUES + 500):
        metrics.request(f"made-up-{number}").cancelled("disconnect")
    metrics.request("small").cancelled("disconnect")
    assert Scrape(metrics).value("requests_received_total", model="small") == 1


def test_made_up_names_get_no_histograms() -> None:
    metrics = Metrics(models=["small"])
    metrics.request("made-up").cancelled("disconnect")
    scrape = Scrape(metrics)
    assert scrape.labels("time_to_first_token_seconds_count", "model") == {"small"}


def test_long_and_strange_names_cannot_break_the_exposition() -> None:
    metrics = Metrics()
    names = ["x" * 10_000, 'quote" newline\n backslash\\', "lone surrogate \ud800", "", "ünïcode"]
    for name in names:
        metrics.request(name).cancelled("disconnect")
    scrape = Scrape(metrics)
    models = scrape.labels("requests_received_total", "model")
    assert len(models) == len(names)
    assert max(map(len, models)) == 128
    assert names[1] in models
    assert "lone surrogate ?" in models
