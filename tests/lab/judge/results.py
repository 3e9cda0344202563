"""Results made up for tests: real summaries of drawn latencies, everything else plain."""

import msgspec
import numpy as np

from steelyard.lab.audit import Audit
from steelyard.lab.load import Fixed, OpenLoop, Synthetic, Workload, steady
from steelyard.lab.result import (
    ClientFacts,
    Counts,
    HardwareFacts,
    RunResult,
    TargetFacts,
    Throughput,
    TokenFacts,
    WindowFacts,
)
from steelyard.lab.stats import Estimate, Goodput, Slo, Summary, Timeline, summarise


def made_up_run(
    run_id: str = "r1",
    *,
    factor: float = 1.0,
    noise: float = 0.0,
    requests: int = 400,
    seed: int = 0,
    rate: float = 10.0,
    reasons: tuple[str, ...] = (),
    started_unix_s: float = 1_764_547_200.0,
    **more: object,
) -> RunResult:
    """`factor` on all latencies; `noise`: spread of a factor that the whole run shares."""
    random = np.random.default_rng([seed, 7])
    shared = factor * float(np.exp(noise * random.standard_normal()))
    drawn = {
        "ttft_ms": shared * random.gamma(50, 200 / 50, requests),
        "itl_ms": shared * random.gamma(25, 20 / 25, requests * 15),
        "e2e_ms": shared * random.gamma(80, 500 / 80, requests),
    }
    run = run_of({name: _summary(values) for name, values in drawn.items()})
    return msgspec.structs.replace(
        run,
        run_id=run_id,
        started_unix_s=started_unix_s,
        workload=_workload(rate, seed),
        audit=Audit(is_valid=not reasons, reasons=list(reasons), labels=[], checks=[]),
        **more,
    )


def run_of(latencies: dict[str, Summary]) -> RunResult:
    share = Estimate(1.0, 0.99, 1.0)
    bins: list[int] = []
    return RunResult(
        run_id="r1",
        started_unix_s=1_764_547_200.0,
        target=TargetFacts(
            url="http://127.0.0.1:1", model="m", api="chat", server="mock", version="1"
        ),
        client=ClientFacts(
            workers=1,
            cpu_share=0.1,
            cpu_us_per_event=40,
            loop_lag_p50_ms=0.1,
            loop_lag_p99_ms=0.5,
            dispatch_lag_p50_ms=0.1,
            dispatch_lag_p99_ms=0.5,
            connections_opened=10,
            steelyard="0",
            python="3",
            machine="x86_64, 2 processors",
        ),
        workload=_workload(10.0, 0),
        slo=Slo(),
        window=WindowFacts(begin_s=0, end_s=40, is_settled=True, warm_up="MSER-5"),
        counts=Counts(
            requests=400,
            complete=400,
            shed=0,
            failed=0,
            abandoned=0,
            measured=400,
            by_outcome={"complete": 400},
            cut_to_context=0,
        ),
        throughput=Throughput(
            offered_per_s=10,
            sent_per_s=10,
            complete_per_s=10,
            output_tokens_per_s=160,
            prompt_tokens_per_s=400,
            output_tokens_per_s_per_user=50,
        ),
        concurrency_mean=5,
        concurrency_peak=9,
        latencies=latencies,
        goodput=Goodput(asked=400, good=400, share=share, per_s=share),
        tokens=TokenFacts(
            output=6400,
            by_usage=6400,
            by_ids=None,
            by_chunks=6400,
            retokenised=None,
            retokenised_of=None,
            reasoning=None,
            prompt_asked=16000,
            prompt=16000,
            cached=0,
            output_asked=6400,
            bundled_requests=0,
            estimated_requests=0,
        ),
        arrivals=None,
        audit=Audit(is_valid=True, reasons=[], labels=[], checks=[]),
        hardware=HardwareFacts(),
        timeline=Timeline(
            bin_s=1,
            scheduled=bins,
            sent=bins,
            complete=bins,
            shed=bins,
            failed=bins,
            output_tokens=bins,
            in_flight=[],
            in_system=[],
            ttft_p50_s=[],
            ttft_max_s=[],
        ),
    )


def _workload(rate: float, seed: int) -> Workload:
    return Workload(
        arrivals=OpenLoop(steady(rate, 40)),
        content=Synthetic(input=Fixed(40), output=Fixed(16)),
        seed=seed,
    )


def _summary(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Summary:
    summary = summarise(values)
    assert summary is not None
    return summary
