"""Metrics of numpy arrays. They are exact, also with ties."""

from __future__ import annotations

import numpy as np


def accuracy(prediction: np.ndarray, label: np.ndarray) -> float:
    """Share of `[n]` predictions that equal their labels; NaN without labels."""
    return float(np.mean(prediction == label)) if label.size else float("nan")


def micro_f1(prediction: np.ndarray, label: np.ndarray) -> float:
    """2TP / (2TP + FP + FN) over all `[n, C]` decisions; NaN without labels."""
    if not label.size:
        return float("nan")
    hits = int(np.sum(prediction & (label == 1)))
    wrong = int(np.sum(prediction != (label == 1)))
    return 2 * hits / (2 * hits + wrong) if hits + wrong else 1.0


def macro_f1(prediction: np.ndarray, label: np.ndarray, num_classes: int) -> float:
    """Mean over classes of 2TP / (2TP + FP + FN), from `[n]` predictions and labels; NaN without labels.

    A class that occurs neither in predictions nor in labels has no F1, and the mean ignores it, as in scikit-learn.
    """
    if not label.size:
        return float("nan")
    true, predicted = (np.bincount(of, minlength=num_classes) for of in (label, prediction))
    hits = np.bincount(label[prediction == label], minlength=num_classes)
    occurs = true + predicted > 0
    return float(np.mean(2 * hits[occurs] / (true + predicted)[occurs]))


def roc_auc(score: np.ndarray, label: np.ndarray) -> float:
    """Area under the ROC curve: P(a positive scores higher than a negative). Ties count half; NaN with one class."""
    positive = label == 1
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative:
        return float("nan")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(mean_rank[inverse][positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def errors_of_numbers(prediction: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """`mse`, `mae` and `r2` (1 - squared errors / squared distances from the mean label) of `[n]` float64 numbers.

    Values do not depend on the order of vertices. They are NaN without labels, and `r2` is NaN if all labels are equal.
    """
    if not label.size:
        return dict.fromkeys(("mse", "mae", "r2"), float("nan"))
    error = np.sort(np.abs(prediction - label))  # sums of sorted numbers are the same for any number of ranks
    squares = float(np.sum(error**2))
    distance = np.sort(np.abs(label - np.mean(np.sort(label))))
    total = float(np.sum(distance**2))
    return {
        "mse": squares / label.size,
        "mae": float(np.mean(error)),
        "r2": 1 - squares / total if total else float("nan"),
    }


def mean_reciprocal_rank(rank: np.ndarray) -> float:
    """Mean of 1 / rank of `[n]` ranks, bit-identical for any order of ranks; NaN without ranks."""
    return float(np.mean(1 / np.sort(rank))) if rank.size else float("nan")


def hits_of_ranks(rank: np.ndarray, k: int) -> float:
    """Share of `[n]` ranks that are at most `k`; NaN without ranks."""
    return float(np.mean(rank <= k)) if rank.size else float("nan")


def hits_over_negatives(positive: np.ndarray, negative: np.ndarray, k: int) -> float:
    """OGB's Hits@K: share of `[n]` positives that score above the `k`-th highest of `[m]` negatives; 1 if m < k.

    NaN without positives.
    """
    if not positive.size:
        return float("nan")
    if negative.size < k:
        return 1.0
    bound = np.partition(negative, negative.size - k)[negative.size - k]
    return float(np.mean(positive > bound))
