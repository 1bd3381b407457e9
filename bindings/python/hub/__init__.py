"""quire-kernels as the `kernels` package loads them: FlashAttention's functions over pages, and the layers for kernelize().

Takes the place of the package's own __init__.py in a build variant (hub_kernel.py), where that one is _functions.py.
"""

import sys

from . import _functions, layers
from ._functions import *  # noqa: F403

__all__ = [*_functions.__all__, "layers", "use_pages"]


def use_pages():
    """Has transformers' continuous batching hand block tables to these kernels on the CPU; it does so by itself only on GPUs.

    Called when transformers loads the kernels (attn_implementation), and when transformers was imported before them.
    """
    from .transformers import use_pages

    use_pages()


if "transformers" in sys.modules:
    use_pages()
