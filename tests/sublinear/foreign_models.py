"""Models that nobody here wrote, in small sizes with random weights: nothing is downloaded.

Each function gives a model and what makes a batch for it, as keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Any]
Foreign = tuple[nn.Module, Callable[[], Batch]]

_WORDS = 200
# What most configurations of transformers have in common.
_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}
_TEXT = _SMALL | {"vocab_size": _WORDS}
_LLAMA = _TEXT | {"num_key_value_heads": 2}
_IMAGE = _SMALL | {"image_size": 32, "patch_size": 8, "num_labels": 5}
_GPT2 = {"n_layer": 4, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": _WORDS}
_ENDS = {"bos_token_id": 0, "eos_token_id": 1}
_T5 = {"num_layers": 3, "d_model": 64, "d_ff": 128, "num_heads": 4, "d_kv": 16}
_BOTH = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": _WORDS,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
_WAV2VEC2 = _SMALL | {
    "conv_dim": (32, 32, 32),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "vocab_size": 30,
}
_SEGFORMER = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [16, 32, 48, 64],
    "num_attention_heads": [1, 2, 3, 4],
    "decoder_hidden_size": 32,
    "num_labels": 5,
}
_SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 24,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
    "num_labels": 5,
}
_CLIP = {
    "text_config": _TEXT | _ENDS | {"max_position_embeddings": 32},
    "vision_config": _SMALL | {"image_size": 32, "patch_size": 8},
    "projection_dim": 32,
}


def _text() -> Batch:
    words = torch.randint(2, _WORDS, (4, 32))
    return {"input_ids": words, "labels": words}


def _classes() -> Batch:
    return {"input_ids": torch.randint(2, _WORDS, (4, 32)), "labels": torch.randint(0, 2, (4,))}


def _images(size: int = 64, rows: int = 4, name: str = "x") -> Batch:
    return {name: torch.randn(rows, 3, size, size)}


def _labelled() -> Batch:
    return _images(32, name="pixel_values") | {"labels": torch.randint(0, 5, (4,))}


def _segments() -> Batch:
    labels = torch.randint(0, 5, (2, 64, 64))
    return _images(64, 2, "pixel_values") | {"labels": labels}


def _waves() -> Batch:
    return {"input_values": torch.randn(2, 2000), "labels": torch.randint(1, 30, (2, 8))}


def _spectra() -> Batch:
    words = torch.randint(2, _WORDS, (2, 16))
    return {"input_features": torch.randn(2, 80, 128), "labels": words}


def _pairs() -> Batch:
    words = torch.randint(2, _WORDS, (4, 16))
    return _images(32, name="pixel_values") | {"input_ids": words, "return_loss": True}


def _noisy() -> Batch:
    return {"sample": torch.randn(4, 3, 16, 16), "timestep": torch.randint(0, 1000, (4,))}


def _conditioned() -> Batch:
    return _noisy() | {"encoder_hidden_states": torch.randn(4, 6, 32)}


def _of_transformers(model: str, config: str, batch: Callable[[], Batch], **sizes: Any) -> Foreign:
    import transformers

    made = getattr(transformers, f"{config}Config")(**sizes)
    return getattr(transformers, f"{config}{model}")(made), batch


def _lora(batch: Callable[[], Batch], **sizes: Any) -> Foreign:
    import peft

    model, _ = _of_transformers("ForMaskedLM", "Bert", batch, **sizes)
    adapted = peft.LoraConfig(r=4, target_modules=["query", "value"])
    return peft.get_peft_model(model, adapted), batch


def _of_timm(name: str, size: int = 64, rows: int = 4) -> Foreign:
    import timm

    return timm.create_model(name, num_classes=10), partial(_images, size, rows)


def _of_diffusers(model: str, batch: Callable[[], Batch], **sizes: Any) -> Foreign:
    import diffusers

    common = {"sample_size": 16, "layers_per_block": 1, "block_out_channels": (32, 64)}
    return getattr(diffusers, model)(norm_num_groups=8, **common, **sizes), batch


def _of_smp(name: str, encoder: str) -> Foreign:
    import segmentation_models_pytorch as smp

    model = getattr(smp, name)(encoder, encoder_weights=None, classes=5)
    return model, partial(_images, 64, 4)


_TRANSFORMERS: dict[str, Callable[[], Foreign]] = {
    name: partial(_of_transformers, head, config, batch, **sizes)
    for name, head, config, batch, sizes in (
        ("gpt2", "LMHeadModel", "GPT2", _text, _GPT2 | _ENDS),
        ("llama", "ForCausalLM", "Llama", _text, _LLAMA),
        (
            "mixtral",
            "ForCausalLM",
            "Mixtral",
            _text,
            _LLAMA | {"num_local_experts": 4, "output_router_logits": True},
        ),
        ("qwen2", "ForCausalLM", "Qwen2", _text, _LLAMA),
        ("gpt_neox", "ForCausalLM", "GPTNeoX", _text, _TEXT),
        ("bert", "ForMaskedLM", "Bert", _text, _TEXT),
        ("roberta_classes", "ForSequenceClassification", "Roberta", _classes, _TEXT),
        ("albert", "ForMaskedLM", "Albert", _text, _TEXT | {"embedding_size": 32}),
        ("electra", "ForMaskedLM", "Electra", _text, _TEXT),
        ("mamba", "ForCausalLM", "Mamba", _text, _TEXT),
        (
            "t5",
            "ForConditionalGeneration",
            "T5",
            _text,
            _T5 | {"vocab_size": _WORDS, "decoder_start_token_id": 0},
        ),
        ("bart", "ForConditionalGeneration", "Bart", _text, _BOTH),
        (
            "whisper",
            "ForConditionalGeneration",
            "Whisper",
            _spectra,
            _BOTH | {"max_source_positions": 64, "max_target_positions": 32},
        ),
        ("wav2vec2", "ForCTC", "Wav2Vec2", _waves, _WAV2VEC2),
        ("vit", "ForImageClassification", "ViT", _labelled, _IMAGE),
        ("deit", "ForImageClassification", "DeiT", _labelled, _IMAGE),
        ("swin", "ForImageClassification", "Swin", _labelled, _SWIN),
        ("segformer", "ForSemanticSegmentation", "Segformer", _segments, _SEGFORMER),
        ("clip", "Model", "CLIP", _pairs, _CLIP),
    )
}
_TIMM: dict[str, Callable[[], Foreign]] = {
    name: partial(_of_timm, name, size, rows)
    for name, size, rows in (
        ("mobilevit_xxs", 64, 4),
        ("hrnet_w18_small", 64, 4),
        ("tf_efficientnet_lite0", 64, 4),
        ("repvgg_a0", 64, 4),
        ("edgenext_xx_small", 64, 4),
        ("poolformer_s12", 64, 4),
        ("resnest14d", 64, 4),
        ("convnext_atto", 64, 4),
        ("resnet10t", 64, 4),
        ("ghostnet_100", 64, 4),
        ("mnasnet_small", 64, 4),
        ("efficientvit_b0", 64, 4),
        ("nf_resnet26", 64, 4),
        ("coatnet_nano_rw_224", 224, 1),
        ("maxvit_pico_rw_256", 256, 1),
        ("levit_128s", 224, 2),
        ("pit_ti_224", 224, 2),
        ("xcit_nano_12_p16_224", 224, 2),
        ("mixer_s32_224", 224, 2),
        ("deit_tiny_distilled_patch16_224", 224, 2),
        ("cait_xxs24_224", 224, 1),
    )
}
_UNET = {
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
}
_UNET_CONDITION = {
    "in_channels": 3,
    "out_channels": 3,
    "cross_attention_dim": 32,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}
_BY_LIBRARY: dict[str, dict[str, Callable[[], Foreign]]] = {
    "transformers": _TRANSFORMERS,
    "timm": _TIMM,
    "diffusers": {
        "unet2d": partial(_of_diffusers, "UNet2DModel", _noisy, **_UNET),
        "unet2d_condition": partial(
            _of_diffusers, "UNet2DConditionModel", _conditioned, **_UNET_CONDITION
        ),
    },
    "peft": {"bert_lora": partial(_lora, _text, **_TEXT)},
    "segmentation_models_pytorch": {
        "smp_unet": partial(_of_smp, "Unet", "resnet18"),
        "smp_fpn": partial(_of_smp, "FPN", "mobilenet_v2"),
    },
}
FOREIGN = {name: make for models in _BY_LIBRARY.values() for name, make in models.items()}
LIBRARIES = {name: library for library, models in _BY_LIBRARY.items() for name in models}


def loss_of(output: Any) -> Tensor:
    """A scalar: the model's own loss where it has one."""
    if torch.is_tensor(output):
        return output.logsumexp(-1).mean()
    if isinstance(output, tuple):
        # Of a distilled classifier: an output for each of its heads.
        return sum(map(loss_of, output), torch.zeros(()))
    if getattr(output, "loss", None) is not None:
        return output.loss
    return output.sample.square().mean()
