"""Cases of flash_attn_with_kvcache: how arguments are drawn, and what must come out, computed from the definition."""

import dataclasses
import random

import numpy as np

import reference
from reference import DTYPES

HEADS, BATCH = 6, 2
SHAPES = [(1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (128, 128), (16, 1000)]
LONG_SHAPES = [(64, 2048), (16, 20000), (1, 131072), (16, 131072)]


@dataclasses.dataclass(frozen=True)
class Case:
    dtype: str = "bfloat16"
    kv_heads: int = 3
    dim: int = 64
    sq: int = 3
    sk: int = 339  # the cache's capacity
    causal: bool = False
    local: bool = False
    alibi: bool = False
    softcap: float = 0.0
    sinks: bool = False
    new_kv: bool = False
    new_is_sq: bool = True  # as many new keys as queries
    rotary: float = 0.0  # fraction of the dimensions
    interleaved: bool = True
    page: int | None = None
    batch_idx: bool = False
    leftpad: bool = False
    num_splits: int = 0
    seed: int = 0

    def __str__(self):
        changed = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "seed"]
        return "-".join(n if v is True else f"{n}{v}" if n != "dtype" else v for n, v in changed if v not in (False, None, 0.0))


def draw(seed, shapes=SHAPES, **fixed):
    """A random point of the grid."""
    rng = random.Random(seed)
    flip = lambda share=0.5: rng.random() < share  # noqa: E731
    sq, sk = rng.choice(shapes)
    mask = rng.choice(["full", "causal", "causal", "local"])
    page = rng.choice([None, None, 1, 16, 64, 256])
    new_kv = flip(0.6)
    case = Case(
        dtype=rng.choice(list(DTYPES)), kv_heads=rng.choice([6, 3, 1]), dim=rng.choice([32, 59, 64, 80, 128, 256]),
        sq=sq, sk=sk, causal=mask == "causal", local=mask == "local", alibi=flip(0.25), softcap=15.0 if flip(0.25) else 0.0,
        sinks=flip(0.25), new_kv=new_kv, new_is_sq=flip(), rotary=rng.choice([0.0, 0.5, 1.0]) if new_kv else 0.0, interleaved=flip(), page=page,
        batch_idx=page is None and flip(0.3), leftpad=page is None and flip(0.3), num_splits=rng.choice([0, 1, 3]), seed=seed,
    )  # fmt: skip
    return dataclasses.replace(case, **fixed)


class Problem:
    """The arguments of a case, and its results by definition."""

    def __init__(self, case):
        self.case = c = case
        self.rng = rng = np.random.default_rng(c.seed)
        dtype = DTYPES[c.dtype]
        normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32).astype(dtype)  # noqa: E731
        new = 0 if not c.new_kv else c.sq if c.new_is_sq else int(rng.integers(1, c.sq + 1))
        self.num_new = new
        self.q = normal(BATCH, c.sq, HEADS, c.dim)
        self.k, self.v = (normal(BATCH, new, c.kv_heads, c.dim) for _ in range(2)) if new else (None, None)
        self.window = tuple(int(w) for w in rng.integers(0, c.sk, 2)) if c.local else (-1, -1)
        self.slopes = rng.random((BATCH, HEADS), dtype=np.float32) * 0.3 if c.alibi else None
        self.sinks = rng.standard_normal(HEADS, dtype=np.float32) * 2 if c.sinks else None
        rotary_dim = int(c.rotary * c.dim) // 16 * 16
        room = c.sk - (max(c.sq, new) if rotary_dim else new)
        self.lens = rng.integers(0 if new else 1, room + 1, BATCH).astype(np.int32)
        self.cos = self.sin = None
        if rotary_dim:
            angle = rng.random((c.sk + c.sq, rotary_dim // 2), dtype=np.float32) * 2 * np.pi
            self.cos, self.sin = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
        self._lay_out_cache(normal)
        self.leftpad = np.array([rng.integers(0, n + 1) for n in self.lens], dtype=np.int32) if c.leftpad else None

    def _lay_out_cache(self, normal):
        c, rng = self.case, self.rng
        self.table = self.batch_idx = None
        if c.page:  # blocks in random order, of a pool that is too large
            blocks = -(-c.sk // c.page)
            pages = 3 * blocks * BATCH // 2
            self.k_cache, self.v_cache = (normal(pages, c.page, c.kv_heads, c.dim) for _ in range(2))
            self.table = rng.permutation(pages)[: blocks * BATCH].astype(np.int32).reshape(BATCH, blocks)
            return
        rows = 4 if c.batch_idx else BATCH
        self.k_cache, self.v_cache = (normal(rows, c.sk, c.kv_heads, c.dim) for _ in range(2))
        if c.batch_idx:
            self.batch_idx = rng.permutation(rows)[:BATCH].astype(np.int32)

    def arguments(self):
        """(positional, keyword) arguments; the caches are copies."""
        optional = {
            "k": self.k, "v": self.v, "rotary_cos": self.cos, "rotary_sin": self.sin, "cache_batch_idx": self.batch_idx,
            "cache_leftpad": self.leftpad, "block_table": self.table, "alibi_slopes": self.slopes, "s_aux": self.sinks,
        }  # fmt: skip
        c = self.case
        return (self.q, self.k_cache.copy(), self.v_cache.copy()), {
            **{name: x for name, x in optional.items() if x is not None}, "cache_seqlens": self.lens, "causal": c.causal,
            "window_size": self.window, "softcap": c.softcap, "rotary_interleaved": c.interleaved, "num_splits": c.num_splits,
            "return_softmax_lse": True,
        }  # fmt: skip

    def places(self, b):
        """Where the tokens of sequence b lie: an index into a cache seen as [rows or blocks, tokens]."""
        at = np.arange(self.table.shape[1] * self.case.page if self.case.page else self.case.sk)
        if self.case.page:
            return self.table[b, at // self.case.page], at % self.case.page
        return np.full(len(at), b if self.batch_idx is None else self.batch_idx[b]), at

    def expected(self):
        """Per sequence (out, lse, rounded out), and the caches afterwards."""
        k_cache, v_cache = self.k_cache.copy(), self.v_cache.copy()
        results = []
        for b in range(BATCH):
            places, old = self.places(b), int(self.lens[b])
            q = self.q[b]
            if self.num_new:
                k, slots = self.k[b], tuple(p[old : old + self.num_new] for p in places)
                if self.cos is not None:
                    at = np.arange(self.case.sq) if self.case.causal or self.case.local else np.zeros(self.case.sq, dtype=int)
                    q = reference.rotate(q, self.cos, self.sin, old + at, self.case.interleaved).astype(q.dtype)
                    at = old + np.arange(self.num_new)
                    k = reference.rotate(k, self.cos, self.sin, at, self.case.interleaved).astype(k.dtype)
                k_cache[slots], v_cache[slots] = k, self.v[b]
            begin = 0 if self.leftpad is None else int(self.leftpad[b])
            seen = tuple(p[begin : old + self.num_new] for p in places)
            mask = {"causal": self.case.causal, "window": self.window, "softcap": self.case.softcap}
            mask["sinks"] = self.sinks
            mask["slopes"] = None if self.slopes is None else self.slopes[b]
            keys, values = k_cache[seen], v_cache[seen]
            results.append((*reference.exact(q, keys, values, **mask), reference.rounded(q, keys, values, **mask)))
        return results, k_cache, v_cache
