"""Which replicas may be chosen now, the better ones first.

    ready       healthy or returning
    doubtful    suspects; and, while too many are ejected to be believed (panic), the ejected ones

A lower tier is used when nobody of a higher one can take a request in time. Replicas that are
absent, drained or not wanted are in neither.
"""

from steelyard.policies.health import Health, ReplicaHealth
from steelyard.policies.routing.pool import Pool
from steelyard.policies.routing.target import Target

__all__ = ["Rotation"]


class Rotation:
    """The tiers of one set of replicas, kept up to date by `update`."""

    def __init__(self, *, max_ejected_share: float) -> None:
        self._max_ejected_share = max_ejected_share
        self.ready = Pool()
        self.doubtful = Pool()
        self._ejected: dict[int, Target] = {}
        """Able, but ejected."""
        self._able: set[int] = set()
        """Wanted, there, and not draining, whatever their health."""
        self._is_panicking = False

    @property
    def is_panicking(self) -> bool:
        """True while so many are ejected that all are tried."""
        return self._is_panicking

    @property
    def tiers(self) -> tuple[Pool, Pool]:
        """Best first."""
        return self.ready, self.doubtful

    def update(self, target: Target, health: ReplicaHealth, *, is_wanted: bool) -> bool:
        """Sort `target` in by its health; True when it has just become ready."""
        index = target.index
        was_ready = index in self.ready
        is_present = is_wanted and not health.is_absent
        may_serve = is_present and not health.is_draining and target.weight > 0
        is_ready = may_serve and health.state in (Health.HEALTHY, Health.RETURNING)
        self._sort(target, self.ready, belongs=is_ready)
        if may_serve:
            self._able.add(index)
        else:
            self._able.discard(index)
        if may_serve and health.state is Health.EJECTED:
            self._ejected[index] = target
        else:
            self._ejected.pop(index, None)
        is_suspect = may_serve and health.state is Health.SUSPECT
        is_tried = self._is_panicking and index in self._ejected
        self._sort(target, self.doubtful, belongs=is_suspect or is_tried)
        self._reconsider()
        return is_ready and not was_ready

    def remove(self, target: Target) -> None:
        """`target` is gone for good."""
        self.ready.discard(target)
        self.doubtful.discard(target)
        self._ejected.pop(target.index, None)
        self._able.discard(target.index)
        self._reconsider()

    def _reconsider(self) -> None:
        is_panicking = len(self._ejected) > self._max_ejected_share * len(self._able)
        if is_panicking == self._is_panicking:
            return
        self._is_panicking = is_panicking
        for target in self._ejected.values():
            self._sort(target, self.doubtful, belongs=is_panicking)

    @staticmethod
    def _sort(target: Target, pool: Pool, *, belongs: bool) -> None:
        if belongs:
            pool.add(target)
        else:
            pool.discard(target)
