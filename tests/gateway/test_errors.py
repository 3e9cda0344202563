"""Every error of the tree has an answer, and no answer tells too much."""

import pytest

from steelyard.contract.errors import (
    InvalidRequest,
    RetryLater,
    SteelyardError,
    error_classes,
)
from steelyard.gateway.errors import explain, statuses

SECRET = "/srv/models/secret.gguf at unix:/run/engine.sock 0x7f001122"


@pytest.mark.parametrize("cls", error_classes().values(), ids=lambda cls: cls.__name__)
def test_every_class_has_a_row_of_its_own(cls: type[SteelyardError]) -> None:
    assert cls in statuses()


@pytest.mark.parametrize("cls", error_classes().values(), ids=lambda cls: cls.__name__)
def test_a_class_says_the_same_in_http_as_in_the_tree(cls: type[SteelyardError]) -> None:
    refusal = explain(cls(SECRET, param="x"))
    assert refusal.code == cls.code
    may_retry = refusal.status in (429, 500, 502, 503, 504)
    assert may_retry or cls.retry.value == "never"
    if issubclass(cls, InvalidRequest):
        assert 400 <= refusal.status < 500
    if refusal.status >= 500 and not issubclass(cls, RetryLater):
        assert SECRET not in refusal.message
        assert refusal.param is None
    if refusal.status in (429, 503):
        assert dict(refusal.headers)["retry-after"].isdigit()


def test_message_and_fix_become_sentences() -> None:
    assert explain(InvalidRequest("n is 0", fix="Use 1.")).message == "n is 0. Use 1."
    assert explain(InvalidRequest("Done!")).message == "Done!"
