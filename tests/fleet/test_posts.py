"""Places of replicas, and the files that belong to them."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.fleet.crew import Post

_GROUPS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}", fullmatch=True)
_POSTS = st.tuples(_GROUPS, st.integers(0, 255))


@given(st.sets(_POSTS, min_size=2, max_size=20))
def test_no_two_posts_share_a_file(places: set[tuple[str, int]]) -> None:
    names = {_post(group, number).file_name for group, number in places}
    assert len(names) == len(places)


@given(_POSTS)
def test_file_names_are_short_and_plain(place: tuple[str, int]) -> None:
    name = _post(*place).file_name
    assert len(name) <= 41
    assert name.replace("-", "").isalnum()


def test_groups_that_differ_by_a_sign_alone_have_files_of_their_own() -> None:
    names = {_post(group, 0).file_name for group in ("a.b", "a-b", "a/b", "a:b", "a/B")}
    assert len(names) == 5


def test_a_usual_name_stays_readable() -> None:
    assert _post("main", 1).file_name == "main-1"


def _post(group: str, number: int) -> Post:
    return Post(f"{group}/{number}", group)
