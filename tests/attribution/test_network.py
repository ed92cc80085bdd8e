"""Network adapters: whose own port failed."""

import pytest

from dsup.facts.hardware import PortChange

DOWN = PortChange("mlx5_2", 1, "state", "4: ACTIVE", "1: DOWN", bad=True)
WORN = PortChange("mlx5_2", 1, "symbol_error", "3", "40", bad=False)
EVENT = "NET/IB : Got async event : port error on mlx5_2:1"


def test_a_port_that_went_down_while_all_lost_each_other(incident):
    """The ranks of the node share its ports, and none says whose it was."""
    story = incident().lost(0, 1, 2, 3).but(ports=(DOWN,))
    verdict = story.verdict

    assert story.answer == ("adapter_failed", "nccl_network", (0, 1, 2, 3), "likely")
    assert "port 1 of mlx5_2 failed (state 4: ACTIVE -> 1: DOWN)" in verdict.summary
    assert verdict.evidence[0].source == "sysfs"


def test_the_rank_that_names_the_adapter(incident):
    """NCCL tells of an event of the rank's own adapter, and sysfs agrees."""
    story = incident().lost(0, 1, 3).ended(2, 1, 10.2).said(2, EVENT)

    assert story.but(ports=(DOWN,)).answer[2:] == ((2,), "proven")


def test_an_event_that_nothing_else_shows_is_likely(incident):
    """The port may be up again when it is looked at."""
    story = incident().lost(0, 1, 3).raised(2, "RuntimeError", EVENT, 10.2)

    assert story.answer == ("adapter_failed", "nccl_network", (2,), "likely")


def test_a_driver_s_line(incident):
    """The adapter's firmware died."""
    text = "mlx5_core 0000:5e:00.0: device's health compromised"
    story = incident().lost(0, 1, 2, 3).kernel("ib_link", None, 9.0, text=text)

    assert story.answer[0] == "adapter_failed"
    assert "health compromised" in story.verdict.summary


@pytest.mark.parametrize(
    "text", ["mlx5_core ens6: Link up", "mlx5_5: Port: 1 Link ACTIVE"]
)
def test_a_link_that_comes_back_is_no_cause(incident, text):
    """Such a line tells the end of a trouble, not a trouble."""
    story = incident().lost(0, 1, 2, 3).kernel("ib_link", None, 9.0, text=text)

    assert story.answer[0] == "only_victims"


def test_a_worn_cable_is_no_cause_but_worth_reading(incident):
    """Symbol errors rise on good links too."""
    verdict = incident().lost(0, 1, 2, 3).but(ports=(WORN,)).verdict

    assert verdict.rule == "only_victims"
    assert any("symbol_error 3 -> 40" in line.text for line in verdict.evidence)


def test_a_rank_s_own_exception_goes_before_a_port(incident):
    """Ports go down on nodes whose failures they do not explain."""
    story = incident().raised(1, "ValueError", "no").lost(0, 2, 3).but(ports=(DOWN,))

    assert story.answer[:3] == ("raised", "python_exception", (1,))
