"""`steelyard drill`: failures on purpose, under streams, and what these have seen.

Needs a fleet that `steelyard up` runs. The streams and the judgement are `lab.drill`; what happens
to replicas is ordered from the fleet's supervisor.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.options import Config, Sets, examples, resolve_options

if TYPE_CHECKING:  # the commands import them when they run: `--help` should not pay for them
    from steelyard.fleet.orders import Answer, Order
    from steelyard.lab.drill import DrillReport

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Let replicas fail on purpose, and see what clients notice.",
    rich_markup_mode="rich",
)

_Replica = Annotated[
    str | None,
    typer.Argument(metavar="REPLICA", help="Whose failure. Default: the first that serves."),
]
_Streams = Annotated[int, typer.Option(metavar="NUMBER", min=1, max=10_000, help="At once.")]
_Tokens = Annotated[int, typer.Option(metavar="NUMBER", min=8, max=100_000, help="Per stream.")]

Happening = Callable[["_Scene"], Awaitable[None]]
"""What is done to one replica, step by step."""

_LOOK_S = 0.05
_RETURN_LIMIT_S = 120.0
_STOPPED_S = 4.0


def _drill(*lines: str) -> Callable[[Happening], Happening]:
    """Make a command of what happens to a replica; its name and its first sentence are the
    function's, `lines` are examples."""

    def add(happen: Happening) -> Happening:
        def command(
            replica: _Replica = None,
            config: Config = None,
            sets: Sets = None,
            streams: _Streams = 12,
            tokens: _Tokens = 96,
        ) -> None:
            _run(happen, replica, config, sets, (streams, tokens))

        app.command(happen.__name__, help=happen.__doc__, epilog=examples(*lines))(command)
        return happen

    return add


@_drill("steelyard drill kill", "steelyard drill kill main/1 --streams 60")
async def kill(scene: "_Scene") -> None:
    """Kill a replica's process (SIGKILL) under streams."""
    await scene.signal("SIGKILL")
    await scene.until_ready()


@_drill("steelyard drill stall")
async def stall(scene: "_Scene") -> None:
    """Stop a replica's process (SIGSTOP) under streams, and let it go on after four seconds."""
    await scene.signal("SIGSTOP")
    await asyncio.sleep(_STOPPED_S)
    await scene.signal("SIGCONT")


@_drill("steelyard drill drain main/0")
async def drain(scene: "_Scene") -> None:
    """Drain a replica under streams, and give it requests again."""
    from steelyard.fleet.orders import Drain, Resume

    await scene.order(Drain(scene.replica), "drain")
    await scene.order(Resume(scene.replica), "resume")


@_drill("steelyard drill restart main/0")
async def restart(scene: "_Scene") -> None:
    """Restart a replica in order, under streams."""
    from steelyard.fleet.orders import Restart

    await scene.order(Restart(scene.replica), "restart")


class _Scene:
    """One replica, and the supervisor that is told what to do to it."""

    def __init__(self, path: Path, replica: str) -> None:
        self.replica = replica
        self._path = path
        self._began_s = time.monotonic()

    def tell(self, what: str) -> None:
        """A line of the timeline."""
        typer.echo(f"{time.monotonic() - self._began_s:7.2f} s  {what}")

    async def order(self, order: "Order", what: str) -> "Answer":
        """Have something done, and tell when it was."""
        from steelyard.fleet.admin_socket import give_order

        self.tell(f"{what} {self.replica}")
        answer = await give_order(self._path, order)
        self.tell(f"{what}: done")
        return answer

    async def signal(self, name: str) -> None:
        """Send the replica's process a signal."""
        from steelyard.fleet.admin_socket import give_order
        from steelyard.fleet.orders import Signal

        await give_order(self._path, Signal(self.replica, name))
        self.tell(f"{name} to {self.replica}")

    async def until_ready(self) -> None:
        """Return once the replica's process is there again."""
        from steelyard.fleet.admin_socket import give_order
        from steelyard.fleet.orders import Status

        async with asyncio.timeout(_RETURN_LIMIT_S):
            for phases in (("starting", "waiting"), ("ready",)):
                while True:
                    answer = await give_order(self._path, Status())
                    (own,) = (r for r in answer.replicas if r.name == self.replica)
                    if own.phase in phases:
                        break
                    await asyncio.sleep(_LOOK_S)
        self.tell(f"{self.replica} is ready again")


def _run(
    happen: Happening,
    replica: str | None,
    config: Path | None,
    sets: list[str] | None,
    load: tuple[int, int],
) -> None:
    from steelyard.cli.fleet_home import admin_path
    from steelyard.fleet.admin_socket import give_order
    from steelyard.fleet.orders import Status
    from steelyard.lab.drill import Drill, run_drill

    deployment = resolve_options(config, sets, []).deployment
    path = admin_path(deployment)

    async def drill() -> "DrillReport":
        answer = await give_order(path, Status())
        serving = [r.name for r in answer.replicas if r.role == "serving"]
        if answer.url is None or not serving:
            raise typer.BadParameter("the fleet does not serve yet")
        scene = _Scene(path, replica or serving[0])
        plan = Drill(answer.url, deployment.served_as, *load)
        return await run_drill(plan, lambda: happen(scene), scene.tell)

    report = asyncio.run(drill())
    _print_report(report)
    if not report.is_clean:
        raise typer.Exit(1)


def _print_report(report: "DrillReport") -> None:
    typer.echo(
        f"\n{report.streams} streams: {report.failed} failed, {report.tokens_lost} tokens lost, "
        f"{report.tokens_repeated} repeated, {report.usage_differs} with other usage"
    )
    typer.echo(
        f"longest silence of a stream: p50 {report.gap_p50_s:.2f} s, p99 {report.gap_p99_s:.2f} s, "
        f"max {report.gap_max_s:.2f} s (undisturbed: {report.usual_gap_s:.2f} s)"
    )
