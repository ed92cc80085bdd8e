"""A verdict: what a rule leaves out means nothing."""

from dsup.core.verdict import Evidence, Verdict


def test_what_a_rule_leaves_out_accuses_nobody():
    """No evidence, no victim, no advice, and an end that is nobody's: exit code 1."""
    verdict = Verdict(0, "unknown", (), "unknown", 5.0, "No cause.", "unknown")

    rest = verdict[Verdict._fields.index("evidence") :]
    assert rest == ((), (), (), (), None, 1, "", (), ())


def test_evidence_is_nobodys_and_without_a_time_unless_it_says_so():
    """A counter of the node belongs to no rank, and nothing tells when it rose."""
    evidence = Evidence("counters", "oom_kill 0 -> 1")

    assert (evidence.rank, evidence.at_s, evidence.file, evidence.line) == (
        *(None, None),
        *("", None),
    )
