"""Runs checks one after the other, because some of them watch what the server does meanwhile."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from steelyard.lab.verify.answers import Malformed
from steelyard.lab.verify.check import Check
from steelyard.lab.verify.exchange import Exchange, visible
from steelyard.lab.verify.findings import (
    CheckFailed,
    Finding,
    NotOffered,
    Status,
    evidence_of,
)
from steelyard.lab.verify.offer import Offer
from steelyard.lab.verify.probe import Probe
from steelyard.lab.verify.target import Target, VerifyConfig

__all__ = ["OnFinding", "run_checks"]

OnFinding: TypeAlias = Callable[[Finding], None]

_MAX_WITNESSES = 4


async def run_checks(
    checks: Sequence[Check],
    target: Target,
    offer: Offer,
    config: VerifyConfig,
    on_finding: OnFinding | None = None,
) -> tuple[Finding, ...]:
    """One finding per check, in order. Never raises for what a server does."""
    findings = []
    for check in checks:
        findings.append(await _run(check, Probe(target, offer, config)))
        if on_finding is not None:
            on_finding(findings[-1])
    return tuple(findings)


async def _run(check: Check, probe: Probe) -> Finding:
    started_s = time.monotonic()
    limit_s = probe.config.check_timeout_s
    status = Status.PASSED
    try:
        async with asyncio.timeout(limit_s):
            await check.run(probe)
    except CheckFailed as error:
        assert probe.problems, error
    except NotOffered as reason:
        status = Status.SKIPPED
        if not probe.problems:
            probe.problems.append(str(reason))
            return _finding(check, probe, status, started_s)
    except Malformed as error:
        probe.claim(False, str(error), *_last(probe))
    except TimeoutError:
        probe.claim(False, f"took longer than {limit_s:g} s", *_last(probe))
    except Exception as error:  # noqa: BLE001  # a broken check must not hide the others' findings
        probe.problems.append(f"the check broke: {type(error).__name__}: {error}")
        return _finding(check, probe, Status.BROKEN, started_s)
    if probe.problems:
        status = Status.FAILED
    return _finding(check, probe, status, started_s)


def _finding(check: Check, probe: Probe, status: Status, started_s: float) -> Finding:
    witnesses = probe.witnesses[:_MAX_WITNESSES] or _last(probe)
    return Finding(
        check=check.name,
        proves=check.proves,
        status=status,
        problems=tuple(map(visible, probe.problems)),
        notes=tuple(map(visible, probe.notes)),
        hint=check.hint if status is Status.FAILED else "",
        evidence=evidence_of(witnesses),
        elapsed_s=round(time.monotonic() - started_s, 3),
    )


def _last(probe: Probe) -> list[Exchange]:
    return [] if probe.last is None else [probe.last]
