"""The models of `make bench-models`: transformers architectures with random weights, built from configs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as tf

LAYERS = 4


@dataclass(frozen=True)
class Model:
    """A model to measure: `build()` gives the module, `inputs(batch, length)` its keyword arguments."""

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int, int], dict[str, torch.Tensor]]


def _tokens(vocabulary: int) -> Callable[[int, int], dict[str, torch.Tensor]]:
    return lambda batch, length: {"input_ids": torch.randint(0, vocabulary, (batch, length))}


def _images(batch: int, _length: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, 224, 224)}


def _t5_inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 32000, (batch, length))
    return {"input_ids": ids, "decoder_input_ids": ids.clone()}


def _qwen3() -> torch.nn.Module:
    config = tf.Qwen3Config(
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=32000,
    )
    config.use_cache = False
    return tf.Qwen3ForCausalLM(config)


def _gpt2(layers: int = LAYERS) -> torch.nn.Module:
    config = tf.GPT2Config(n_layer=layers)
    config.use_cache = False
    return tf.GPT2LMHeadModel(config)


def _t5() -> torch.nn.Module:
    config = tf.T5Config(num_layers=LAYERS, num_decoder_layers=LAYERS)
    config.use_cache = False
    return tf.T5ForConditionalGeneration(config)


def bert(layers: int = LAYERS) -> torch.nn.Module:
    """BERT with default widths (hidden 768, 12 heads) and the given number of layers."""
    return tf.BertModel(tf.BertConfig(num_hidden_layers=layers))


MODELS = [
    Model("bert", bert, _tokens(30522)),
    Model("gpt2", _gpt2, _tokens(50257)),
    Model("distilbert", lambda: tf.DistilBertModel(tf.DistilBertConfig(n_layers=LAYERS)), _tokens(30522)),
    Model("t5", _t5, _t5_inputs),
    Model("vit", lambda: tf.ViTModel(tf.ViTConfig(num_hidden_layers=LAYERS)), _images),
    Model("qwen3", _qwen3, _tokens(32000)),
    Model(
        "resnet",
        lambda: tf.ResNetModel(
            tf.ResNetConfig(layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512])
        ),
        _images,
    ),
    Model("convnext", lambda: tf.ConvNextModel(tf.ConvNextConfig()), _images),
]

BY_NAME = {model.name: model for model in MODELS}


def first_tensor(output: Any) -> torch.Tensor:
    """The leading tensor of a model's output."""
    if isinstance(output, torch.Tensor):
        return output
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    return first_tensor(output[0])
