"""`steelyard serve`: the OpenAI-compatible API in front of a model."""

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.options import Config, ModelName, Sets, examples, resolve_options
from steelyard.contract.errors import SteelyardError

if TYPE_CHECKING:  # the command imports them when it runs: `--help` should not pay for them
    from steelyard.cli.reloading import Origin
    from steelyard.settings import Resolved

__all__ = ["EXAMPLES", "serve"]

EXAMPLES = examples(
    "steelyard serve",
    "steelyard serve Qwen/Qwen3-0.6B --port 9000",
    "steelyard serve ./model.gguf --set weights.precision=bf16 --set kv_cache.memory=2GiB",
    "steelyard serve --config deployment.yaml",
)


def serve(
    model: ModelName = None,
    config: Config = None,
    sets: Sets = None,
    *,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Port to listen on; 0 takes a free one. Default: 8000."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Processes that serve the port together. Default: 1."),
    ] = None,
) -> None:
    """Serve a model behind an OpenAI-compatible API.

    SIGTERM or Ctrl-C ends it once the running requests have finished; a second one at once.
    A deployment file is read again when it changes and on SIGHUP.
    """
    started_s = time.monotonic()
    from steelyard.cli.reloading import Origin
    from steelyard.settings.paths import deployment_file
    from steelyard.telemetry import configure_logging

    flags = [
        ("model", model, "MODEL"),
        ("gateway.host", host, "--host"),
        ("gateway.port", port, "--port"),
        ("gateway.workers", workers, "--workers"),
    ]
    read = partial(resolve_options, config, sets, flags)
    resolved = read()
    log = resolved.deployment.telemetry.log
    configure_logging(log.format, log.level)
    try:
        _serve(resolved, started_s, Origin(deployment_file(config), read))
    except SteelyardError as error:
        if log.format != "json":
            raise
        # Whoever collects objects would stumble over a sentence.
        logging.getLogger(__name__).critical("%s", error)
        raise typer.Exit(1) from error


def _serve(resolved: "Resolved", started_s: float, origin: "Origin") -> None:
    from steelyard.cli.announcing import announce
    from steelyard.cli.loading import load_files
    from steelyard.cli.service import require_startable, run_in_loop, run_service

    require_startable(resolved)
    files = load_files(resolved)
    announce_ready = partial(announce, resolved.deployment, started_s)
    run_in_loop(run_service(resolved, files, announce_ready, origin))
