"""Writes the files of this folder: 178 wines (scikit-learn, UCI), each linked to the five most similar wines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

NEIGHBOURS = 5


def write(folder: Path) -> None:
    """Write `edges.tsv` (source, destination), `features.csv` (a row per vertex), `labels.txt` (a class per vertex)."""
    wines = load_wine()
    features = ((wines.data - wines.data.mean(0)) / wines.data.std(0)).round(3)
    distance = ((features[:, None] - features[None]) ** 2).sum(2).round(6)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :NEIGHBOURS]
    edges = np.stack([nearest.ravel(), np.repeat(np.arange(len(features)), NEIGHBOURS)], 1)
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "edges.tsv", edges, fmt="%d", delimiter="\t", header="source\tdestination")
    np.savetxt(folder / "features.csv", features, fmt="%.3f", delimiter=",")
    np.savetxt(folder / "labels.txt", wines.target, fmt="%d")


if __name__ == "__main__":
    write(Path(__file__).resolve().parent)
