"""What a console is good for, as far as the environment tells."""

import pytest

from dsup.core.appearance import speaks_unicode


@pytest.mark.parametrize(
    ("environment", "speaks"),
    [
        pytest.param({}, True, id="a service without a locale"),
        pytest.param({"LANG": "en_US.UTF-8"}, True, id="a locale in UTF-8"),
        pytest.param({"LANG": "C.utf8"}, True, id="the plain one in UTF-8"),
        pytest.param({"LANG": "C"}, False, id="the plain one"),
        pytest.param({"LANG": "de_DE.ISO-8859-1"}, False, id="another code"),
        pytest.param({"LC_ALL": "C", "LANG": "C.UTF-8"}, False, id="LC_ALL wins"),
        pytest.param({"LC_ALL": "", "LANG": "C.UTF-8"}, True, id="empty is unset"),
    ],
)
def test_whether_more_than_ascii_is_shown(environment, speaks):
    """Only a locale that says otherwise takes the rules and dots away."""
    assert speaks_unicode(environment) is speaks
