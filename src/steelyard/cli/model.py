"""`steelyard model`: fetch models into the cache, list them, describe and check one.

Prints what `checkpoints` finds out. Progress and errors go to standard error, results to standard
output; `--json` makes results machine-readable. Exit status: 0 done, 1 not possible, 130
interrupted.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from steelyard.cli.endings import end_if_told_to, print_error
from steelyard.cli.progress import file_progress
from steelyard.contract.errors import SteelyardError

if TYPE_CHECKING:  # the commands import them when they run: `--help` should not pay for them
    from steelyard.checkpoints import Checkpoint, ModelStore, StoredModel
    from steelyard.checkpoints.catalog import WheelModel

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Fetch, list and describe models.")

_INTERRUPTED = 130
_LABELS = {"weight_bytes": "weights", "kv_heads": "KV heads"}

_Name = Annotated[
    str, typer.Argument(help="A name from `model list`, org/name of the hub, or a path.")
]
_CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        envvar="STEELYARD_CACHE_DIR",
        help="Folder that keeps models. Default: steelyard in the user's cache folder.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command()
def pull(name: _Name, cache_dir: _CacheDir = None, as_json: _Json = False) -> None:
    """Fetch a model into the cache; an interrupted pull goes on where it stopped.

    Examples: `steelyard model pull smollm2-135m`, `steelyard model pull Qwen/Qwen3-0.6B`.
    """
    with _clean_errors(), file_progress(quiet=as_json) as report:
        path = _store(cache_dir).pull(name, report)
    if as_json:
        typer.echo(json.dumps({"name": name, "path": str(path)}))
    else:
        typer.echo(str(path))


@app.command("list")
def list_models(cache_dir: _CacheDir = None, as_json: _Json = False) -> None:
    """List the models in the cache and those that can be pulled by name."""
    from steelyard.checkpoints.catalog import CATALOG

    with _clean_errors():
        stored = _store(cache_dir).list()
    names = {model.name for model in stored}
    known = [model for model in CATALOG if model.name not in names]
    if as_json:
        rows = [_stored_row(model) for model in stored] + [_known_row(model) for model in known]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "size", "from", "where"):
        table.add_column(title, overflow="fold")
    for model in stored:
        table.add_row(model.name, _megabytes(model.size_bytes), model.source, str(model.path))
    for entry in known:
        table.add_row(
            entry.name, _megabytes(entry.gguf_bytes), entry.source, "not fetched", style="dim"
        )
    Console(highlight=False).print(table)


@app.command()
def show(name: _Name, cache_dir: _CacheDir = None, as_json: _Json = False) -> None:
    """Describe a model: architecture, dimensions, weights, vocabulary, template."""
    from steelyard.checkpoints import open_checkpoint

    with _clean_errors():
        checkpoint = open_checkpoint(_store(cache_dir).resolve(name))
        facts = _facts(checkpoint)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(_LABELS.get(key, key.replace("_", " ")), _for_people(key, value))
    Console(highlight=False).print(table)


@app.command()
def verify(name: _Name, cache_dir: _CacheDir = None, as_json: _Json = False) -> None:
    """Check a model's files against the published checksums, byte for byte."""
    from steelyard.checkpoints import open_checkpoint, verify_checkpoint

    with _clean_errors(), file_progress(quiet=as_json) as report:
        checked = verify_checkpoint(open_checkpoint(_store(cache_dir).resolve(name)), report)
    if as_json:
        typer.echo(json.dumps({"name": name, "verified": [str(path) for path in checked]}))
    elif checked:
        typer.echo("\n".join(f"{path}: as published" for path in checked))
    else:
        typer.echo("No checksum is known for this model; its structure is sound.")


def _store(cache_dir: Path | None) -> "ModelStore":
    from steelyard.checkpoints import ModelStore
    from steelyard.settings import default_cache_dir

    return ModelStore((cache_dir or default_cache_dir()).expanduser().absolute())


@contextmanager
def _clean_errors() -> Iterator[None]:
    """Print errors of the tree instead of a traceback, and end with the matching status."""
    try:
        yield
    except SteelyardError as error:
        print_error(error)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        end_if_told_to()
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from error


def _facts(checkpoint: "Checkpoint") -> dict[str, Any]:
    config = checkpoint.config
    dtypes = Counter(entry.dtype for entry in checkpoint.tensors.values())
    return {
        "name": checkpoint.name,
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "architecture": checkpoint.architecture,
        "parameters": sum(prod(entry.shape) for entry in checkpoint.tensors.values()),
        "weight_bytes": checkpoint.weight_bytes,
        "tensors": dict(dtypes.most_common()),
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "attention_heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "context_tokens": config.max_position_embeddings,
        "sliding_window": config.sliding_window,
        "vocabulary": config.vocab_size,
        "end_token_ids": list(config.eos_token_ids),
        "tied_embeddings": config.tie_word_embeddings,
        "chat_template": checkpoint.chat_template is not None,
    }


def _for_people(key: str, value: Any) -> str:
    if key == "weight_bytes":
        return _megabytes(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{count} × {name}" for name, count in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, int):
        return f"{value:,}"
    return "none" if value is None else str(value)


def _stored_row(model: "StoredModel") -> dict[str, Any]:
    return {
        "name": model.name,
        "size_bytes": model.size_bytes,
        "source": model.source,
        "path": str(model.path),
    }


def _known_row(model: "WheelModel") -> dict[str, Any]:
    return {
        "name": model.name,
        "size_bytes": model.gguf_bytes,
        "source": model.source,
        "path": None,
    }


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
