"""Three ways to compute a convolution, and layers that ask a search which one."""

import pytest
import torch
from torch import nn

from course.kernels import clock, kernels, tuned


@pytest.mark.parametrize(
    "options", [{}, {"padding": 1}, {"stride": 2, "padding": 2, "dilation": 2}], ids=str
)
def test_all_kernels_compute_what_the_layer_does(options):
    layer = nn.Conv2d(4, 6, 3, **options)
    x = torch.randn(2, 4, 9, 8)
    for memory in (torch.contiguous_format, torch.channels_last):
        given = x.to(memory_format=memory), layer.weight.to(memory_format=memory), layer.bias
        for kernel in kernels(layer):
            torch.testing.assert_close(kernel(*given), layer(x), atol=1e-5, rtol=1e-5)


def test_kernels_return_their_layout():
    layer, x = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 9, 8)
    first, last, _ = (kernel(x, layer.weight, layer.bias) for kernel in kernels(layer))
    assert first.is_contiguous() and not last.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_groups_are_no_single_product():
    layer, x = nn.Conv2d(4, 4, 3, groups=2), torch.randn(2, 4, 9, 8)
    first, last, unfolded = kernels(layer)
    for kernel in (first, last):
        torch.testing.assert_close(kernel(x, layer.weight, layer.bias), layer(x))
    with pytest.raises(ValueError, match="2 groups"):
        unfolded(x, layer.weight, layer.bias)


def test_padding_is_given_as_numbers():
    with pytest.raises(TypeError, match="'same'"):
        kernels(nn.Conv2d(4, 4, 3, padding="same"))


def test_each_convolution_has_a_search_of_its_own():
    searches = []

    def autotune(candidates, seconds):
        assert seconds is clock and len(candidates) == 3
        searches.append(0)
        number = len(searches) - 1

        def search(*tensors):
            searches[number] += 1
            return candidates[1](*tensors)

        return search

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1))
    x = torch.randn(2, 3, 6, 6)
    expected = net(x)
    assert tuned(net, autotune) is net
    result = net(x)
    torch.testing.assert_close(result, expected)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert searches == [1, 1]
    assert [net[place].forward.kept for place in (0, 2)] == ["channels last"] * 2
    # One call of one kernel is no search.
    assert [net[place].forward.seconds for place in (0, 2)] == [0, 0]
    result.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_convolution_needs_a_bias():
    with pytest.raises(ValueError, match="1 has no bias"):
        tuned(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3, bias=False)), lambda *_: None)


def test_the_kernel_that_was_kept_and_the_seconds_of_its_search_are_known():
    class Keeps:
        def __init__(self, candidates, seconds):
            self.candidates, self.known = candidates, False

        def __call__(self, *tensors):
            if not self.known:
                self.known = True
                for candidate in self.candidates:
                    candidate(*tensors)
            return self.candidates[2](*tensors)

    net = tuned(nn.Sequential(nn.Conv2d(3, 4, 3)), Keeps)
    asked = net[0].forward
    assert (asked.kept, asked.seconds) == ("", 0)
    net(torch.randn(2, 3, 6, 6))
    assert asked.kept == "unfolded" and asked.seconds > 0
    net(torch.randn(2, 3, 6, 6))
    assert asked.kept == "unfolded" and asked.seconds == 0
