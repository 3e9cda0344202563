"""Refuses plans that cannot work: sums that exceed a device, kernels that do not exist.

Only what is certain before anything is loaded. What merely is slow, or tight, is not refused.
"""

from collections.abc import Callable, Iterator

from steelyard.backends.plans import deepseek_v4
from steelyard.backends.plans.devices import DEVICES
from steelyard.backends.plans.plan import ServerPlan
from steelyard.contract.errors import SettingsError

__all__ = ["refuse_unfit"]

_GB = 10**9


def refuse_unfit(plan: ServerPlan, *, devices_found: int | None) -> None:
    """Raise `SettingsError`, with key, reason and fix, for the first thing that cannot work.

    `devices_found` None: nobody knows how many accelerators this machine has.
    """
    for check in _CHECKS:
        for error in check(plan):
            raise error
    if devices_found is not None and plan.hardware != "cpu" and plan.devices > devices_found:
        raise SettingsError(
            f"tensor × pipeline × data = {plan.devices} devices for each replica, "
            f"but this machine has {devices_found}",
            param="parallel.tensor",
            fix="lower parallel.tensor, parallel.pipeline or parallel.data",
        )


def _heads_can_be_divided(plan: ServerPlan) -> Iterator[SettingsError]:
    heads = plan.model.attention_heads
    if heads % plan.tensor:
        fitting = [str(n) for n in range(1, heads + 1) if heads % n == 0 and n <= 16]
        yield SettingsError(
            f"the model's {heads} attention heads cannot be divided among {plan.tensor} devices",
            param="parallel.tensor",
            fix=f"use one of {', '.join(fitting)}",
        )


def _pipelines_need_accelerators(plan: ServerPlan) -> Iterator[SettingsError]:
    if plan.hardware == "cpu" and plan.pipeline > 1:
        yield SettingsError(
            "pipelines do not work on a CPU: the server starts, and its first request ends it",
            param="parallel.pipeline",
            fix="use parallel.pipeline: 1",
        )


def _weights_fit(plan: ServerPlan) -> Iterator[SettingsError]:
    device = DEVICES.get(plan.hardware)
    if device is None:
        return
    # The least a device can hold: all weights divided. Attention is replicated where experts are
    # spread over data-parallel ranks, so the truth is more.
    shards = plan.tensor * plan.pipeline * (plan.data if plan.expert else 1)
    each_gb = plan.model.weight_bytes / shards / _GB
    room_gb = device.memory_gb * plan.memory_share
    if each_gb >= room_gb:
        least = -(-plan.model.weight_bytes // int(room_gb * _GB))
        yield SettingsError(
            f"weights of {each_gb:.1f} GB on each {plan.hardware} exceed "
            f"{plan.section}.memory_share = {plan.memory_share:g} of its {device.memory_gb} GB, "
            "before any KV cache",
            param="parallel.tensor",
            fix=f"divide the model among more than {least - 1} devices with parallel.tensor, "
            "or use devices with more memory",
        )


def _family_fits(plan: ServerPlan) -> Iterator[SettingsError]:
    if plan.model.architecture == deepseek_v4.ARCHITECTURE:
        yield from deepseek_v4.refusals(plan)


_CHECKS: tuple[Callable[[ServerPlan], Iterator[SettingsError]], ...] = (
    _family_fits,
    _heads_can_be_divided,
    _pipelines_need_accelerators,
    _weights_fit,
)
