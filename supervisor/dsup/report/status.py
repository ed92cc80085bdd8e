"""The status line of a terminal: how the run stands, in a dozen words. Pure."""

from __future__ import annotations

from typing import Final

from dsup.core.state import NEVER, Stage, State

EVERY_S: Final = 1.0
RATE_OVER_S: Final = 10.0
"""Steps a second are told over so long: of slow steps, too, a few are counted."""


def text(state: State, step: int | None, rate: float | None) -> str:
    """Return how a run stands.

    Args:
        state: the state it is in; a pause's end stands in its plan.
        step: the last step that all ranks finished; None if they do not tell.
        rate: steps a second; None while that is not known.
    """
    size = state.spec.world_size
    ranks = f"{len(state.alive)} of {size} ranks" if size > 1 else "1 rank"
    parts = [f"attempt {state.attempt}", ranks if state.alive else "no rank alive"]
    if step is not None and state.alive:
        parts.append(f"step {step:,}")
        if rate is not None:
            parts.append(f"{rate:.3g} steps/s")
    if state.checkpoint_step is not None:
        parts.append(f"checkpoint at step {state.checkpoint_step:,}")
    if state.stage is Stage.PARKING:
        parts.append("stopping at the next step")
    elif state.stage is not Stage.RUNNING:
        parts.append(state.stage.value)
    if state.suspected or state.slow:
        from dsup.report import hangs

        parts += hangs.brief(state)
    return "dsup: " + ", ".join(parts)


def pause(state: State, now_s: float) -> str:
    """Return how long a pause still lasts; empty outside one."""
    plan = state.plan
    if state.stage is not Stage.DECIDING or plan is None or plan.restart_at_s is None:
        return ""
    left_s = max(0.0, plan.restart_at_s - now_s)
    return f"dsup: restart {state.attempt + 1} in {left_s:.0f} s"


class StatusText:
    """What the line says next, from what has been so far.

    Attributes:
        rate: steps a second; None while that is not known.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._said = ""
        self._next_s = -NEVER
        self._attempt = 0
        self._seen: list[tuple[float, int]] = []

    def news(self, state: State, step: int | None, now_s: float) -> str | None:
        """Return a new text, None while the old one stands or is fresh.

        Args:
            state: how the run stands.
            step: the last step that all ranks finished.
            now_s: the present, agent clock, seconds.
        """
        if now_s < self._next_s:
            return None
        self._next_s = now_s + EVERY_S
        self.rate = self._rate(state.attempt, step, now_s)
        said = pause(state, now_s) or text(state, step, self.rate)
        if said == self._said:
            return None
        self._said = said
        return said

    def _rate(self, attempt: int, step: int | None, now_s: float) -> float | None:
        if attempt != self._attempt:
            self._attempt, self._seen = attempt, []
        if step is None:
            return None
        self._seen.append((now_s, step))
        # One that is older stays, so that slow steps have something to count from.
        while self._seen[1:] and now_s - self._seen[1][0] >= RATE_OVER_S:
            del self._seen[0]
        since_s, first = self._seen[0]
        if now_s == since_s or step <= first:
            return None
        return (step - first) / (now_s - since_s)
