"""What the panel says comes next is what the machine does then."""

from dsup.core import machine
from dsup.core.outcome import failure_of
from dsup.core.plan import plan_for
from dsup.core.state import Hang, Stage
from dsup.core.verdict import Verdict
from dsup.report.outlook import NO_JUDGE, after_verdict, outlook


def hung(job):
    """Return the state of an attempt that was ended for a hang of rank 1."""
    spec = job.spec._replace(policy=job.spec.policy._replace(max_restarts=0))
    state = machine.initial(spec)
    hang = Hang((1,), "frozen", 9.0)
    return state._replace(stage=Stage.TERMINATING, hang=hang)


def test_a_verdict_that_no_judge_gave_changes_no_plan(job):
    """A hang stays a hang where only wait statuses speak: 194, as the run ends with."""
    state = hung(job)
    verdict = Verdict(0, "unknown", (), "unknown", 9.0, "Unknown.", NO_JUDGE)

    said = outlook(after_verdict(state, verdict), 0.0, located=False)

    assert said == "no restart, exit 194: --max-restarts 0"
    assert plan_for(failure_of(state), state.spec.policy).code == 194


def test_a_verdict_of_the_judge_does(job):
    """Its cause decides, whatever ended the attempt."""
    verdict = Verdict(0, "nccl_network", (), "likely", 9.0, "Network.", "adapter")

    said = outlook(after_verdict(hung(job), verdict), 0.0, located=False)

    assert said == "no restart, exit 195: --max-restarts 0"
