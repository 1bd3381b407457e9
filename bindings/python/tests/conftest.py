import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import quire_kernels as qk  # noqa: E402

try:
    import torch
except ImportError:
    pass
else:
    torch.set_num_threads(1)  # small models are slower on several threads, which would spin beside the kernels' own


@pytest.fixture(params=qk.available_isas())
def isa(request):
    """Each instruction set that this CPU has, in force."""
    qk.force_isa(request.param)
    assert qk.isa_name() == request.param
    yield request.param
    qk.force_isa("")


@pytest.fixture
def threads():
    """A function that sets the number of threads until the test's end."""
    before = qk.num_threads()
    yield qk.set_num_threads
    qk.set_num_threads(before)


def pytest_report_header():
    return f"quire_kernels: {', '.join(qk.available_isas())}; {qk.num_threads()} threads"
