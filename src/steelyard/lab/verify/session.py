"""A verification from start to end: find out what each server offers, check it, compare two.

Knows the order of things; what is checked stands in `checks` and `compare`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from steelyard import __version__
from steelyard.contract.errors import InvalidRequest
from steelyard.lab.verify.check import Check, Claim, select
from steelyard.lab.verify.checks import CHECKS
from steelyard.lab.verify.compare import COMPARE_CHECKS, Comparison
from steelyard.lab.verify.exchange import visible
from steelyard.lab.verify.findings import Finding
from steelyard.lab.verify.offer import Offer, discover
from steelyard.lab.verify.report import ComparisonReport, Report, TargetReport
from steelyard.lab.verify.runner import run_checks
from steelyard.lab.verify.target import Target, VerifyConfig

__all__ = ["Watcher", "all_claims", "verify"]


@dataclass(frozen=True, slots=True)
class Watcher:
    """Told how far the verification is. The default looks away."""

    on_start: Callable[[str, int], None] = lambda what, checks: None
    """A target's URL, or what is compared, and how many checks are coming."""
    on_finding: Callable[[Finding], None] = lambda finding: None


def all_claims() -> tuple[Claim, ...]:
    """Everything that can be checked; what `compare` names needs two servers."""
    return (*CHECKS, *COMPARE_CHECKS)


async def verify(
    targets: Sequence[Target], config: VerifyConfig, watcher: Watcher | None = None
) -> Report:
    """Verify one server, or two and compare them. Takes as long as the servers do.

    Raises what `offer.discover` raises, and `InvalidRequest` for patterns that name no check.
    """
    if not 1 <= len(targets) <= 2:
        raise InvalidRequest("one server can be verified, or two compared", param="URL")
    watcher = watcher or Watcher()
    chosen = {check.name for check in select(all_claims(), config.only, config.skip)}
    offers = [await discover(target) for target in targets]
    started = datetime.now(UTC).isoformat(timespec="seconds")
    own = [check for check in CHECKS if check.name in chosen]
    reports = [
        await _check_target(target, offer, own, config, watcher)
        for target, offer in zip(targets, offers, strict=True)
    ]
    comparison = None
    if len(targets) == 2:
        comparison = await _compare(targets, offers, chosen, config, watcher)
    return Report(
        version=__version__,
        started=started,
        tie_nats=config.tie_nats,
        targets=tuple(reports),
        comparison=comparison,
    )


async def _check_target(
    target: Target, offer: Offer, checks: Sequence[Check], config: VerifyConfig, watcher: Watcher
) -> TargetReport:
    started_s = time.monotonic()
    watcher.on_start(target.url, len(checks))
    findings = await run_checks(checks, target, offer, config, watcher.on_finding)
    return TargetReport(
        url=target.url,
        server=visible(offer.server),
        model=visible(offer.model),
        models=tuple(map(visible, offer.models)),
        context_tokens=offer.context_tokens,
        paths=tuple(sorted(offer.paths)),
        unchecked_paths=offer.unchecked_paths,
        findings=findings,
        elapsed_s=round(time.monotonic() - started_s, 3),
    )


async def _compare(
    targets: Sequence[Target],
    offers: Sequence[Offer],
    chosen: set[str],
    config: VerifyConfig,
    watcher: Watcher,
) -> ComparisonReport:
    started_s = time.monotonic()
    found = Comparison([])
    checks = [
        check.bind(targets[1], offers[1], config, found)
        for check in COMPARE_CHECKS
        if check.name in chosen
    ]
    watcher.on_start(" against ".join(target.url for target in targets), len(checks))
    findings = await run_checks(checks, targets[0], offers[0], config, watcher.on_finding)
    return ComparisonReport(
        findings=findings,
        prompts=tuple(found.prompts),
        elapsed_s=round(time.monotonic() - started_s, 3),
    )
