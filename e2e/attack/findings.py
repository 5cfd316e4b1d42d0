"""The list of attacks, in the order of their registration."""

from dataclasses import dataclass
from typing import Callable, Optional


@dataclass
class Finding:
    name: str
    title: str
    play: Optional[Callable]
    # Whether the attack needs a system that no other attack has used, and spoils it.
    alone: bool = False
    # Why the finding cannot be played.
    reason: str = ""


ALL = []


def finding(name, title, alone=False):
    """Registers an attack. It raises `Broken` if it succeeds, and returns if the system held."""
    def register(play):
        ALL.append(Finding(name, title, play, alone))
        return play
    return register


def not_played(name, title, reason):
    """Registers a finding that no attack on a running system can show."""
    ALL.append(Finding(name, title, None, reason=reason))
