"""A rule about GPUs by NVML's word: what it says after a death, and did not before.

Source: https://docs.nvidia.com/deploy/nvml-api/; NVML tells no time, and of Xid 79, 119
and 120 no event, so the kernel's word goes before it.
"""

from __future__ import annotations

from dsup.attribution import hardware_proof
from dsup.attribution.devices import (
    Scene,
    failed,
    failed_since,
    is_open,
    named,
    scene_of,
    status_of,
    tellers,
    told_of_device,
    unfailed,
    users,
)
from dsup.attribution.timeline import Timeline
from dsup.attribution.wording import one_line, sentence
from dsup.core.verdict import Certainty, Verdict
from dsup.facts.hardware import GpuHealth


def gpu_reported_bad(timeline: Timeline) -> Verdict | None:
    """Name the ranks whose GPU is bad by NVML's word, and was not when they started.

    Symptom: NVML calls it lost, wanting a reset, or counts new uncorrectable memory
    errors; the kernel log is silent or cannot be read. NVML does not say when, so it is
    proven only where the ranks' own words fit or none of them had any, and says nothing
    where another rank failed of something of its own. A GPU that no rank uses, or that
    gives no answer, is no cause.
    """
    scene = scene_of(timeline)
    bad = [health for health in timeline.gpu_health if health.state == "bad"]
    found = [(health, users(timeline, health.gpu.pci)) for health in bad]
    ours = [(health, ranks) for health, ranks in found if ranks or not timeline.gpus]
    chosen = [row for row in ours if _is_hit(scene, row[1])]
    if not chosen:
        return None
    ranks = tuple(sorted({rank for _, users_ in chosen for rank in users_}))
    guessed = ranks or tellers(scene)
    sure = bool(ranks) and all(told_of_device(timeline, a) for a in scene.first)
    certainty: Certainty = "proven" if sure else "likely"
    moments = [h.at_s for h, _ in chosen if h.at_s is not None]
    since_s = failed_since(scene, guessed)
    health = chosen[0][0]
    rest = "" if sure else ", which is likely the cause"
    whose = named(timeline, chosen[0][1], health.gpu.pci)
    evidence = (
        *(line for h, users_ in chosen for line in hardware_proof.of_health(h, users_)),
        *hardware_proof.of_ranks(timeline, guessed),
    )
    return Verdict(
        timeline.attempt,
        "gpu_hardware",
        guessed,
        certainty,
        min((*moments, since_s)),
        sentence(f"{whose[:1].upper()}{whose[1:]} {_told(health)}{rest}"),
        "gpu_reported_bad",
        evidence,
        status=status_of(scene, guessed),
        signature=f"NVML {health.problem}",
    )


def _is_hit(scene: Scene, ranks: tuple[int, ...]) -> bool:
    """Return whether a GPU's state may tell why the attempt failed."""
    if not ranks:
        return is_open(scene)
    first = scene.first
    fits = all(a.rank in ranks or told_of_device(scene.timeline, a) for a in first)
    killed = any(a.rank in ranks and a.sort == "signal" for a in first)
    return fits and not killed and bool(failed(scene)) and not unfailed(scene, ranks)


def _told(health: GpuHealth) -> str:
    """Return what NVML said, without the name of the GPU before it."""
    gpu = health.gpu
    text = health.text.removeprefix(f"GPU {gpu.number} ").removeprefix(f"({gpu.pci}) ")
    return one_line(text or f"is bad by NVML's word: {health.problem}", 160)
