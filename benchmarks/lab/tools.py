"""The load generators that are compared: their command lines, and where their reports say what.

Each is asked for the same load with the settings its own manual recommends for an honest count of
tokens. What a tool does not report stays out of the table.
"""

import json
import os
import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.lab.scenarios import Scenario
from benchmarks.lab.truth_numbers import QUANTILES

from steelyard.lab.result import read_result

__all__ = ["TOOLS", "Reported", "Tool"]

_PROMPT_TOKENS = 32
_INVALID = 3
"""Exit status of a run that failed its own audit; it has a report, which says so."""


@dataclass(frozen=True)
class Reported:
    """What a tool says about its run."""

    percentiles_ms: dict[str, dict[str, float]]
    """By metric of `truth_numbers`, then by quantile."""
    rate: float
    """Requests per second."""
    output_tokens: float
    """Of all requests together."""
    notes: list[str] = field(default_factory=list)


class Tool(ABC):
    """A program that is run once per scenario."""

    name: ClassVar[str]
    package: ClassVar[str | None]
    """Requirement that pip installs into an environment of its own; None: it is ours."""

    @abstractmethod
    def command(self, scenario: Scenario, url: str, folder: Path, peers: Path) -> list[str]:
        """How it is started. `folder` is empty and receives its report."""

    @abstractmethod
    def read(self, folder: Path, stdout: str) -> Reported:
        """Its report."""

    def accepts(self, status: int) -> bool:
        """Whether the exit status means that there is a report."""
        return status == 0

    def environment(self) -> dict[str, str]:
        """Of its process."""
        return dict(os.environ)


class Steelyard(Tool):
    """Ours, as users run it; writes every kind of report."""

    name = "steelyard"
    package = None

    def command(self, scenario: Scenario, url: str, folder: Path, peers: Path) -> list[str]:
        command = [
            *(str(Path(sys.executable).parent / "steelyard"), "bench", "run", url),
            *("--rate", str(scenario.rate), "--arrivals", scenario.arrivals),
            *("--requests", str(scenario.requests), "--seed", "1", "--warm-up", "0"),
            *("--prompt-tokens", str(_PROMPT_TOKENS)),
            *("--output-tokens", str(scenario.output_tokens)),
            *("--save", str(folder)),
        ]
        if scenario.concurrency is not None:
            command += ["--max-in-flight", str(scenario.concurrency)]
        return command

    def accepts(self, status: int) -> bool:
        return status in (0, _INVALID)

    def read(self, folder: Path, stdout: str) -> Reported:
        result = read_result(folder / "result.json")
        names = {
            "ttft": "ttft_sent_ms",
            "tpot": "tpot_ms",
            "itl": "itl_ms",
            "e2e": "e2e_sent_ms",
            "e2e from schedule": "e2e_ms",
        }
        assert result.arrivals is not None, "all scenarios are open loops"
        is_valid = result.audit.is_valid
        return Reported(
            {
                metric: {q: result.latencies[ours].percentiles[q].value for q in QUANTILES}
                for metric, ours in names.items()
            },
            rate=result.arrivals.delivered_per_s,
            output_tokens=result.tokens.output,
            notes=[
                *(["INVALID"] if not is_valid else []),
                *(f"labelled {label}" for label in result.audit.labels),
                *result.audit.reasons,
            ],
        )


class Aiperf(Tool):
    """Counts with its own tokenizer unless told to believe the server."""

    name = "aiperf"
    package = "aiperf==0.13.0"
    counts_as_server: ClassVar[bool] = False

    def command(self, scenario: Scenario, url: str, folder: Path, peers: Path) -> list[str]:
        command = [
            *(str(peers / "aiperf" / "bin" / "aiperf"), "profile", "--model", "mock"),
            *("--url", url, "--endpoint-type", "chat", "--streaming"),
            *("--request-rate", str(scenario.rate), "--arrival-pattern", scenario.arrivals),
            *("--request-count", str(scenario.requests), "--random-seed", "1"),
            *("--tokenizer", str(peers / "tokenizer"), "--ui", "none"),
            *("--synthetic-input-tokens-mean", str(_PROMPT_TOKENS)),
            *("--output-tokens-mean", str(scenario.output_tokens)),
            *("--artifact-dir", str(folder)),
        ]
        if scenario.concurrency is not None:
            command += ["--concurrency", str(scenario.concurrency)]
        return command + (["--use-server-token-count"] if self.counts_as_server else [])

    def read(self, folder: Path, stdout: str) -> Reported:
        report = json.loads((folder / "profile_export_aiperf.json").read_text())
        found = {
            "ttft": report["time_to_first_token"],
            "tpot": report["inter_token_latency"],
            "e2e": report["request_latency"],
        }
        return Reported(
            {metric: {q: values[q] for q in QUANTILES} for metric, values in found.items()},
            rate=report["request_throughput"]["avg"],
            output_tokens=report["total_osl"]["avg"],
            notes=["its inter-token latency is a mean per request"],
        )


class AiperfServerCount(Aiperf):
    name = "aiperf, server's token count"
    counts_as_server = True


class Guidellm(Tool):
    """Believes the server's usage."""

    name = "guidellm"
    package = "guidellm==0.8.1"

    def command(self, scenario: Scenario, url: str, folder: Path, peers: Path) -> list[str]:
        profile = f"kind={scenario.arrivals},rate={scenario.rate:g}"
        if scenario.concurrency is not None:
            profile += f",max_concurrency={scenario.concurrency}"
        tokens = f"prompt_tokens={_PROMPT_TOKENS},output_tokens={scenario.output_tokens}"
        return [
            *(str(peers / "guidellm" / "bin" / "guidellm"), "run", "--profile", profile),
            *("--backend", f"kind=openai_http,target={url},model=mock"),
            *("--constraint", f"kind=max_requests,count={scenario.requests}"),
            *("--tokenizer", f"kind=huggingface_auto,model={peers / 'tokenizer'}"),
            *("--data", f"kind=synthetic_text,{tokens}"),
            *("--output", f"kind=json,path={folder / 'report.json'}"),
            "--disable-console-interactive",
        ]

    def read(self, folder: Path, stdout: str) -> Reported:
        (benchmark,) = json.loads((folder / "report.json").read_text())["benchmarks"]
        metrics = benchmark["metrics"]

        def of(metric: str, factor: float = 1.0) -> dict[str, float]:
            values = metrics[metric]["successful"]["percentiles"]
            return {q: factor * values[q] for q in QUANTILES}

        return Reported(
            {
                "ttft": of("time_to_first_token_ms"),
                "tpot": of("inter_token_latency_ms"),
                "e2e": of("request_latency", 1e3),
                "e2e from schedule": of("request_scheduled_latency", 1e3),
            },
            rate=metrics["requests_per_second"]["successful"]["mean"],
            output_tokens=metrics["output_token_count"]["successful"]["total_sum"],
            notes=[
                "its inter-token latency is a mean per request",
                *(re.sub(r"\s+", " ", _said(warning)) for warning in benchmark["warnings"]),
            ],
        )


def _said(warning: Any) -> str:
    return warning.get("message", "") if isinstance(warning, dict) else str(warning)


TOOLS: tuple[Tool, ...] = (Steelyard(), Guidellm(), Aiperf(), AiperfServerCount())
