"""Reporters for MLflow, Weights & Biases and plain JSON lines.

They show how small a reporter is: copy one to change it. A later attempt of a run goes
on with the tracker's same record, found by the launcher's name for the run.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from dsup_runtime.lifecycle.outcome import Outcome
    from dsup_runtime.worker_info import Info

_WANDB_INTERRUPTED = 255  # the code of its own hook for Ctrl-C


def _run_name(info: Info) -> str | None:
    """Return the run's own name; torchrun's default for it is the word none."""
    return info.run_id if info.run_id != "none" else None


def _metrics(name: str, fields: Mapping[str, object]) -> dict[str, float]:
    return {
        f"{name}/{key}": float(value)
        for key, value in fields.items()
        if isinstance(value, int | float) and key != "step"
    }


class MlflowReporter:
    """Follow a run with MLflow's client, which leaves the active run to the script.

    Args:
        experiment: where new runs go; None is MLflow's default.
        tracking_uri: the server or store; None is MLflow's own setting.
        required: whether the training is worth nothing without it.

    Attributes:
        run_id: MLflow's id of the run, once started.
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        tracking_uri: str | None = None,
        required: bool = True,
    ) -> None:
        self.required = required
        self.run_id = ""
        self._experiment = experiment
        self._uri = tracking_uri
        self._client: Any = None

    def start(self, info: Info) -> None:
        """Open the run of an earlier attempt again, or a new one."""
        from mlflow import MlflowClient  # type: ignore[import-not-found,unused-ignore]

        self._client = client = MlflowClient(self._uri)
        name = self._experiment or "Default"
        found = client.get_experiment_by_name(name)
        home = found.experiment_id if found else client.create_experiment(name)
        run_name = _run_name(info)
        query = f"tags.`dsup.run_id` = '{run_name}'"
        runs = client.search_runs([home], query, max_results=1) if run_name else []
        tags = {"dsup.run_id": run_name} if run_name else {}
        run = runs[0] if runs else client.create_run(home, tags=tags)
        self.run_id = run.info.run_id
        client.update_run(self.run_id, status="RUNNING")
        client.set_tag(self.run_id, "dsup.attempt", str(info.attempt))

    def event(self, name: str, fields: Mapping[str, object]) -> None:
        """Log numbers as metrics of their step, and all the rest as tags."""
        step = fields.get("step")
        at = int(step) if isinstance(step, int | float) else None
        metrics = _metrics(name, fields)
        for key, value in metrics.items():
            self._client.log_metric(self.run_id, key, value, step=at)
        for key, text in fields.items():
            if key != "step" and f"{name}/{key}" not in metrics:
                self._client.set_tag(self.run_id, f"{name}.{key}", str(text)[:5000])

    def finish(self, outcome: Outcome) -> None:
        """End the run as FINISHED, FAILED or KILLED."""
        tags = {
            "dsup.resumable": str(outcome.resumable).lower(),
            "dsup.reason": outcome.reason,
            "dsup.error": outcome.error or "",
        }
        for key, text in tags.items():
            self._client.set_tag(self.run_id, key, text)
        self._client.set_terminated(self.run_id, status=outcome.status)


class WandbReporter:
    """Follow a run with Weights & Biases.

    Args:
        required: whether the training is worth nothing without it.
        settings: more arguments for ``wandb.init``, such as project or mode.

    Attributes:
        run: what ``wandb.init`` returned, once started.
    """

    def __init__(self, *, required: bool = True, **settings: Any) -> None:  # noqa: ANN401
        self.required = required
        self.run: Any = None
        self._settings = settings
        self._by_hand = False

    def start(self, info: Info) -> None:
        """Open the run of an earlier attempt again, or a new one."""
        import wandb  # type: ignore[import-not-found,unused-ignore]

        name = _run_name(info)
        own = {"id": re.sub(r"[^\w-]", "-", name), "resume": "allow"} if name else {}
        self.run = wandb.init(**{**own, **self._settings})
        self.run.summary["dsup.attempt"] = info.attempt

    def event(self, name: str, fields: Mapping[str, object]) -> None:
        """Log the numbers, and put the rest into the summary."""
        stop = fields.get("kind"), fields.get("rank")
        self._by_hand |= name == "stop" and stop == ("user", None)
        metrics = _metrics(name, fields)
        step = fields.get("step")
        self.run.log(metrics, step=int(step) if isinstance(step, int) else None)
        for key, text in fields.items():
            if key != "step" and f"{name}/{key}" not in metrics:
                self.run.summary[f"{name}.{key}"] = str(text)

    def finish(self, outcome: Outcome) -> None:
        """End the run; one that was preempted goes back to its sweep's queue."""
        preempted = outcome.resumable and not self._by_hand
        code = {"FINISHED": 0, "FAILED": outcome.exit_code or 1}.get(outcome.status)
        if code is None:
            code = outcome.exit_code if preempted else _WANDB_INTERRUPTED
        if preempted:
            self.run.mark_preempting()
        self.run.finish(exit_code=code)


class JsonLinesReporter:
    """Append one JSON line an event to a file; attempts follow each other in it.

    Args:
        path: the file; it is made if it is not there.
        required: whether the training is worth nothing without it.
    """

    def __init__(self, path: str | os.PathLike[str], *, required: bool = True) -> None:
        self.required = required
        self._path = path

    def start(self, info: Info) -> None:
        """Note who begins, and in which attempt."""
        self.event("start", {"run_id": info.run_id, "attempt": info.attempt})

    def event(self, name: str, fields: Mapping[str, object]) -> None:
        """Append a line; what is no JSON is written as text."""
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        plain = {key: _plain(value) for key, value in fields.items()}
        line = json.dumps({"event": name, "at": at, **plain}, default=str)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def finish(self, outcome: Outcome) -> None:
        """Append the outcome."""
        self.event("finish", outcome._asdict())


def _plain(value: object) -> object:
    """Return a value as JSON can hold it: it has no word for nan or infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
