"""Results that gradients cannot pass, so that training fails instead of leaving a kernel out in silence."""

import torch


class _NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, what, out, *inputs):
        ctx.what = what
        return out.view_as(out)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(f"{ctx.what} by quire_kernels has no backward pass: train without it")


def without_backward(what, out, inputs):
    """`out`, whose backward pass is an error if one of the inputs (tensors or None) needs a gradient."""
    inputs = [x for x in inputs if x is not None and x.requires_grad]
    return _NoBackward.apply(what, out, *inputs) if inputs and torch.is_grad_enabled() else out
