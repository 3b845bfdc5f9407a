"""Metrics against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

from gnnexp.tasks.metrics import accuracy, macro_f1, micro_f1, roc_auc


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=60))
def test_roc_auc_with_ties(pairs):
    score = np.array([s for s, _ in pairs], float)
    label = np.array([int(b) for _, b in pairs])
    if len(set(label.tolist())) == 1:
        assert np.isnan(roc_auc(score, label))
    else:
        assert roc_auc(score, label) == pytest.approx(roc_auc_score(label, score))


@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_micro_f1(num_rows, num_classes, seed):
    generator = np.random.default_rng(seed)
    prediction = generator.random((num_rows, num_classes)) < 0.5
    label = (generator.random((num_rows, num_classes)) < 0.5).astype(np.int8)
    expected = f1_score(label.ravel(), prediction.ravel(), zero_division=1.0)
    assert micro_f1(prediction, label) == pytest.approx(expected)


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_macro_f1(num_rows, num_classes, seed):
    """Classes that nobody has or predicts too."""
    generator = np.random.default_rng(seed)
    prediction, label = generator.integers(0, num_classes, (2, num_rows))
    assert macro_f1(prediction, label, num_classes) == pytest.approx(f1_score(label, prediction, average="macro"))


def test_macro_f1_of_nothing():
    nothing = np.empty(0, np.int64)
    assert np.isnan(macro_f1(nothing, nothing, 3))


def test_accuracy():
    assert accuracy(np.array([1, 2, 3]), np.array([1, 0, 3])) == pytest.approx(2 / 3)
    assert np.isnan(accuracy(np.empty(0), np.empty(0)))
