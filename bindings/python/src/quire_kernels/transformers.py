"""These kernels as an attention implementation of transformers 5.

    import quire_kernels.transformers
    quire_kernels.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="quire")

serves forward passes and generate() with every kind of cache. Continuous batching (generate_batch) takes only implementations that have "flash" in their
name and that transformers finds itself; register_for_continuous_batching() makes it find this one.
"""

import functools
import inspect

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ._masks import masked_attention
from ._no_backward import without_backward
from .flash_attn import flash_attn_func, flash_attn_varlen_func
from .kvcache import flash_attn_with_kvcache

# Arguments of single models that change what attention computes: dropping one would give other tokens in silence.
_NOT_SUPPORTED = ("position_bias", "head_mask", "indices", "block_indices", "sinks", "output_attentions")



def _tokens_first(x):
    """[B, H, S, D] as [B, S, H, D]."""
    return x.transpose(1, 2)


def _by_block_table(q, k, v, arguments, cu_seq_lens_k, block_table, k_cache, v_cache):
    """A step of decoding in continuous batching: one query a sequence [1, B, H, D], whose key and value go into the pages."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    lens = cu_seq_lens_k.diff()[: q.shape[0]] - 1
    out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lens, block_table=block_table, **arguments)
    return out.transpose(0, 1)


def _by_position(q, k, v, position_ids, arguments):
    """Sequences packed into one row [1, S], each with positions that begin at 0; None if position_ids [1, S] tell of one only."""
    starts = position_ids[0] == 0
    starts[0] = True
    if starts.sum() == 1:
        return None
    if k.shape[1] != q.shape[1]:
        raise ValueError("position_ids begin anew inside the row, but there are keys of earlier calls: packed sequences take none")
    cu_seqlens = torch.nn.functional.pad(starts.nonzero()[:, 0], (0, 1), value=q.shape[1])
    return flash_attn_varlen_func(q[0], k[0], v[0], cu_seqlens, cu_seqlens, None, None, **arguments)[None]


@torch.compiler.disable
def attention(
    module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, sliding_window=None, softcap=None,
    s_aux=None, cache=None, **kwargs,
):  # fmt: skip
    """transformers' attention function: query [B, H, Sq, D], key and value [B, K, Sk, D] -> ([B, Sq, H, D], None)."""
    with torch.no_grad():
        out = _attend(
            module, query, key, value, attention_mask, scaling, dropout, is_causal, sliding_window, softcap, s_aux, cache, **kwargs
        )
    return without_backward("attention", out, (query, key, value, s_aux)), None


def _attend(
    module, query, key, value, attention_mask, scaling, dropout, is_causal, sliding_window, softcap, s_aux, cache, **kwargs
):  # fmt: skip
    if dropout != 0.0:
        raise ValueError("dropout must be 0: this attention is for inference")
    for name in _NOT_SUPPORTED:
        if kwargs.get(name) is not None and kwargs[name] is not False:
            raise ValueError(f"{name} is not supported: use another attn_implementation for this model")
    if cache is not None:  # continuous batching: writes the new keys and gathers, or passes the pages on in kwargs
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx, kwargs=kwargs)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0 if causal else sliding_window - 1)
    arguments = {"softmax_scale": scaling, "causal": causal, "window_size": window, "softcap": softcap or 0.0, "s_aux": s_aux}
    q, k, v = (_tokens_first(x) for x in (query, key, value))
    pages = {name: kwargs.get(name) for name in ("cu_seq_lens_k", "block_table", "k_cache", "v_cache")}
    if all(x is not None for x in pages.values()):
        return _by_block_table(q, k, v, arguments, **pages)
    if kwargs.get("cu_seq_lens_q") is not None and pages["cu_seq_lens_k"] is not None:
        starts = kwargs["cu_seq_lens_q"], pages["cu_seq_lens_k"]
        return flash_attn_varlen_func(q[0], k[0], v[0], *starts, None, None, **arguments)[None]
    if attention_mask is not None:
        return masked_attention(q, k, v, attention_mask, **arguments)
    position_ids = kwargs.get("position_ids")
    if position_ids is not None and q.shape[1] > 1 and (q.shape[0], *position_ids.shape) == (1, 1, q.shape[1]):
        packed = _by_position(q, k, v, position_ids, arguments)
        if packed is not None:
            return packed
    return flash_attn_func(q, k, v, **arguments)


def attention_mask(q_length, kv_length, q_offset=0, kv_offset=0, allow_is_causal_skip=True, **kwargs):
    """transformers' mask function: sdpa's mask [B, 1, Sq, Sk], or None where the kernels' own causal mask is the same.

    That has the last query at the last key. A static cache hands out keys that are not written yet behind it, and sdpa goes
    without a mask there, too, because its causal mask begins at the first key.
    """
    ends_with_query = int(q_offset) + q_length == kv_offset + kv_length
    return sdpa_mask(
        q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        allow_is_causal_skip=allow_is_causal_skip and ends_with_query, **kwargs,
    )  # fmt: skip


def register(name="quire"):
    """Makes attn_implementation=name known to transformers."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, attention_mask)


def register_for_continuous_batching(name="quire_flash"):
    """The same under a name with "flash" in it, for generate_batch too: prompts attend to gathered keys, steps of decoding to pages.

    Two functions of transformers 5.22 and 5.23 are wrapped: for this name the one that looks for FlashAttention's modules (installed, or
    on the hub), and the one that use_pages() wraps.
    """
    from transformers import modeling_flash_attention_utils as flash

    if "flash" not in name:
        raise ValueError(f"name must have 'flash' in it for continuous batching, not {name!r}")
    register(name)
    import_functions = flash._lazy_imports

    @functools.wraps(import_functions)
    def imports(implementation, *args, **kwargs):
        if implementation != name:
            return import_functions(implementation, *args, **kwargs)
        functions = (flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache)
        return (*functions, flash._pad_input, flash._unpad_input)

    flash._lazy_imports = imports
    use_pages()


@functools.cache
def use_pages():
    """Has continuous batching hand block tables to these kernels on the CPU, under whatever name transformers has loaded them.

    One function of transformers 5.22 and 5.23 is wrapped, which hands block tables only to CUDA and XPU.
    """
    from transformers.generation.continuous_batching import initialization
    from transformers.modeling_flash_attention_utils import lazy_import_flash_attention
    from transformers.utils.generic import is_flash_attention_requested

    ensure_block_tables = initialization.ensure_decode_fast_path_is_available
    own = inspect.unwrap(flash_attn_with_kvcache)

    @functools.wraps(ensure_block_tables)
    def ensure(config, cb_config, user_requested):
        kinds = initialization.group_layers_by_attn_type(config)
        pages = all(initialization.ATTN_TYPE_TO_ALLOCATOR[kind].supports_block_table for kind in kinds)
        if pages and is_flash_attention_requested(config):
            loaded = lazy_import_flash_attention(config._attn_implementation)[0][2]
            if loaded is not None and inspect.unwrap(loaded) is own:
                return
        ensure_block_tables(config, cb_config, user_requested)

    initialization.ensure_decode_fast_path_is_available = ensure
