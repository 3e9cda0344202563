"""`steelyard keys`: make, list and revoke the API keys of a service.

Changes the file that `gateway.auth.keys_file` names; doors that use it notice within seconds. A
key is printed once, when it is made, and kept nowhere.
"""

import datetime
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from steelyard.cli.options import Config, Sets, examples, resolve_options

if TYPE_CHECKING:  # the commands import it when they run: `--help` should not pay for it
    from steelyard.gateway.auth.api_keys import KeyEntry

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke API keys.", rich_markup_mode="rich"
)

_SCOPES = ("llm:infer", "llm:admin")
_MODEL_SCOPE = "model:"

_File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="The keys file. Default: gateway.auth.keys_file of the deployment file.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command(
    epilog=examples(
        "steelyard keys new team-a --file keys.jsonl",
        "steelyard keys new team-b --config deployment.yaml --plan gold --days 90",
        "steelyard keys new prometheus --file keys.jsonl --scope llm:admin --note scraper",
        "steelyard keys new team-c --file keys.jsonl --stdin <old-key.txt",
    )
)
def new(
    *,
    tenant: Annotated[
        str, typer.Argument(metavar="TENANT", help="Whose limits and usage the key counts for.")
    ],
    file: _File = None,
    config: Config = None,
    sets: Sets = None,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="What it allows: llm:infer (requests), llm:admin (metrics and administration), "
            "model:NAME or model:*. May be repeated. Default: llm:infer.",
        ),
    ] = None,
    plan: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chooses among tenants.plans.")
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Valid for so long. Default: until it is revoked."),
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="For people who list keys.")] = "",
    stdin: Annotated[
        bool,
        typer.Option("--stdin", help="Take over a key of another maker from standard input."),
    ] = False,
) -> None:
    """Make a key, print it, and keep its SHA-256 in the keys file.

    The file is made when it is not there, readable for this user alone.
    """
    from steelyard.gateway.auth.api_keys import KeyEntry, hash_key, new_key
    from steelyard.gateway.auth.keys_file import add_key

    path = _path(file, config, sets)
    key = _foreign_key() if stdin else new_key()
    key_id, digest = hash_key(key)
    entry = KeyEntry(
        id=key_id,
        sha256=digest,
        tenant=_tenant(tenant),
        scopes=_known(scopes or ["llm:infer"]),
        plan=plan,
        expires=_expiry(days),
        note=note,
    )
    add_key(path, entry)
    print(f"The key {key_id} of {tenant} is in {path}.", file=sys.stderr)
    if not stdin:
        print("It is shown only now:", file=sys.stderr)
        print(key)


@app.command("list", epilog=examples("steelyard keys list --file keys.jsonl"))
def list_keys(
    file: _File = None, config: Config = None, sets: Sets = None, as_json: _Json = False
) -> None:
    """List ids, tenants and grants. The keys themselves are not known."""
    from steelyard.gateway.auth.keys_file import read_keys

    entries = read_keys(_path(file, config, sets))
    if as_json:
        print(json.dumps([_facts(entry) for entry in entries], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("id", "tenant", "grants", "plan", "expires", "note"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        expires = "" if entry.expires is None else f"{entry.expires:%Y-%m-%d %H:%M} UTC"
        table.add_row(
            entry.id, entry.tenant, " ".join(entry.scopes), entry.plan or "", expires, entry.note
        )
    Console(highlight=False, markup=False).print(table)


@app.command(epilog=examples("steelyard keys revoke 5f2a9c04d1e7 --file keys.jsonl"))
def revoke(
    *,
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `keys list` shows it: sk-ID-… without the rest.")
    ],
    file: _File = None,
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Take a key out of the file: its holder is refused from then on."""
    from steelyard.gateway.auth.keys_file import revoke_key

    path = _path(file, config, sets)
    entry = revoke_key(path, key_id)
    print(f"Key {entry.id} of {entry.tenant} is revoked.", file=sys.stderr)


def _path(file: Path | None, config: Path | None, sets: list[str] | None) -> Path:
    """The keys file. Raises `SettingsError` when nothing names one."""
    from steelyard.contract.errors import SettingsError
    from steelyard.settings.paths import expanded

    if file is not None:
        return expanded(str(file))
    named = resolve_options(config, sets, ()).deployment.gateway.auth.keys_file
    if named is None:
        raise SettingsError(
            "no keys file is named",
            param="gateway.auth.keys_file",
            fix="give --file, or --config with a deployment file that names one",
        )
    return expanded(named)


def _tenant(name: str) -> str:
    from steelyard.gateway.caller import is_tenant_name

    if not is_tenant_name(name):
        raise typer.BadParameter("TENANT must be 1 to 128 visible ASCII characters")
    return name


def _known(scopes: list[str]) -> tuple[str, ...]:
    """The scopes, unless one is misspelt: it would silently grant nothing."""
    for scope in scopes:
        names_a_model = scope.startswith(_MODEL_SCOPE) and scope != _MODEL_SCOPE
        if scope not in _SCOPES and not names_a_model:
            raise typer.BadParameter(
                f"{scope} is no scope; use {', '.join(_SCOPES)} or {_MODEL_SCOPE}NAME"
            )
    return tuple(dict.fromkeys(scopes))


def _expiry(days: float | None) -> datetime.datetime | None:
    if days is None:
        return None
    if not 0 < days <= 36_500:
        raise typer.BadParameter("--days must be above 0, and at most 36500")
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return now + datetime.timedelta(days=days)


def _foreign_key() -> str:
    """One line from standard input, which could really be a key."""
    from steelyard.gateway.auth.api_keys import MIN_FOREIGN_CHARS
    from steelyard.gateway.auth.guard import is_bearer

    key = sys.stdin.readline().strip() if sys.stdin is not None else ""
    if len(key) < MIN_FOREIGN_CHARS:
        raise typer.BadParameter(
            f"the key has fewer than {MIN_FOREIGN_CHARS} characters, so it could be guessed"
        )
    if not is_bearer(key):
        raise typer.BadParameter("the key holds characters that cannot stand in a header")
    return key


def _facts(entry: "KeyEntry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "tenant": entry.tenant,
        "scopes": list(entry.scopes),
        "plan": entry.plan,
        "expires": None if entry.expires is None else entry.expires.isoformat(),
        "note": entry.note,
    }
