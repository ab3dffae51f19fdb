"""Who could have put something where state is looked for, or read what is kept there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appmaster.code.store import BundleStore
from standby.errors import Unavailable
from standby.kernel.store.directories import check_owners, make_private, tighten

USER, OTHER = 54_321, 12_345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return where a task's state would lie: below directories of root's and of the user's own."""
    made = tmp_path / "disk" / "standfast" / "c" / "host"
    made.mkdir(parents=True)
    for each in (made, *made.parents[:3]):
        each.chmod(0o755)
    return made


def mode_of(directory: Path) -> int:
    return directory.stat().st_mode & 0o7777


@as_root
@pytest.mark.parametrize("above", [0, 1, 2])
def test_directory_of_another_user_is_refused_wherever_it_is_above(place: Path, above: int) -> None:
    foreign = (place, *place.parents)[above]
    os.chown(foreign, OTHER, -1)
    with pytest.raises(Unavailable, match=rf"{foreign} belongs to another user .* job\.state\.dir"):
        check_owners(place, USER)
    os.chown(foreign, USER, -1)
    check_owners(place, USER)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
def test_directory_that_others_may_write_to_is_refused(place: Path, mode: int) -> None:
    os.chown(place.parent, -1, OTHER if os.geteuid() == 0 else -1)
    if mode == 0o775 and os.geteuid():
        pytest.skip("only root can give a directory to a group that is not its own")
    place.parent.chmod(mode)
    with pytest.raises(Unavailable, match=rf"{place.parent} can be written by other users .*chmod go-w"):
        check_owners(place)
    with pytest.raises(Unavailable, match="can be written by other users"):
        make_private(place / "job")
    # What was put in while it was so stays in: the mode alone mends nothing.
    assert not tighten(place.parent)
    assert mode_of(place.parent) == mode


def test_sticky_directory_is_as_good_as_one_s_own(place: Path) -> None:
    place.parent.chmod(0o1777)
    check_owners(place)
    make_private(place / "job")
    assert mode_of(place / "job") == 0o700


@as_root
def test_link_is_followed_to_where_state_would_really_lie(tmp_path: Path, place: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place.parents[1])
    check_owners(link / "c", USER)
    os.chown(place.parents[2], OTHER, -1)
    with pytest.raises(Unavailable, match=r"/disk belongs to another user"):
        check_owners(link / "c", USER)
    os.chown(place.parents[2], 0, -1)
    os.lchown(link, OTHER, -1)
    with pytest.raises(Unavailable, match=r"/link belongs to another user"):
        check_owners(link / "c", USER)


def test_directory_that_others_may_read_is_made_private(place: Path) -> None:
    assert tighten(place)
    assert mode_of(place) == 0o700
    assert not tighten(place)


@as_root
def test_what_is_not_ours_keeps_its_mode(place: Path) -> None:
    os.chown(place, OTHER, -1)
    assert not tighten(place)
    assert mode_of(place) == 0o755


def test_bundles_are_kept_where_no_other_user_can_put_any(place: Path) -> None:
    before = os.umask(0)
    try:
        BundleStore(place / "made", is_on_host=True)
    finally:
        os.umask(before)
    assert mode_of(place / "made") == 0o700
    place.chmod(0o777)
    with pytest.raises(Unavailable, match=r"can be written by other users .*code\.directory"):
        BundleStore(place / "more", is_on_host=True)
