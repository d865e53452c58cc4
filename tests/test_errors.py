"""The errors of the library, and what it says when an optional package is missing."""

import json
import sys

import pytest

from ultralif.errors import InputError, JobError, check_choice, need


def test_bad_input_is_a_value_error_and_a_failed_job_is_not() -> None:
    assert issubclass(InputError, ValueError) and issubclass(JobError, RuntimeError)
    assert not issubclass(JobError, ValueError)


def test_a_choice() -> None:
    check_choice("mode", "soft", ("soft", "hard"))
    with pytest.raises(InputError, match=r"^mode must be one of soft, hard, got 'loud'$"):
        check_choice("mode", "loud", ("soft", "hard"))


def test_a_package_that_is_there() -> None:
    assert need("json", "demo") is json
    assert need("xml.dom", "demo") is sys.modules["xml.dom"]


def test_a_package_that_is_missing() -> None:
    with pytest.raises(JobError) as error:
        need("no_such_package.inner", "plot")
    assert "no_such_package;" in str(error.value)
    assert "pip install 'ultralif[plot]'" in str(error.value)
