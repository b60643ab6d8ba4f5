"""Why a pod or a claim keeps its worker: the meaning of each letter of cluster/commands/rules.py.

The command that drains contains this file, so it imports nothing and runs with Python 3.9.
"""

REASONS = {
    "k": "is a kube-system pod of no DaemonSet",
    "s": "is a StatefulSet pod",
    "d": "is the only replica of its Deployment",
    "c": "has no controller that would start it again",
    "g": "belongs to a controller that does not exist",
    "v": "uses a volume that exists on this node only",
    "b": "is bound to a volume that no other node can attach",
    "n": 'is annotated safe-to-evict "false"',
    "x": "is annotated karpenter.sh/do-not-disrupt",
    "p": "is under a PodDisruptionBudget that allows no disruption now",
    "t": "is under two PodDisruptionBudgets, which makes eviction impossible",
    "q": "is under a PodDisruptionBudget that shares pods with another, so that its status may be out of date",
    "w": 'is annotated safe-to-evict "on-completion" and has not finished',
    "e": "is being deleted and does not end",
    "o": "tolerates a cordon, so that the scheduler may place it on this worker again",
    "u": "cannot be judged",
}

NO_RESTART = {
    "value": 'its annotation restart-before-drain is not "true"',
    "strategy": "its strategy is not RollingUpdate",
    "surge": "its maxSurge allows no second pod",
    "unavailable": "its maxUnavailable lets the pod end first",
    "paused": "it is paused",
    "volume": "a volume of its pod cannot be used on two workers at once",
    "incomplete": "its last roll-out is not complete, or its pod is not available",
    "failed": "a restart before a drain was begun less than 6 h ago and did not succeed during the drain",
}
"""Why a Deployment that is annotated restart-before-drain cannot get a second pod first."""


def reason_of(letter: str, detail: str) -> str:
    """The reason in words, with the detail that the letter has."""
    text = REASONS.get(letter, "cannot be judged")
    if letter == "d" and detail:
        return f"{text}, which cannot get a second pod first: {NO_RESTART.get(detail, detail)}"
    return f"{text} (budget {detail})" if letter in ("p", "t", "q") and detail else text
