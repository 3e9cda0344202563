"""`steelyard up` and what operators ask of a fleet: status, logs, drain, restart, scale and others.

The commands find the fleet by the deployment file (`state_dir`), and its supervisor through the
socket there. `serve` does the serving; `fleet` carries orders out.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.options import Config, ModelName, Sets, examples, resolve_options

if TYPE_CHECKING:  # the commands import them when they run: `--help` should not pay for them
    from steelyard.cli.reloading import Origin
    from steelyard.fleet.orders import Answer, Order
    from steelyard.settings import Resolved

__all__ = [
    "UP_EXAMPLES",
    "ask_fleet",
    "down",
    "drain",
    "logs",
    "promote",
    "restart",
    "resume",
    "scale",
    "status",
    "up",
]

UP_EXAMPLES = examples(
    "steelyard up --config deployment.yaml",
    "steelyard up smollm2-135m --set replicas=3",
    "steelyard status",
    "steelyard restart main/1",
    "steelyard down",
    more="Replicas outlive a supervisor that dies: the next `steelyard up` takes them over.",
)

_Replica = Annotated[
    str, typer.Argument(metavar="REPLICA", help="A name that `steelyard status` shows: main/0.")
]
_STOP_LIMIT_S = 60.0
_LOOK_S = 0.1


def up(
    model: ModelName = None,
    config: Config = None,
    sets: Sets = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep-replicas",
            help="When told to end, leave the replicas running for the next `steelyard up`.",
        ),
    ] = False,
) -> None:
    """Serve with replicas that outlive this process, and take orders.

    As `steelyard serve`, with groups, standbys and a state that survives restarts.
    """
    started_s = time.monotonic()
    from steelyard.cli.reloading import Origin
    from steelyard.settings.paths import deployment_file
    from steelyard.telemetry import configure_logging

    read = partial(resolve_options, config, sets, [("model", model, "MODEL")])
    resolved = read()
    log = resolved.deployment.telemetry.log
    configure_logging(log.format, log.level)
    _up(resolved, started_s, Origin(deployment_file(config), read), keep)


def _up(resolved: "Resolved", started_s: float, origin: "Origin", keep: bool) -> None:
    from steelyard.cli.announcing import announce
    from steelyard.cli.fleet_home import FleetHome
    from steelyard.cli.loading import load_files
    from steelyard.cli.service import require_startable, run_in_loop, run_service
    from steelyard.contract import EngineInfo

    require_startable(resolved)
    home = FleetHome(resolved.deployment, keeps_replicas=keep)
    files = load_files(resolved)

    def announce_ready(host: str, port: int, info: EngineInfo) -> None:
        home.note_address(host, port)
        announce(resolved.deployment, started_s, host, port, info)

    run_in_loop(run_service(resolved, files, announce_ready, origin, home))


def down(config: Config = None, sets: Sets = None) -> None:
    """End a fleet: its door, its supervisor and all replicas, also those left by a dead one."""
    from steelyard.cli.fleet_home import admin_path, end_replicas, state_folder
    from steelyard.contract.errors import EngineLost
    from steelyard.fleet.ledger import Ledger
    from steelyard.fleet.orders import Stop

    deployment = resolve_options(config, sets, []).deployment
    try:
        ask_fleet(Stop(), config, sets)
    except EngineLost:
        ledger = Ledger(state_folder(deployment) / "state.json")
        ended = end_replicas(ledger, lambda: time.sleep(_LOOK_S), grace_s=_STOP_LIMIT_S)
        typer.echo(f"ended {', '.join(ended)}" if ended else "nothing is running")
        return
    end_s = time.monotonic() + _STOP_LIMIT_S
    while admin_path(deployment).exists() and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
    typer.echo("the fleet is ending")


def status(
    config: Config = None,
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Show a fleet's replicas: role, phase, process, restarts."""
    from steelyard.fleet.orders import Status

    answer = ask_fleet(Status(), config, sets)
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        _print_status(answer)


def logs(replica: _Replica, config: Config = None, sets: Sets = None) -> None:
    """Print the newest log lines of a replica."""
    from steelyard.fleet.orders import Logs

    for line in ask_fleet(Logs(replica), config, sets).lines:
        typer.echo(line)


def drain(replica: _Replica, config: Config = None, sets: Sets = None) -> None:
    """Give a replica no new requests; what it has ends, or goes on elsewhere."""
    from steelyard.fleet.orders import Drain

    ask_fleet(Drain(replica), config, sets)
    typer.echo(f"{replica} is drained; `steelyard resume {replica}` gives it requests again")


def resume(replica: _Replica, config: Config = None, sets: Sets = None) -> None:
    """Give a drained replica requests again."""
    from steelyard.fleet.orders import Resume

    ask_fleet(Resume(replica), config, sets)
    typer.echo(f"{replica} takes requests")


def restart(replica: _Replica, config: Config = None, sets: Sets = None) -> None:
    """Replace a replica's process without losing a token."""
    from steelyard.fleet.orders import Restart

    ask_fleet(Restart(replica), config, sets)
    typer.echo(f"{replica} was restarted")


def promote(replica: _Replica, config: Config = None, sets: Sets = None) -> None:
    """Let a standby serve."""
    from steelyard.fleet.orders import Promote

    ask_fleet(Promote(replica), config, sets)
    typer.echo(f"{replica} serves")


def scale(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group: main.")],
    replicas: Annotated[int, typer.Argument(metavar="NUMBER", help="How many it shall have.")],
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Change the number of replicas of a group; returns when they are ready."""
    from steelyard.fleet.orders import Scale

    ask_fleet(Scale(group, replicas), config, sets)
    typer.echo(f"{group} has {replicas} replicas")


def ask_fleet(order: "Order", config: Path | None, sets: Sequence[str] | None) -> "Answer":
    """Give an order to the fleet of this deployment. Raises what it ended with."""
    import asyncio

    from steelyard.cli.fleet_home import admin_path
    from steelyard.fleet.admin_socket import give_order

    deployment = resolve_options(config, list(sets or ()), []).deployment
    return asyncio.run(give_order(admin_path(deployment), order))


def _print_status(answer: "Answer") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table("replica", "role", "phase", "pid", "restarts", box=None, pad_edge=False)
    for replica in answer.replicas:
        pid = "" if replica.pid is None else str(replica.pid)
        table.add_row(replica.name, replica.role, replica.phase, pid, str(replica.restarts))
    console.print(table)
    if answer.url is not None:
        console.print(f"serving at {answer.url}/v1")
