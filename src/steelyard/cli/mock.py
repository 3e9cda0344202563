"""`steelyard mock`: a server with known truth, and a proxy that plants faults.

Prints and ends; what the mock does is `lab.mock`'s business. Every key of its configuration is a
flag here and a key of the YAML file, described once, in `lab.mock.config`.
"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.options import examples
from steelyard.lab.mock.config_file import config_keys

if TYPE_CHECKING:  # `--help` should not pay for them
    from steelyard.lab.mock import MockConfig, MockServer

__all__ = ["app"]

EXAMPLES = examples(
    "steelyard mock --ttft-ms gamma:200,0.1 --itl-ms gamma:20,0.2 --truth truth.jsonl",
    "steelyard mock --slots 4 --fault-429 0.05 --seed 7",
    "steelyard mock --bottleneck kv --port 8100",
    "steelyard mock proxy http://127.0.0.1:8000 --plant wrong_usage",
    more="Times and lengths are numbers or distributions: uniform:LOW,HIGH, normal:MEAN,SD, "
    "exponential:MEAN, gamma:MEAN,CV, lognormal:MEAN,CV.",
)

app = typer.Typer(invoke_without_command=True)

_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="YAML file with the same keys."),
]


def _serve(context: typer.Context, config: Path | None = None, **flags: str | None) -> None:
    """Answer OpenAI's API at exactly known times, without a model.

    Prints how late its own tokens were when it ends; with --truth, writes what happened to every
    request.
    """
    if context.invoked_subcommand is not None:
        return
    from steelyard.cli.service import run_in_loop
    from steelyard.lab.mock import load_config

    given = {name: value for name, value in flags.items() if value is not None}
    run_in_loop(_run(load_config(config, given)))


def _with_flags() -> inspect.Signature:
    """The signature that typer reads: one option per key of the configuration."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        inspect.Parameter("config", keyword, annotation=_Config, default=None),
    ]
    for key in config_keys():
        option = typer.Option(
            f"--{key.name.replace('_', '-')}",
            metavar="VALUE",
            help=f"{key.description} Default: {key.default}.",
            show_default=False,
        )
        annotation = Annotated[str | None, option]
        parameters.append(inspect.Parameter(key.name, keyword, annotation=annotation, default=None))
    return inspect.Signature(parameters)


# typer asks both for what a command takes.
_serve.__signature__ = _with_flags()  # type: ignore[attr-defined]
_serve.__annotations__ = {
    name: parameter.annotation
    for name, parameter in _serve.__signature__.parameters.items()  # type: ignore[attr-defined]
}
app.callback(epilog=EXAMPLES)(_serve)


@app.command()
def proxy(
    upstream: Annotated[
        str, typer.Argument(metavar="URL", help="The server to stand in front of.")
    ],
    plant: Annotated[
        list[str] | None,
        typer.Option("--plant", metavar="FAULT", help="Fault to plant; may be repeated."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8101,
    list_faults: Annotated[
        bool, typer.Option("--list", help="Print the faults there are, and end.")
    ] = False,
) -> None:
    """Pass everything on to another server, and plant faults into its answers."""
    from steelyard.cli.service import run_in_loop
    from steelyard.lab.mock.proxy import FAULTS, FaultProxy, make_faults

    if list_faults:
        for name, fault in FAULTS.items():
            print(f"{name:<22} {fault.description}")
        return

    async def serve() -> None:
        server = FaultProxy(upstream, make_faults(plant or ()), host=host, port=port)
        await server.startup()
        try:
            _say(f"proxy of {upstream} at {server.url}; planted: {', '.join(plant or ['nothing'])}")
            await _until_stopped()
        finally:
            await server.shutdown()

    run_in_loop(serve())


@app.command()
def tokenizer(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Made if it is not there.")],
) -> None:
    """Write the tokenizer that counts the mock's text as its clients should: one token per word.

    Other load generators want a tokenizer; with --client-tokens-per-token 2 this one counts twice
    what the mock's usage says.
    """
    from steelyard.lab.mock.tokenizer_files import write_tokenizer

    write_tokenizer(folder)
    print(folder)


async def _run(config: "MockConfig") -> None:
    import gc

    from steelyard.lab.mock import MockServer
    from steelyard.lab.mock.priority import run_promptly

    priority = run_promptly() if config.realtime else "normal"
    server = MockServer(config)
    await server.startup()
    # Requests leave no reference cycles; a full collection would make some tokens late.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    try:
        _say(_banner(server, priority))
        await _until_stopped()
    finally:
        await server.shutdown()
        _say(str(server.timing_summary()))


async def _until_stopped() -> None:
    from steelyard.gateway.stop_signals import StopSignals

    with StopSignals() as signals:
        await signals.first.wait()


def _banner(server: "MockServer", priority: str) -> str:
    config = server.config
    changed = [
        f"{key.name}={getattr(config, key.name)}"
        for key in config_keys()
        if str(getattr(config, key.name)) != key.default and key.name not in ("host", "port")
    ]
    settings = ", ".join(c for c in changed if not c.endswith("=None")) or "defaults"
    return f"mock is ready at {server.url}/v1 ({settings}; {priority} priority)"


def _say(text: Any) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(text)
