"""What the adaptive rules have learned, in a form small enough for the state item: sums and counts that fade.

Records only; spare.py, calm.py and packing.py fill and read them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRise:
    """Demand at one reading, and the highest since; closed once the horizon is over. Demand is in workers."""

    at: int
    demand: float
    highest: float
    pace: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """When so many workers were last needed."""

    at: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSums:
    """Fading sums over usable workers: how many, their pods, and what they ask for; the line through them is a pod.

    least: the fewest pods that a usable worker was seen with, which is what its DaemonSets put there.
    """

    workers: float = 0.0
    pods: float = 0.0
    pods_squared: float = 0.0
    cpu: float = 0.0
    pods_cpu: float = 0.0
    memory: float = 0.0
    pods_memory: float = 0.0
    least: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What each rest of calm.RESTS would have led to: its workers now, its last way, and two sums that fade.

    moved: 1 up, -1 down, 0 neither yet. held: worker-minutes of room that nobody needed. turns: changes of direction.
    """

    workers: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    held: tuple[float, ...] = ()
    turns: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """places: typical pods that a worker holds; demand seen with another number cannot be compared.

    rises: for each pace, row by row, how often demand rose by each of spare.RISES within the horizon.

    needs: the falling staircase of needs, newest and lowest last. tried: the rests, on paper. boot_seconds: from a
    decision to the join.
    """

    read_at: int = 0
    demand: float = 0.0
    places: int = 0
    before_at: int = 0
    before: float = 0.0
    rises: tuple[float, ...] = ()
    open: tuple[OpenRise, ...] = ()
    needs: tuple[Needed, ...] = ()
    tried: Tried = Tried()
    pods: PodSums = PodSums()
    boot_seconds: float = 90.0
    adding_since: int = 0
