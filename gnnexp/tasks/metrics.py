"""Metrics over numpy arrays; exact, ties included."""

from __future__ import annotations

import numpy as np


def accuracy(prediction: np.ndarray, label: np.ndarray) -> float:
    """Share of `[n]` predictions that equal their labels; NaN without any."""
    return float(np.mean(prediction == label)) if label.size else float("nan")


def micro_f1(prediction: np.ndarray, label: np.ndarray) -> float:
    """2TP / (2TP + FP + FN) over all `[n, C]` decisions; NaN without any."""
    if not label.size:
        return float("nan")
    hits = int(np.sum(prediction & (label == 1)))
    wrong = int(np.sum(prediction != (label == 1)))
    return 2 * hits / (2 * hits + wrong) if hits + wrong else 1.0


def roc_auc(score: np.ndarray, label: np.ndarray) -> float:
    """Area under the ROC curve = P(score of a positive > of a negative), ties half; NaN with one class only."""
    positive = label == 1
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative:
        return float("nan")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(mean_rank[inverse][positive].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)
