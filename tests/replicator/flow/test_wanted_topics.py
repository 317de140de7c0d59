"""Which topics a flow copies where new ones are ignored."""

from __future__ import annotations

from tests.replicator.flow.fakes import claim, run_before, setup_of
from tests.replicator.flow.test_setup import plane


def test_only_the_topics_of_the_first_listing_are_wanted_where_new_ones_are_ignored() -> None:
    made = plane(settings="new_topics: ignore")
    setup = setup_of(made)
    listing = setup.wanted(setup.begin(), {"t1": 2})
    assert list(listing.topics) == ["t1"]


def test_topics_that_are_copied_already_are_wanted_where_new_ones_are_ignored_from_now_on() -> None:
    """Without a route their lanes would say that the source topic was deleted."""
    made = run_before(plane("t1", "t2", "t3", settings="new_topics: ignore"), claim("t2"))
    setup = setup_of(made)
    assert set(setup.wanted(setup.begin(), {"t1": 2}).topics) == {"t1", "t2"}
