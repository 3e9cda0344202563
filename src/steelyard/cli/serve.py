"""`steelyard serve`: the OpenAI-compatible API in front of a model."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from steelyard import __version__
from steelyard.cli.options import Config, ModelName, Sets, resolve_options
from steelyard.contract import EngineInfo
from steelyard.settings import Flag, Resolved
from steelyard.telemetry import configure_logging

__all__ = ["serve"]

_GIB = 1 << 30
_MIB = 1 << 20


def serve(
    model: ModelName = None,
    config: Config = None,
    sets: Sets = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Serve a model until SIGTERM or Ctrl-C; running requests then finish first.

    Examples:

        steelyard serve

        steelyard serve Qwen/Qwen3-0.6B --port 9000

        steelyard serve ./model.gguf --set weights.precision=bf16 --set kv_cache.memory=2GiB
    """
    flags = [Flag("gateway.host", host, "--host"), Flag("gateway.port", port, "--port")]
    resolved = resolve_options(model, config, sets, flags)
    log = resolved.deployment.telemetry.log
    configure_logging(log.format, log.level)
    # Imported here, because `--help` should not pay for them.
    from steelyard.cli.loading import load_files
    from steelyard.cli.service import run_in_loop, run_service

    files = load_files(resolved)

    def announce(address: str, bound_port: int, info: EngineInfo) -> None:
        _print_banner(resolved, address, bound_port, info)

    run_in_loop(run_service(resolved, files, announce))


def _print_banner(resolved: Resolved, host: str, port: int, info: EngineInfo) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    rows = {
        "model": f"{info.model}, {_engine_line(info.details)}",
        "memory": _memory_line(info),
        "limits": f"{info.context_tokens} tokens per sequence, "
        f"{resolved.deployment.batching.running_limit} sequences at once",
        "address": f"{url}/v1",
    }
    console.print(f"[bold]steelyard {escape(__version__)}[/bold] is ready")
    for name, value in rows.items():
        console.print(f"  {name:<8} {escape(value)}")
    body = f'{{"model": "{info.model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    console.print(f"  {'try':<8} curl {url}/v1/chat/completions \\", markup=False)
    console.print(f"           -H 'content-type: application/json' -d '{body}'", markup=False)


def _engine_line(details: dict[str, str]) -> str:
    known = [details[key] for key in ("precision", "device") if key in details]
    if "threads" in details:
        known.append(f"{details['threads']} threads")
    if "kernels" in details:
        known.append(f"{details['kernels']} kernels")
    return ", ".join(known) or "made-up tokens"


def _memory_line(info: EngineInfo) -> str:
    tokens = info.kv_blocks_total * info.kv_block_tokens
    weights, kv = (int(info.details.get(key, "0")) for key in ("weights_bytes", "kv_bytes"))
    return f"weights {_size(weights)}, KV cache {_size(kv)} = {tokens:,} tokens"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"
