"""Attention under a boolean mask of torch, without computing what the mask hides.

The kernel's own mask is causal, with the last query at the last key, and may have a window. A mask is therefore cut into segments:
successive queries of a sequence whose keys the kernel's mask gives. A padded prompt is one or two segments a sequence, a decoding
step one; a mask of any other shape still works, with a segment for each query.
"""

import numpy as np
import torch

from . import _core
from ._arrays import arrays_of, describe_ints
from ._attention import Call, Pool


def _of_four_dimensions(mask, batch, q_len, k_len):
    """mask [B or 1, H or 1, Sq, Sk or more], boolean or with the 0 and minus infinity of a bias, as booleans [B, Sq, Sk]."""
    if mask.shape[0] not in (1, batch) or mask.shape[2] != q_len or mask.shape[3] < k_len:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}, but there are {batch} x {q_len} queries and {k_len} keys")
    mask = mask[..., :k_len]
    if mask.is_floating_point():
        hidden = mask <= torch.finfo(mask.dtype).min
        if not ((mask == 0) | hidden).all():
            raise ValueError("attention_mask holds biases: only 0 and the lowest number (or minus infinity) are supported")
        mask = ~hidden
    mask = mask.bool()
    if not (mask == mask[:, :1]).all():
        raise ValueError("attention_mask differs between heads, which is not supported")
    return mask[:, 0].expand(batch, -1, -1)


def _of_existing_keys(mask, batch, q_len, k_len, window):
    """mask [B, n], true for keys that exist, of which the last one is the last query's; later keys are not written yet."""
    if mask.shape[0] != batch:
        raise ValueError(f"attention_mask has {mask.shape[0]} sequences, but there are {batch}")
    exists = mask.bool()[:, -k_len:]
    last = exists.shape[1]
    exists = torch.nn.functional.pad(exists, (0, k_len - last))
    distance = torch.arange(k_len) - (torch.arange(q_len)[:, None] + last - q_len)
    left, right = (side if side >= 0 else k_len for side in window)
    return exists[:, None] & (distance >= -left) & (distance <= right)


class Segments:
    """A mask's segments over the keys that any query sees, packed one sequence after the other.

    used [B, Sk]; cu_seqlens [segments + 1] first query of each segment; lens [segments] keys of each, which lie among the packed
    ones from starts [segments] on, or are named one by one in `tokens`.
    """

    def __init__(self, seen):
        """seen [B, Sq, Sk] bool."""
        batch, q_len, _ = seen.shape
        self.used = seen.any(1)
        rank = self.used.cumsum(1) - 1  # of a key among those that its sequence uses
        base = torch.nn.functional.pad(self.used.sum(1).cumsum(0), (1, 0))[:-1, None]  # a sequence's first packed key
        count = seen.sum(2)
        bits = seen.to(torch.uint8)
        first, last = (rank.gather(1, at) for at in (bits.argmax(2), seen.shape[2] - 1 - bits.flip(2).argmax(2)))
        if (last - first + 1 != count)[count > 0].any():
            self.tokens = (base + rank)[:, None].expand_as(seen)[seen].numpy()
            self.lens, self.starts = count.reshape(-1).numpy(), None
            self.window, self.cu_seqlens = (-1, 0), np.arange(len(self.lens) + 1)
            return
        begins, widest = self._begins(first, last, count).reshape(-1), int(count.max())
        ends = begins.roll(-1)
        starts = (base + first).reshape(-1)[begins]
        lens = (base + last + 1).reshape(-1)[ends] - starts
        self.starts, self.lens = (torch.where(count.reshape(-1)[ends] > 0, x, 0).numpy() for x in (starts, lens))
        self.tokens = None
        self.window = (widest - 1 if self.lens.max() > widest else -1, 0)
        self.cu_seqlens = np.append(begins.nonzero()[:, 0].numpy(), batch * q_len)

    @staticmethod
    def _begins(first, last, count):
        """[B, Sq]: where a segment begins. It goes on with one key more, and without its first one where the window is full.

        Queries that see nothing are segments without keys.
        """
        full = last[:, 1:] - count.max() + 1
        goes_on = (last[:, 1:] == last[:, :-1] + 1) & (first[:, 1:] == torch.maximum(first[:, :-1], full))
        goes_on = torch.where(count[:, :-1] > 0, goes_on & (count[:, 1:] > 0), count[:, 1:] == 0)
        return torch.nn.functional.pad(~goes_on, (1, 0), value=True)


def _segments(mask, batch, q_len, k_len, window):
    """The layers of a model share a mask, so its segments are kept with it until it is written to."""
    what = None if mask.is_inference() else (batch, q_len, k_len, window, mask._version)
    kept = getattr(mask, "_quire_segments", None)
    if what is not None and kept is not None and kept[0] == what:
        return kept[1]
    if mask.ndim == 4:
        seen = _of_four_dimensions(mask, batch, q_len, k_len)
    elif mask.ndim == 2:
        seen = _of_existing_keys(mask, batch, q_len, k_len, window)
    else:
        raise ValueError(f"attention_mask must have 2 or 4 dimensions, not {mask.ndim}")
    mask._quire_segments = what, Segments(seen)
    return mask._quire_segments[1]


def masked_attention(q, k, v, mask, softmax_scale, causal, window_size, softcap, s_aux):
    """Attention of q [B, Sq, H, D] over k [B, Sk, K, D] and v [B, Sk, K, Dv]; a query that sees no key gives 0.

    mask  [B, 1, Sq, Sk], true (or 0, if it is a float) for what a query sees: causal and window_size then say nothing; or [B, n], true
          for the keys that exist, beside causal and window_size
    """
    arrays = arrays_of("q", q)
    for name, x in (("q", q), ("k", k), ("v", v)):
        arrays.check(name, x, 4)
    window = (window_size[0], 0 if causal else window_size[1])
    segments = _segments(mask, q.shape[0], q.shape[1], k.shape[1], window)
    k, v = k[segments.used], v[segments.used]
    count = len(segments.lens)
    call = Call(arrays, q, k, v, ("k", "v"), count, softmax_scale, True, segments.window, softcap, None, s_aux)
    pool = Pool(arrays, ("k", "v"), k[None], v[None], in_place=False).padded()
    where = (segments.cu_seqlens, segments.lens, segments.starts, segments.tokens)
    return call.run(_core.attend_segments, q, pool, False, *(describe_ints(x) for x in where))[0]
