"""A GPU that is not there: tensors compute on the CPU and claim to lie on ``cuda:0``, so that CUDA
branches run.

`install` switches it on for a process; ``LABKIT_REHEARSE=80`` (GB of memory; ``80x2`` for two
cards) with ``tests/rehearsal/site`` on PYTHONPATH does so in kernels and children.

It proves: that an API exists and is used as documented; where tensors lie (a kernel that is given
tensors of two devices raises, as on a GPU); how many bytes of a card are allocated, at most, and
when they are too many; what waits for the device; which stream may read what another one wrote;
what a graph's capture forbids; that forked processes keep away from the card.

It cannot prove: kernels, their numbers and their speed; Triton and the compiler's code for a GPU;
NCCL; workspaces of cuBLAS and cuDNN, fragmentation, and memory that is reused on another stream too
early; asynchronous errors. Operators run in CPU precision: TF32 changes nothing here. Each process
has a card of its own: bytes of several processes are not added up.
"""

from tests.rehearsal.install import install

__all__ = ["install"]
