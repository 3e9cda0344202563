"""The sections of the deployment file for engines that are not ours: endpoints, vLLM, SGLang.

Values only. What they must not be together is in `foreign_rules`; `cli.foreign` turns them into
the configurations of `backends`.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from steelyard.settings._section import Section
from steelyard.settings.access import FilePath
from steelyard.settings.quantities import BadValue, Seconds

__all__ = [
    "Hardware",
    "ParallelSettings",
    "RemoteSettings",
    "ServerSettings",
    "SglangSettings",
    "VllmSettings",
    "without_api_path",
]

_Name = Annotated[str, Field(min_length=1, max_length=1024)]
_Degree = Annotated[int, Field(ge=1, le=1024)]

Hardware = Literal[
    "auto",
    "cpu",
    "a100",
    "h100",
    "h200",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "mi325x",
    "rtx_pro_6000",
    "other",
]
"""As `backends.plans.devices` knows them, and `auto`."""


def _endpoint(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port out of range
        is_whole = False
    if not is_whole or parts.query or parts.fragment or any(c.isspace() for c in value):
        raise BadValue(
            "holds an entry that is no address of a server",
            "use entries like https://host/v1 or http://host:port, without a query",
        )
    if "@" in parts.netloc:
        raise BadValue("holds credentials", "put the key into the file of remote.api_key_file")
    return value


def without_api_path(url: str) -> str:
    """An endpoint as all its pages begin: `/v1` is said with each of them."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class RemoteSettings(Section):
    """Endpoints with the OpenAI API that serve the model. For `backend: remote`."""

    url: Annotated[str, Field(min_length=1, max_length=2048), AfterValidator(_endpoint)] | None = (
        None
    )
    """The endpoint, such as `https://host/v1`."""
    more_urls: tuple[Annotated[str, AfterValidator(_endpoint)], ...] = Field(
        default=(), strict=False, max_length=255
    )
    """Further endpoints of the same model: requests are shared among all, and go on elsewhere when
    one fails."""
    model: _Name | None = None
    """The model's name there; `null`: `served_name`, or the only one the endpoint has."""
    mode: Literal["auto", "tokens", "text"] = "auto"
    """`tokens`: token ids both ways, so that streams survive the loss of an endpoint. `text`: the
    endpoint answers with text, and a stream that broke ends with an error. `auto` asks it."""
    api_key_file: FilePath | None = None
    """File that holds the endpoints' API key alone; `null`: none is sent."""
    ca_file: FilePath | None = None
    """PEM file with the certificates to trust; `null`: those of the system. Certificates are
    always checked."""
    connect_timeout_s: Seconds = 5.0
    """For a connection to come about."""
    silence_timeout_s: Seconds = 120.0
    """A stream that brings nothing for so long is given up."""

    @property
    def urls(self) -> tuple[str, ...]:
        """All endpoints, in the order of the file."""
        return (*((self.url,) if self.url is not None else ()), *self.more_urls)


class ParallelSettings(Section):
    """How one replica is divided among devices. For `backend: vllm` and `sglang`."""

    tensor: _Degree = 1
    """Devices among which each layer is divided."""
    pipeline: _Degree = 1
    """Stages of layers, each on devices of its own."""
    data: _Degree = 1
    """Copies of the attention layers, each with requests of its own."""
    expert: bool = False
    """Divide experts among all devices instead of dividing each."""


class ServerSettings(Section):
    """A server of another make, which is started in an environment of its own."""

    python: FilePath | None = None
    """The Python of the environment in which it is installed, such as `/opt/vllm/bin/python`."""
    model: _Name | None = None
    """What it loads, where that is not the files of `model`: a directory in the layout of the
    Hugging Face hub. Tokenizer and template are always those of `model`."""
    hardware: Hardware = "auto"
    """What its flags are chosen for, and plans refused by; `auto` asks the driver."""
    kv_dtype: Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"] = "auto"
    """Precision of the KV cache, in the server's own words."""
    memory_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.9
    """Of a device's memory, for weights and KV cache together."""
    eager: bool = False
    """Start without compiling: much sooner, and slower afterwards."""
    trust_remote_code: bool = False
    """Run programs that come with the model."""
    flags: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), strict=False, max_length=256
    )
    """Further flags, after all others: `[--max-logprobs, "20"]`."""


class VllmSettings(ServerSettings):
    """vLLM's server. For `backend: vllm`."""


class SglangSettings(ServerSettings):
    """SGLang's server. For `backend: sglang`."""
