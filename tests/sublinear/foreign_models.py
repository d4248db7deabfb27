"""Models that nobody here wrote, in small sizes with random weights: nothing is downloaded.

Each function gives a model and what makes a batch for it, as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Any]
Foreign = tuple[nn.Module, Callable[[], Batch]]

_WORDS = 200


def _text() -> Batch:
    words = torch.randint(0, _WORDS, (4, 32))
    return {"input_ids": words, "labels": words}


def gpt2() -> Foreign:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=4,
        n_embd=64,
        n_head=4,
        vocab_size=_WORDS,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=1,
    )
    return GPT2LMHeadModel(config), _text


def _like_llama() -> dict[str, int]:
    return {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": _WORDS,
    }


def llama() -> Foreign:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=4, **_like_llama())), _text


def mixtral() -> Foreign:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        num_hidden_layers=3, num_local_experts=4, output_router_logits=True, **_like_llama()
    )
    return MixtralForCausalLM(config), _text


def wav2vec2() -> Foreign:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        num_hidden_layers=4,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        vocab_size=30,
    )

    def batch() -> Batch:
        return {"input_values": torch.randn(2, 2000), "labels": torch.randint(1, 30, (2, 8))}

    return Wav2Vec2ForCTC(config), batch


def t5() -> Foreign:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        num_layers=3,
        d_model=64,
        d_ff=128,
        num_heads=4,
        d_kv=16,
        vocab_size=_WORDS,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config), _text


def _images() -> Batch:
    return {"x": torch.randn(4, 3, 64, 64)}


def _timm(name: str) -> Callable[[], Foreign]:
    def make() -> Foreign:
        import timm

        return timm.create_model(name, num_classes=10), _images

    return make


def unet() -> Foreign:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16,
        layers_per_block=1,
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )

    def batch() -> Batch:
        return {"sample": torch.randn(4, 3, 16, 16), "timestep": torch.randint(0, 1000, (4,))}

    return model, batch


def segformer() -> Foreign:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 48, 64],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=32,
        num_labels=5,
    )

    def batch() -> Batch:
        return {
            "pixel_values": torch.randn(2, 3, 64, 64),
            "labels": torch.randint(0, 5, (2, 64, 64)),
        }

    return SegformerForSemanticSegmentation(config), batch


FOREIGN: dict[str, Callable[[], Foreign]] = {
    "gpt2": gpt2,
    "llama": llama,
    "mixtral": mixtral,
    "wav2vec2": wav2vec2,
    "t5": t5,
    "mobilevit_xxs": _timm("mobilevit_xxs"),
    "hrnet_w18_small": _timm("hrnet_w18_small"),
    "tf_efficientnet_lite0": _timm("tf_efficientnet_lite0"),
    "unet2d": unet,
    "segformer": segformer,
}


def loss_of(output: Any) -> Tensor:
    """A scalar: the model's own loss where it has one."""
    if torch.is_tensor(output):
        return output.logsumexp(-1).mean()
    if getattr(output, "loss", None) is not None:
        return output.loss
    return output.sample.square().mean()


_OF_TIMM = ("mobilevit_xxs", "hrnet_w18_small", "tf_efficientnet_lite0")
LIBRARIES = {name: "timm" if name in _OF_TIMM else "transformers" for name in FOREIGN}
LIBRARIES["unet2d"] = "diffusers"
