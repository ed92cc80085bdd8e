"""Whatever the machine can order, somebody carries out."""

import inspect
import typing

import pytest

from dsup import orders
from dsup.core import commands as cmd


@pytest.mark.parametrize("order", typing.get_args(cmd.Command))
def test_every_order_has_a_row_of_its_own(order):
    """The row's function says that it takes such an order, and no other."""
    function = orders.CARRIED_OUT_BY[order]

    _, taken = inspect.signature(function).parameters.values()

    assert f"cmd.{order.__name__}" in taken.annotation.split(" | ")
