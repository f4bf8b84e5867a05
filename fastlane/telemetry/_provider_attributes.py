"""The attributes that tell a provider's own times of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _names as names

if TYPE_CHECKING:
    from ..records.provider_times import ProviderTimes


def add_provider_times(told: dict[str, Any], times: ProviderTimes) -> None:
    """What the provider says of the time that it spent, in seconds; those are absent that it does not say."""
    found = (
        (names.PROVIDER_QUEUE, times.queue_s),
        (names.PROVIDER_PREFILL, times.prefill_s),
        (names.PROVIDER_DECODE, times.decode_s),
        (names.PROVIDER_TOTAL, times.total_s),
        (names.PROVIDER_HEAD, times.head_s),
    )
    told.update({name: value for name, value in found if value is not None})
