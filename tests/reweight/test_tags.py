"""Tags and patterns of tags: closed forms, and that both see one weighted loss."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoise import Reweighter, ReweightWarning
from counterpoise.reweight import Tags

PATTERNS = {"p": ["en"], "q": ["code", "en"], "r": ["code"], "s": ["de"]}
SIZES = [30.0, 10.0, 40.0, 5.0]


def test_weights_and_losses_in_closed_form():
    tags = Tags(PATTERNS, SIZES)
    assert tags.tags == ("code", "de", "en")
    weights = tags.weights({"en": 0.4, "code": 0.5, "de": 0.1})
    expected = [0.4 * 30 / 40, 0.4 * 10 / 40 + 0.5 * 10 / 50, 0.5 * 40 / 50, 0.1]
    np.testing.assert_allclose(weights, expected)
    found = tags.losses({"p": 1.0, "q": 3.0, "r": 2.0, "s": 7.0})
    np.testing.assert_allclose(found.losses, [(10 * 3 + 40 * 2) / 50, 7.0, (30 + 10 * 3) / 40])
    assert found.counts is None
    assert found.errors is None


def test_counts_add_up_and_errors_in_squares():
    tags = Tags(PATTERNS, SIZES)
    found = tags.losses([1.0] * 4, [8, 4, 2, 1], [0.1, 0.2, 0.3, 0.4])
    assert found.counts.tolist() == [6, 1, 12]
    np.testing.assert_allclose(
        found.errors, [np.hypot(0.2 * 0.2, 0.8 * 0.3), 0.4, np.hypot(0.75 * 0.1, 0.25 * 0.2)]
    )


def test_a_pattern_without_tokens_is_left_out_of_its_tags():
    found = Tags(PATTERNS, SIZES).losses([1.0, np.nan, 2.0, np.nan], [1, 0, 1, 0], [0.1] * 4)
    np.testing.assert_array_equal(found.losses, [2.0, np.nan, 1.0])
    assert found.counts.tolist() == [1, 0, 1]
    np.testing.assert_allclose(found.errors, [0.1, np.nan, 0.1])


def test_a_tag_is_unknown_if_a_loss_of_its_patterns_is():
    """A mean over the other patterns would be the loss of something else."""
    tags = Tags({"e": ["en"], "ce": ["code", "en"], "c": ["code"], "d": ["de"]}, [100] * 4)
    found = tags.losses([1.0, np.nan, 2.0, 3.0], [1, 1, 1, 1], [0.1] * 4)
    assert tags.tags == ("code", "de", "en")
    np.testing.assert_array_equal(found.losses, [np.nan, 3.0, np.nan])
    np.testing.assert_array_equal(found.errors, [np.nan, 0.1, np.nan])
    ours = Reweighter(tags.tags)
    with pytest.warns(ReweightWarning, match="'code', 'en'"):
        ours.update(found.losses, found.counts, errors=found.errors)


def test_an_unknown_error_concerns_its_own_tags_alone():
    tags = Tags({"p1": ["en"], "p2": ["de"], "p3": ["code"]}, [10, 10, 1])
    found = tags.losses([1.0, 2.0, 3.0], errors=[0.1, 0.2, np.nan], pieces=[7, 9, 1])
    np.testing.assert_array_equal(found.errors, [np.nan, 0.2, 0.1])
    np.testing.assert_allclose(found.pieces[1:], [9, 7])


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.data())
def test_the_weighted_loss_is_one_for_tags_and_patterns(data):
    T, P = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    has = rng.random((P, T)) < 0.4
    has[np.arange(P), rng.integers(T, size=P)] = True
    patterns = {p: [f"t{t}" for t in np.flatnonzero(has[p])] for p in range(P)}
    tags = Tags(patterns, rng.integers(1, 100, size=P))
    losses, weights = rng.normal(size=P), rng.dirichlet(np.ones(len(tags.tags)))
    ours = tags.weights(weights)
    assert ours.sum() == pytest.approx(1.0)
    assert ours @ losses == pytest.approx(weights @ tags.losses(losses).losses, abs=1e-9)


def test_documents_with_one_tag_each_are_as_without_tags():
    tags = Tags({"a": ["x"], "b": "y"}, [5, 1])
    np.testing.assert_allclose(tags.weights([0.3, 0.7]), [0.3, 0.7])
    np.testing.assert_array_equal(tags.losses([1.0, 2.0]).losses, [1.0, 2.0])


def test_names_of_domains_say_the_tags():
    tags = Tags.of_names(["web-code+en", "web-en"], [1, 3], prefix="web-")
    assert tags.tags == ("code", "en")
    np.testing.assert_allclose(tags.shares, [[1.0, 0.25], [0.0, 0.75]])
    assert repr(tags) == "Tags(2 patterns of 2 tags)"
    with pytest.raises(ValueError, match="'books' does not begin with it"):
        Tags.of_names(["web-en", "books"], [1, 3], prefix="web-")
    with pytest.raises(ValueError, match=r"'c\+\+' has an empty tag"):
        Tags.of_names(["c++", "en"], [1, 3])


@pytest.mark.parametrize(
    ("patterns", "sizes", "message"),
    [
        ({"a": []}, [1], "the pattern 'a' has no tag"),
        ({"a": ["x", ""]}, [1], "the pattern 'a' has an empty tag"),
        ({"a": ["x"], "b": ["y"]}, [1, 0], "the tag 'y' has no tokens; leave it out"),
        ({"a": ["x"]}, [1, 2], "one number for each of 1 domains"),
        ({"a": ["x"]}, [-1], "counts must be finite numbers >= 0"),
    ],
)
def test_patterns_that_cannot_be_are_refused(patterns, sizes, message):
    with pytest.raises(ValueError, match=message):
        Tags(patterns, sizes)
