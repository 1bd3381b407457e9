"""Paged attention on the CPU with FlashAttention's names and semantics, and the gated delta rule.

The functions take torch tensors or numpy arrays where they lie, and return the kind they were given. README.md says what is
supported.
"""

import os

from . import _core
from ._core import available_isas, force_isa, isa_name, num_threads, set_num_threads
from .flash_attn import flash_attn_func, flash_attn_varlen_func
from .delta_rule import gated_delta_rule, matrices_of_state, state_of_matrices
from .kvcache import flash_attn_with_kvcache, kv_paged_write, reshape_and_cache

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_core._after_fork)

__all__ = [
    "available_isas",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "force_isa",
    "gated_delta_rule",
    "isa_name",
    "kv_paged_write",
    "matrices_of_state",
    "num_threads",
    "reshape_and_cache",
    "set_num_threads",
    "state_of_matrices",
]
