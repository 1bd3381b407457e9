"""The gated delta rule over rows of packed documents, in chunks, for training.

Per value head and token t, with S the state of the token's document [key dim, value dim]:

    S = exp(g_t) S + k_t beta_t (v_t - k_t (exp(g_t) S))        o_t = (q_t / sqrt(key dim)) S

A chunk of 64 tokens turns this into matrix products (the UT transform): T, the inverse of a unit
lower triangular matrix, gives all updates of the chunk at once, and the state passes from chunk to
chunk by S' = P S + Q, the only sequential part.
"""

import torch
import torch.nn.functional as F

CHUNK = 64


# --------------------------------------------------------------------------
# (I + L)^-1
# --------------------------------------------------------------------------

def inverse_by_doubling(lower):
    """Inverse of I + lower, float32 [..., n, n], lower strictly lower triangular, n a power of two.

    From diagonal blocks of s to blocks of 2 s: only the lower left block, -D^-1 C A^-1, is new.
    Unlike the product of (I + L^2^i) this stays accurate when L's powers grow, as for repeated keys.
    """
    n = lower.shape[-1]
    i = torch.arange(n, device=lower.device)
    t = torch.eye(n, device=lower.device, dtype=lower.dtype).expand_as(lower)
    s = 1
    while s < n:
        block = i // s
        new = (block[:, None] == block[None, :] + 1) & (block[None, :] % 2 == 0)
        t = t - t @ (lower * new) @ t
        s *= 2
    return t


try:
    import triton
    import triton.language as tl

    @triton.jit
    def _inverse_kernel(lower, out, n: tl.constexpr, levels: tl.constexpr):
        """inverse_by_doubling of one matrix, kept on the chip."""
        i, j = tl.arange(0, n)[:, None], tl.arange(0, n)[None, :]
        at = tl.program_id(0).to(tl.int64) * n * n + i * n + j
        x = tl.load(lower + at)
        t = tl.where(i == j, 1.0, 0.0)
        for level in tl.static_range(levels):
            new = ((i >> level) == (j >> level) + 1) & ((j >> level) % 2 == 0)
            t -= tl.dot(tl.dot(t, tl.where(new, x, 0.0), input_precision="tf32"), t, input_precision="tf32")
        tl.store(out + at, t)
except ImportError:
    triton = None


@torch.library.custom_op("demo_model::unit_lower_inverse", mutates_args=())
def unit_lower_inverse(lower: torch.Tensor) -> torch.Tensor:
    """Inverse of I + lower, float32 [..., n, n]; on a GPU in tf32."""
    if triton is None or not lower.is_cuda:
        return inverse_by_doubling(lower).contiguous()
    lower = lower.contiguous()
    out, n = torch.empty_like(lower), lower.shape[-1]
    _inverse_kernel[(lower.numel() // (n * n),)](lower, out, n, n.bit_length() - 1, num_warps=4)
    return out


@unit_lower_inverse.register_fake
def _(lower):
    return lower.new_empty(lower.shape)


def _inverse_backward(ctx, grad):
    t, = ctx.saved_tensors
    return -(t.mT @ grad @ t.mT).tril(-1)


unit_lower_inverse.register_autograd(_inverse_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output))


# --------------------------------------------------------------------------
# S' = P S + Q
# --------------------------------------------------------------------------

@torch.library.custom_op("demo_model::chunk_scan", mutates_args=())
def chunk_scan(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """States before each chunk, float32 [chunks, heads, key, value]: 0, then p[c] @ state + q[c]."""
    s = q.new_zeros(q.shape)
    for c in range(q.shape[0] - 1):
        torch.baddbmm(q[c], p[c], s[c], out=s[c + 1])
    return s


@chunk_scan.register_fake
def _(p, q):
    return q.new_empty(q.shape)


@torch.library.custom_op("demo_model::chunk_scan_backward", mutates_args=())
def chunk_scan_backward(p: torch.Tensor, s: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of p and q, given that of the states."""
    dp, dq = p.new_zeros(p.shape), grad.new_zeros(grad.shape)
    for c in reversed(range(grad.shape[0] - 1)):
        torch.baddbmm(grad[c + 1], p[c + 1].mT, dq[c + 1], out=dq[c])
    torch.matmul(dq, s.mT, out=dp)
    return dp, dq


@chunk_scan_backward.register_fake
def _(p, s, grad):
    return p.new_empty(p.shape), grad.new_empty(grad.shape)


def _scan_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)


def _scan_backward(ctx, grad):
    p, s = ctx.saved_tensors
    return chunk_scan_backward(p, s, grad.contiguous())


chunk_scan.register_autograd(_scan_backward, setup_context=_scan_setup)


# --------------------------------------------------------------------------
# The rule
# --------------------------------------------------------------------------

def unit_length(x):
    """x, float32, divided by its length in the last dimension."""
    x = x.float()
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def gated_delta_rule(q, k, v, g, beta, doc, dtype):
    """Output [b, t, value heads, value dim] in dtype; t is a multiple of CHUNK.

    q, k: [b, t, key heads, key dim], any length; v: [b, t, value heads, value dim], value heads
    sharing a key head next to each other; g (log decay, <= 0) and beta: float32 [b, t, value heads];
    doc: int [b, t], the document of each token: the state is empty at the first token of each.
    Large products take operands of `dtype`; decays, the inverse and the state are float32.
    """
    b, t, hk, d = q.shape
    hv, dv = v.shape[2:]
    n, r = t // CHUNK, hv // hk

    def chunks(x, *tail):  # [b, t, heads...] -> [n, b, heads..., CHUNK, tail]
        x = x.reshape(b, n, CHUNK, *x.shape[2:])
        heads = x.dim() - 3 - len(tail)
        return x.permute(1, 0, *range(3, 3 + heads), 2, *range(3 + heads, x.dim()))

    q, k = (chunks(unit_length(x), d).unsqueeze(3) for x in (q, k))                     # [n, b, hk, 1, C, d]
    q = (q * d ** -0.5).to(dtype)
    k = k.to(dtype)
    v = chunks(v.reshape(b, t, hk, r, dv), dv).to(dtype)                                # [n, b, hk, r, C, dv]
    g, beta = (chunks(x.float().reshape(b, t, hk, r)) for x in (g, beta))               # [n, b, hk, r, C]

    # documents: a token sees its own only, and the state belongs to the one that the last chunk ended in
    doc = chunks(doc)                                                                   # [n, b, C]
    first, last = doc[..., :1], doc[..., -1:]
    carried = torch.cat([first[:1] - 1, last[:-1]])                                     # [n, b, 1]
    wide = lambda x: x[:, :, None, None]                                                # noqa: E731
    alike = (doc[..., :, None] == doc[..., None, :]).tril()
    total = g.cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~wide(alike), float("-inf")).exp()
    into = total.exp() * wide(doc == carried)                                           # of the state, until each token
    out_of = (total[..., -1:] - total).exp() * wide(doc == last)                        # of each token, until the chunk's end
    through = total[..., -1].exp() * wide(last == carried)[..., 0]

    kf = k.float()
    lower = (beta[..., None] * (kf @ kf.mT) * decay).tril(-1)
    inverse = unit_lower_inverse(lower)                                                 # [n, b, hk, r, C, C]
    u = (inverse * beta[..., None, :]).to(dtype) @ v
    # the key heads' products with r value heads each: r * C rows of one matrix product
    w = (inverse * (beta * into)[..., None, :]).to(dtype).flatten(3, 4) @ k[:, :, :, 0]
    w = w.unflatten(3, (r, CHUNK))                                                      # [n, b, hk, r, C, d]
    seen = ((q @ k.mT).float() * decay).to(dtype)

    k_out = (k.float() * out_of[..., None]).to(dtype).mT                                # [n, b, hk, r, d, C]
    eye = torch.eye(d, device=q.device)
    p = through[..., None, None] * eye - (k_out @ w).float()
    state = chunk_scan(p.flatten(1, 3), (k_out @ u).float().flatten(1, 3))
    state = state.unflatten(1, (b, hk, r)).to(dtype)
    new = u - w @ state
    out = seen @ new + (q.float() * into[..., None]).to(dtype) @ state                  # [n, b, hk, r, C, dv]
    return out.permute(1, 0, 4, 2, 3, 5).reshape(b, t, hv, dv)


def document_conv(x, weight, doc):
    """Causal depthwise convolution that stays within a document, float32 [b, t, channels].

    x: [b, t, channels]; weight: [channels, 1, taps], the last tap at the token itself.
    """
    taps = weight.shape[-1]
    x, out = x.float(), 0.0
    for back in range(taps):
        past, of = F.pad(x, (0, 0, back, 0))[:, :x.shape[1]], F.pad(doc, (back, 0), value=-1)[:, :x.shape[1]]
        out = out + past * (of == doc)[..., None] * weight[:, 0, taps - 1 - back]
    return out
