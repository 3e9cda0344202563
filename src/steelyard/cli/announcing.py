"""Tells that the service is ready: a banner for people, one line for a log that machines read."""

import json
import logging
import shlex
import time

from rich.console import Console
from rich.text import Text

from steelyard import __version__
from steelyard.contract import EngineInfo
from steelyard.settings import Deployment

__all__ = ["announce"]

_log = logging.getLogger(__name__)

_GIB = 1 << 30
_MIB = 1 << 20


def announce(
    deployment: Deployment, started_s: float, host: str, port: int, info: EngineInfo
) -> None:
    """Say on standard error what is served, and where; `started_s` is a monotonic time."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    ready_s = time.monotonic() - started_s
    if deployment.telemetry.log.format == "json":
        _log.info("ready after %.1f s: %s at %s/v1", ready_s, info.model, url)
        return
    body = {"model": info.model, "messages": [{"role": "user", "content": "Hello!"}]}
    rows = {
        "model": f"{info.model}, {_how(info.details)}",
        "memory": _memory(info),
        "limits": _limits(info),
        "address": f"{url}/v1",
        "try": f"curl {url}/v1/chat/completions \\",
        "": f"  -H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}",
    }
    banner = Text.assemble((f"steelyard {__version__}", "bold"), f" is ready after {ready_s:.1f} s")
    for name, value in rows.items():
        if value is None:
            continue
        banner.append(f"\n  {name:<8} {value}")
    Console(stderr=True, highlight=False, soft_wrap=True).print(banner)


def _limits(info: EngineInfo) -> str:
    limits = f"{info.context_tokens:,} tokens per sequence"
    return f"{limits}, {info.max_running} sequences at once" if info.max_running else limits


def _how(details: dict[str, str]) -> str:
    if "url" in details:
        return f"{details['model']} at {details['url']} in {details['mode']} mode"
    if details.get("engine") in ("vllm", "sglang"):
        return " ".join(details[key] for key in ("engine", "version") if key in details)
    known = [details[key] for key in ("precision", "device") if key in details]
    if "threads" in details:
        known.append(f"{details['threads']} threads")
    if "kernels" in details:
        known.append(f"{details['kernels']} kernels")
    return ", ".join(known) or "made-up tokens"


def _memory(info: EngineInfo) -> str | None:
    """None when the engine does not say."""
    tokens = info.kv_blocks_total * info.kv_block_tokens
    if "weights_bytes" not in info.details:
        return f"KV cache {tokens:,} tokens" if tokens else None
    weights, kv = (int(info.details.get(key, "0")) for key in ("weights_bytes", "kv_bytes"))
    return f"weights {_size(weights)}, KV cache {_size(kv)} = {tokens:,} tokens"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"
