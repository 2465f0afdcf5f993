"""What mixing and reweighting cost beside the model that is trained.

    python benchmarks/mixing.py [--tokens 1000] [--domains 1000]

1. Tokens a second that a small LLaMA (1.3 M parameters, batch 8 x 256) consumes in training.
2. Tokens a second that a `MixtureLoader` gives, from corpora of 1 to `--tokens` million tokens.
3. Microseconds of every piece of reweighting, as a share of a training step: following the draws,
   an update of the weights with its change of the mixture, and `GroupDROLoss` beside a plain mean.
4. The same pieces with 6 and with `--domains` domains: the update, draws, a change of the mixture,
   what a log and a checkpoint hold.

Best of several runs, in alternation where two are compared; everything runs once before the clock.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from counterpoise import Reweighter
from counterpoise.lm import MixtureDataset, Steering, write_tokens
from counterpoise.torch import GroupDROLoss

SHARES = {"cc": 0.5, "c4": 0.25, "github": 0.1, "wiki": 0.08, "arxiv": 0.05, "stackexchange": 0.02}
LENGTH, BATCH, VOCAB = 256, 8, 2048


def write_corpus(folder: Path, tokens: int) -> Path:
    """Random tokens."""
    rng = np.random.default_rng(0)

    def random(count: int):
        for first in range(0, count, 1 << 24):
            yield rng.integers(1, VOCAB, min(count - first, 1 << 24), dtype=np.uint16)

    found = {name: random(int(share * tokens)) for name, share in SHARES.items()}
    write_tokens(found, folder, vocab_size=VOCAB, end=0)
    return folder


def best(work, repeats: int = 5) -> float:
    """Least seconds of several runs."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def training_step():
    """A function that does one step of training on a given batch, and the model's size."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=128, intermediate_size=352, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=LENGTH,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch):
        model(input_ids=batch["input_ids"], labels=batch["labels"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, sum(p.numel() for p in model.parameters())


def loader_speed(folder: Path, workers: int, batches: int = 400) -> float:
    """Tokens a second, weights changed every 50 batches."""
    mixture = MixtureDataset(folder, LENGTH)
    batch_of = iter(mixture.loader(BATCH, num_workers=workers))
    weights = mixture.weights
    for _ in range(20):
        next(batch_of)
    start = time.perf_counter()
    for number in range(batches):
        next(batch_of)
        if number % 50 == 0:
            mixture.set_weights(weights)
    return batches * BATCH * LENGTH / (time.perf_counter() - start)


def pieces(folder: Path) -> dict[str, float]:
    """Seconds of each piece of reweighting."""
    mixture = MixtureDataset(folder, LENGTH, batch_size=BATCH)
    steering = Steering(Reweighter(mixture.domains, start=mixture.weights), mixture)
    losses = dict(zip(SHARES, np.linspace(2.0, 3.0, len(SHARES)).tolist(), strict=True))
    number = iter(range(1, 10**9))

    def follow():
        for _ in range(200):
            mixture.count_batch()

    def update():
        for _ in range(200):
            steering.observe(losses, step=next(number))

    return {"follow": best(follow) / 200, "update": best(update) / 200}


def many_domains(folder: Path, count: int) -> dict[str, float]:
    """Seconds and bytes of every piece of steering a mixture of many domains."""
    rng = np.random.default_rng(0)
    sizes = (10**7 * rng.dirichlet(np.full(count, 2.0))).astype(int) + 4 * LENGTH
    tokens = {
        f"cluster-{k}": [rng.integers(1, VOCAB, n, dtype=np.uint16)] for k, n in enumerate(sizes)
    }
    write_tokens(tokens, folder, vocab_size=VOCAB, end=0)
    losses, errors, counts = rng.normal(3.0, 0.3, count), np.full(count, 0.01), np.full(count, 1e4)
    begin = time.perf_counter()
    mixture = MixtureDataset(folder, LENGTH, batch_size=BATCH)
    found = {"open, first": time.perf_counter() - begin}
    found["open"] = best(lambda: MixtureDataset(folder, LENGTH, batch_size=BATCH), 2)
    reweighter = Reweighter(mixture.domains, "adaptive", start=mixture.weights)
    number = iter(range(1, 10**9))

    def steer(**options):
        steering = Steering(reweighter, mixture, **options)
        return lambda: steering.observe(losses, counts, next(number), errors=errors)

    weights = mixture.weights
    found["update"] = best(lambda: reweighter.update(losses, counts, errors=errors))
    found["set_weights"] = best(lambda: mixture.set_weights(weights))
    found["observe"] = best(steer())
    found["observe, variance"] = best(steer(sampling="variance"))
    log = folder / "run.jsonl"
    found["observe with a log"] = best(steer(logs=log))
    found["log bytes"] = len(log.read_bytes().splitlines()[-1])
    found["observe with TensorBoard"] = best(steer(logs=folder / "board"), 2)
    mixture = MixtureDataset(folder, LENGTH, batch_size=BATCH)

    def follow():
        for _ in range(200):
            mixture.count_batch()

    found["follow"] = best(follow) / 200
    steering = Steering(reweighter, mixture)
    found["state"] = best(lambda: json.dumps(steering.state_dict()))
    state = steering.state_dict()
    found["state bytes"] = len(json.dumps(state))
    found["load"] = best(lambda: steering.load_state_dict(state))
    batches = iter(mixture.loader(BATCH))
    for _ in range(20):
        next(batches)
    begin = time.perf_counter()
    for _ in range(200):
        next(batches)
    found["batch"] = (time.perf_counter() - begin) / 200
    return found


def loss_beside_mean(rows: int = 128) -> tuple[float, float]:
    """Seconds from losses of examples to their gradients: a mean, and `GroupDROLoss`."""
    losses, groups = torch.rand(rows, requires_grad=True), torch.randint(4, (rows,))
    criterion = GroupDROLoss(Reweighter(range(4)))

    def plain():
        for _ in range(200):
            losses.mean().backward()

    def robust():
        for _ in range(200):
            criterion(losses, groups).backward()

    times = [(best(plain, 1), best(robust, 1)) for _ in range(5)]
    return min(t[0] for t in times) / 200, min(t[1] for t in times) / 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1000, help="millions in the largest corpus")
    parser.add_argument("--domains", type=int, default=1000, help="domains of the largest mixture")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = sorted({1, 30, options.tokens})
    work = Path(tempfile.mkdtemp(dir=options.out))
    found: dict[str, object] = {}
    try:
        step, size = training_step()
        small = write_corpus(work / "1", 10**6)
        batch = next(iter(MixtureDataset(small, LENGTH).loader(BATCH)))
        seconds = best(lambda: step(batch), 10)
        used = BATCH * LENGTH / seconds
        print(f"model of {size / 1e6:.1f} M parameters: {1e3 * seconds:.0f} ms a step, "
              f"{used:,.0f} tokens/s")  # fmt: skip
        found["model"] = {"parameters": size, "step_seconds": seconds, "tokens_per_second": used}
        found["loader"] = []
        for millions in sizes:
            folder = work / str(millions)
            if not folder.exists():
                write_corpus(folder, millions * 10**6)
            for workers in (0, 1, 2):
                speed = max(loader_speed(folder, workers) for _ in range(3))
                found["loader"].append({"millions": millions, "workers": workers, "speed": speed})
                print(
                    f"loader, {millions:5d} M tokens, {workers} workers: {speed:12,.0f} tokens/s, "
                    f"{speed / used:6.0f} times the model"
                )
        found["pieces"] = {}
        for name, cost in pieces(small).items():
            found["pieces"][name] = cost
            print(f"{name:7s} {1e6 * cost:7.1f} us a step, {cost / seconds:.3%} of it")
        found["domains"] = {}
        for count in (len(SHARES), options.domains):
            costs = many_domains(work / f"{count}-domains", count)
            found["domains"][count] = costs
            for name, cost in costs.items():
                shown = f"{cost:,.0f}" if "bytes" in name else f"{1e6 * cost:,.0f} us"
                print(f"{count:5d} domains, {name:25s} {shown}")
        plain, robust = loss_beside_mean()
        found["loss"] = {"mean": plain, "group_dro": robust}
        print(
            f"gradients of a mean: {1e6 * plain:.0f} us, of GroupDROLoss: {1e6 * robust:.0f} us; "
            f"what it adds is {(robust - plain) / seconds:.3%} of the step"
        )
    finally:
        shutil.rmtree(work)
    (options.out / "mixing.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
