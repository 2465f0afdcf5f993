"""Study 1, what is shown: tables and a picture."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from problems_known import ACTIVATIONS, LAWS
from report import COLOURS, pyplot, save_figure, table
from sides import Sides

TITLE = "The theorem's inequality along runs"
FLOOR = 1e-12  # ratios below this are drawn here: the run ended on its target


def summary(lines: list[dict[str, Any]], laws: list[dict[str, Any]]) -> str:
    out = [f"## {TITLE}\n"]
    head = ("steps", "labels", "runs x targets", "iterations", "premise holds", "paper's broken",
            "of these with premise", "ours broken", "signed broken", "median left/paper",
            "median left/ours", "median left/signed", "bound silent", "slack > 0 at some n",
            "slack > 0 at the end")  # fmt: skip
    body = []
    for schedule, labels in itertools.product(
        ("adaptive", "paper"), ("noise", "adversary", "conflict")
    ):
        part = [r for r in lines if r["schedule"] == schedule and r["labels"] == labels]
        if not part:
            continue
        spoke = [r for r in part if r["ours_ratio"] > 0]
        body.append(
            (schedule, labels, len(part), sum(r["iterations"] for r in part),
             sum(r["premise"] for r in part), sum(len(r["paper_broken"]) > 0 for r in part),
             sum(len(r["paper_broken"]) > 0 and r["premise"] for r in part),
             sum(len(r["ours_broken"]) > 0 for r in part),
             sum(len(r["signed_broken"]) > 0 for r in part),
             float(np.median([r["paper_ratio"] for r in part])),
             float(np.median([r["ours_ratio"] for r in spoke])) if spoke else None,
             float(np.median([r["signed_ratio"] for r in spoke])) if spoke else None,
             sum(r["silent"] > 0 for r in part), sum(r["slack_positive"] > 0 for r in part),
             sum(r["slack_ends_positive"] for r in part))
        )  # fmt: skip
    out.append(table(head, body))
    body = []
    usual = [r for r in lines if r["schedule"] == "adaptive" and r["labels"] != "conflict"]
    for activation, name in itertools.product(ACTIVATIONS, ("kl", "chi2")):
        part = [r for r in usual if (r["activation"], r["divergence"]) == (activation, name)
                and r["target"] == "planted"]  # fmt: skip
        if part:
            for nu in (0.1, 0.0):
                at = [r for r in part if r["nu"] == nu]
                some = sum(r["slack_positive"] > 0 for r in at)
                ends = sum(r["slack_ends_positive"] for r in at)
                body.append((activation, name, nu, len(at), some, ends))
    out.append(table(("activation", "divergence", "nu", "adaptive runs", "slack > 0 at some n",
                      "slack > 0 at the end"), [b for b in body if b[4]]))  # fmt: skip
    body = []
    known = [r for r in lines if r["labels"] != "conflict"]
    kinds = {law: [r for r in known if r["law"] == law] for law in LAWS}
    kinds["identity"] = [r for r in known if r["activation"] == "identity"]
    kinds["not identity"] = [r for r in known if r["activation"] != "identity"]
    for kind, part in kinds.items():
        proofs = [r["certificate"] for r in part if "certificate" in r]
        if not part:
            continue
        finite = [p for p in proofs if np.isfinite(p["theorem_bound"])]
        body.append(
            (kind, len(proofs), len(finite), sum(p["last_broken"] for p in proofs),
             sum(p["returned_broken"] for p in proofs),
             float(np.median([p["last"] / p["theorem_bound"] for p in finite])) if finite else None,
             float(np.median([p["theorem_bound"] for p in finite])) if finite else None,
             float(np.median([p["last"] for p in proofs])),
             float(np.median([p["returned_bound"] for p in proofs])),
             float(np.median([p["returned"] for p in proofs])),
             max(r["reach"] for r in part))
        )  # fmt: skip
    out.append(
        table(("features or neuron", "fits", "finite bound", "last iterate outside",
               "returned outside", "median distance/bound", "median bound", "median distance",
               "median bound, returned", "median distance, returned",
               "largest norm/target's"), body)
    )  # fmt: skip
    keys = ("law", "second_moment", "fourth_moment", "tail_B", "c1_formula", "c1_measured",
            "C3_formula", "C3_measured")  # fmt: skip
    out.append(table(keys, [[r[k] for k in keys] for r in laws]))
    return "\n".join(out)


def figure(path: Path, lines: list[dict[str, Any]], pictured: dict[str, Sides]) -> None:
    plt = pyplot()
    fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for ax, (title, found) in zip(axes, pictured.items(), strict=False):
        t = np.arange(1, len(found.left) + 1)
        for key, label, colour, style in (
            ("paper", "right side, the paper's", COLOURS[4], "--"),
            ("ours", "right side, ours", COLOURS[2], "-."),
            ("left", "left side", COLOURS[0], "-"),
        ):
            ax.loglog(t, getattr(found, key), style, color=colour, label=label)
        ax.set(title=title, xlabel="iteration")
    axes[0].set_ylabel("value, ReLU, KL, nu = 0.1")
    axes[0].legend(frameon=False)
    ax = axes[2]
    rng = np.random.default_rng(0)
    kinds = itertools.product(("adaptive", "paper"), ("paper", "ours"))
    for i, (schedule, key) in enumerate(kinds):
        part = [r for r in lines if r["schedule"] == schedule]
        values = np.array([r[f"{key}_ratio"] for r in part])
        values = np.maximum(values[values > 0], FLOOR)
        colour = COLOURS[4] if key == "paper" else COLOURS[2]
        ax.scatter(i + 0.5 * (rng.random(len(values)) - 0.5), values, s=4, alpha=0.35, color=colour)
    ax.axhline(1.0, color=COLOURS[7], lw=1)
    ax.set_xticks(range(4), ["adaptive\npaper's", "adaptive\nours", "printed\npaper's",
                             "printed\nours"])  # fmt: skip
    ax.set(yscale="log", title="left / right at the end, every run")
    save_figure(fig, path)
